"""What the engine, or the launcher that chooses it, would say of the planned command line when it is started with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine_launch.spec.checks import EngineKind, check_embedded
from engine_launch.spec.flags import FlagError, parse_flags
from engine_launch.spec.sglang_checks import block_given, check_sglang_flags, read_flags

from ..evidence.command import CommandForm, find_engine, flag_value
from ..evidence.server import Dialect
from ..knobs import KNOBS, PLAIN, Knob, Value, find_knob
from .case import Case
from .draft_pool import DDTREE, engine_of
from .records import Finding

DDTREE_FLAGS = "--speculative-ddtree-"


def flag_findings(case: Case) -> Iterator[Finding]:
    """What the launcher itself would say of this command line; for SGLang, flags that its build does not report."""
    engine = find_engine(case.command)
    if engine is None or not case.restart:
        return
    if engine.form in (CommandForm.LAUNCHER, CommandForm.LAUNCHER_MODULE):
        yield from _launcher(case, engine.arguments)
        return
    yield from _sizes(case)
    info = case.state.server.value if case.state.server is not None else None
    if info is None:
        return
    for change in case.changes:
        knob = find_knob(change.knob)
        names = {flag[2:].replace("-", "_") for flag in knob.flags} | set(knob.server_fields)
        if change.new is not None and not names & set(info.fields):
            if knob.flags[0].startswith(DDTREE_FLAGS) and info.dialect is Dialect.STOCK:
                yield _of_tree(knob, info.engine_name, flag_value(case.command, KNOBS["algorithm"]).value)
                continue
            said = f"this build of {info.engine_name} does not list {knob.flags[0]}: it would refuse to start"
            yield Finding.error("unknown_flag", said, knob.name)


def _sizes(case: Case) -> Iterator[Finding]:
    """A tree that is larger than the same command line lets it become: DDTREE's plugin would refuse to start."""
    if flag_value(case.command, KNOBS["algorithm"]).value != DDTREE:
        return
    for knob in KNOBS.values():
        given = flag_value(case.command, knob).value
        most = flag_value(case.command, find_knob(f"flag:{knob.most_flag}")).text if knob.most_flag else ""
        if isinstance(given, int) and most.isdecimal() and given > int(most):
            said = f"{knob.flags[0]} {given} is more than {knob.most_flag} {most}, with which the engine would refuse to start"
            advice = f"raise that too (flag:{knob.most_flag}={given}), or choose at most {most}"
            yield Finding.error("beyond_most", f"{said}: {advice}", knob.name)


def _launcher(case: Case, arguments: Sequence[str]) -> Iterator[Finding]:
    """The launcher's own checks, which are those of the engine that it will start; where it chooses on its host, and has not been
    seen to, neither's apply for certain."""
    engine = engine_of(case.state, case.command)
    if engine is EngineKind.SGLANG:
        flags = read_flags(arguments)
        given, drafter = block_given(flags), case.survey.drafter
        # 0 is a size that was given, and is refused; only a flag that is left out leaves it to the drafter.
        block = drafter.block_size if given is None and drafter is not None else given
        verdicts = check_sglang_flags(flags, block)
        errors, warnings = verdicts.errors, verdicts.warnings
    elif engine is EngineKind.EMBEDDED:
        errors, warnings = _embedded_flags(arguments)
    else:
        return
    for text in errors:
        yield Finding.error("flag_refused", f"the launcher would refuse this command: {text}")
    for text in () if errors else warnings:
        yield Finding.warning("flag_without_effect", text)


def _embedded_flags(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Errors and warnings of the embedded engine's command line."""
    try:
        parsed = parse_flags(arguments)
        return (), (*parsed.warnings, *check_embedded(parsed))
    except FlagError as error:
        return (str(error),), ()


def _of_tree(knob: Knob, engine: str, algorithm: Value | None) -> Finding:
    """A tree's setting for a server that runs without a tree: it reports none, whether it has the plugin or not."""
    flag = knob.flags[0]
    if algorithm == DDTREE:
        said = (
            f"{engine} takes {flag} only with DDTREE's plugin beside it, and without it will not start; whether it is there, "
            "ddtree-launch doctor on that host says"
        )
        return Finding.warning("needs_plugin", said, knob.name)
    said = (
        f"{flag} is DDTREE's, and {engine} would start with {algorithm or PLAIN}: with the plugin the flag has no effect, "
        f"without it the start fails. Install ddtree-console beside SGLang and plan algorithm={DDTREE} too"
    )
    return Finding.error("unknown_flag", said, knob.name)
