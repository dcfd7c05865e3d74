"""``ddtree-launch serve``: check the command line, choose the engine, start it."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Sequence

from engine_launch.commands.output import complain, warn
from engine_launch.commands.serve_sglang import has_gpu, has_sglang, serve_sglang
from engine_launch.spec.checks import EngineKind, check_embedded
from engine_launch.spec.flags import FlagError, parse_flags, read_value, resolve
from engine_launch.spec.flags_help import serve_help
from engine_launch.spec.installing import install_command
from engine_launch.spec.sglang_help import sglang_help


def serve(argv: Sequence[str]) -> int:
    """Serve until stopped; returns the exit code (2: the command line or the checkpoint cannot be served)."""
    if "--help" in argv or "-h" in argv:
        columns = shutil.get_terminal_size().columns
        print(sglang_help(columns) if _engine_asked(argv) is EngineKind.SGLANG else serve_help(columns))
        return 0
    try:
        kind, rest = split_engine(argv)
        if found_engine(kind) is EngineKind.SGLANG:
            serve_sglang(rest)
        return serve_embedded(rest)
    except FlagError as error:
        return complain(str(error))


def _engine_asked(argv: Sequence[str]) -> EngineKind:
    """The engine whose flags a call for help asks about; which of them is written wrongly is no reason to give none."""
    try:
        return found_engine(split_engine(argv)[0])
    except FlagError:
        return EngineKind.AUTO


def split_engine(argv: Sequence[str]) -> tuple[EngineKind, list[str]]:
    """The engine asked for, and the words without ``--engine``: SGLang must get its own flags untouched.

    Raises:
        FlagError: no such engine.
    """
    kind, rest = EngineKind.AUTO, []
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--engine":
            rest.append(word)
            continue
        given = value if equals else next(words, "")
        kind = EngineKind(str(read_value(resolve("--engine"), "--engine", given)))
    return kind, rest


def found_engine(kind: EngineKind) -> EngineKind:
    """``kind``, and for *auto* the engine that it comes to on this machine."""
    if kind is not EngineKind.AUTO:
        return kind
    return EngineKind.SGLANG if has_sglang() and has_gpu() else EngineKind.EMBEDDED


def serve_embedded(argv: Sequence[str]) -> int:
    """Serve with the embedded engine.

    Raises:
        FlagError: the flags cannot be served.
    """
    parsed = parse_flags(argv)
    warnings = (*parsed.warnings, *check_embedded(parsed))
    try:
        from engine_launch.commands.embedded import start
        from engine_launch.embedded.server_options import server_options
    except ModuleNotFoundError as error:
        command = install_command("embedded", importlib.metadata.distribution)
        raise FlagError(f"The embedded engine needs the package {error.name}: {command}") from None
    for warning in warnings:
        warn(warning)
    return start(server_options(parsed))
