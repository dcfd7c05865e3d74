"""``ddtree-launch doctor``: what this machine has for serving, one line per matter, each with what to do.

``ddtree-launch doctor -- FLAGS OF SERVE`` also looks at what these flags ask for: the drafter against the target, the attention
backends against the GPUs, the page size. Where SGLang would serve them, what only the embedded engine needs is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from engine_launch.commands.line_parser import LineParser, port_number
from engine_launch.commands.output import complain, one_line, waiting
from engine_launch.commands.serve import found_engine, split_engine
from engine_launch.commands.serve_sglang import DEFAULT_PORT, has_gpu, has_sglang
from engine_launch.doctor.check import Check, Status, fail
from engine_launch.doctor.embedded import check_embedded, check_port, check_python
from engine_launch.doctor.embedded_flags import check_embedded_flags
from engine_launch.doctor.gpu_host import check_flags, check_gpu_host
from engine_launch.spec.checks import EngineKind
from engine_launch.spec.flags import FlagError
from engine_launch.spec.sglang_checks import read_flags
from engine_launch.spec.wrapping import under_itself
from engine_launch.versions import version_of

HELP = (
    "What this machine has for serving, one line per matter, each with what to do. With the flags of serve behind --, also what "
    "these ask for: the drafter against the target, the attention backends against the GPUs, the page size. Where SGLang would "
    "serve them, what only the embedded engine needs is left out. Exit codes: 0 unless a check fails (1)."
)


def doctor(argv: Sequence[str]) -> int:
    """Exit code 0 unless a check fails (1), or the words cannot be understood (2)."""
    parser = LineParser(
        prog="ddtree-launch doctor", usage="%(prog)s [-h] [--host HOST] [--port PORT] [--json] [-- FLAGS]", description=HELP
    )
    parser.add_argument("--host", default=None, help="address whose port is checked (default: the flags' own, else 127.0.0.1)")
    parser.add_argument("--port", type=port_number, default=None, help="port to be free (default: the flags' own, else 30000)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    cut = list(argv).index("--") if "--" in argv else len(argv)
    try:
        arguments, left = parser.parse_known_args(argv[:cut])
    except SystemExit as end:
        return int(end.code or 0)
    if left:
        return complain(
            f"doctor: {left[0]} is none of its own words; flags of serve stand behind --: ddtree-launch doctor -- FLAGS."
        )
    try:
        kind, words = split_engine(argv[cut + 1 :])
    except FlagError as error:
        return complain(str(error))
    flags = read_flags(words)
    host = arguments.host or flags.get("--host") or "127.0.0.1"
    with waiting("SGLang is asked for its flags and names, which takes up to a minute …") if has_sglang() else nullcontext():
        checks = examine(flags, kind, host, arguments.port, words)
    if arguments.json:
        rows = [{"name": one.name, "status": one.status.value, "message": one.message} for one in checks]
        print(json.dumps({"checks": rows}, indent=2))
    else:
        _print(checks, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    return 1 if any(one.status is Status.FAIL for one in checks) else 0


def _print(checks: Sequence[Check], columns: int | None) -> None:
    """A line each; on a terminal of so many columns a message goes on under itself, a pipe or a file takes whole lines."""
    width = max(len(one.name) for one in checks)
    for one in checks:
        head = f"{one.status.value:<5} {one.name:<{width}} "
        lines = under_itself(one_line(one.message), None if columns is None else columns - len(head))
        print(head + f"\n{' ' * len(head)}".join(lines))


def examine(flags: Mapping[str, str], kind: EngineKind, host: str, port: int | None, words: Sequence[str] = ()) -> list[Check]:
    """Every check that this machine and these flags give reason for.

    Args:
        kind: the engine that is to serve; without it and without flags either engine may be meant.
        port: the one to be free; ``None`` is the flags' own.
        words: the flags as they were written.
    """
    gpu, sglang = has_gpu(), has_sglang()
    asked = found_engine(kind) if flags or words else kind
    checks = [check_python()]
    if asked is not EngineKind.SGLANG:
        checks += check_embedded(sglang, flags)
    checks.append(_port(host, flags) if port is None else check_port(host, port))
    if gpu or sglang or asked is EngineKind.SGLANG:
        checks += check_gpu_host(flags)
    else:
        checks.append(Check("sglang", Status.OK, _neither()))
    if not (flags or words):
        return checks
    # Where SGLang is installed and there is no GPU, flags without an engine are taken for those of a host that has one.
    if kind is EngineKind.EMBEDDED or (asked is EngineKind.EMBEDDED and not sglang):
        return checks + check_embedded_flags(words)
    return checks + check_flags(flags, words, sglang=asked is EngineKind.SGLANG)


def _port(host: str, flags: Mapping[str, str]) -> Check:
    try:
        return check_port(host, port_number(flags.get("--port", str(DEFAULT_PORT))))
    except argparse.ArgumentTypeError as error:
        return fail("port", f"--port {error}.")


def _neither() -> str:
    return f"not in this environment, no GPU driver: --engine auto is embedded (ddtree-console {version_of('ddtree-console')})"
