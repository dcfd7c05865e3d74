"""A command line that the embedded engine is to serve: its flags, model and drafter, by the rules of its own start."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from engine_launch.commands.checkpoint import CheckpointError, read_checkpoint
from engine_launch.commands.drafter import DEFAULT_TARGET
from engine_launch.doctor.check import Check, Status, fail, ok, warn
from engine_launch.local_paths import expanded
from engine_launch.spec.checks import algorithm, block_size, check_embedded, check_window
from engine_launch.spec.drafter_check import Severity, check_drafter
from engine_launch.spec.flags import FlagError, ParsedFlags, parse_flags


def check_embedded_flags(words: Sequence[str]) -> list[Check]:
    """What ``serve`` would say of these words, and of the files that they name."""
    try:
        parsed = parse_flags(words)
        warnings = (*parsed.warnings, *check_embedded(parsed))
    except FlagError as error:
        return [fail("flags", str(error))]
    files = [*_model(parsed), *_drafter(parsed)]
    problem = "" if any(check.status is Status.FAIL for check in files) else _start_problem(parsed)
    if problem:
        return [fail("flags", f"{problem}."), *files]
    said = f"{algorithm(parsed) or 'plain decoding'} by the embedded engine"
    flags = warn("flags", f"{said}. {' '.join(warnings)}") if warnings else ok("flags", f"{said}: nothing speaks against them")
    return [flags, *files]


def _start_problem(parsed: ParsedFlags) -> str:
    """Why the engine would end at its start, before it loads anything; an empty text also where its packages are not here."""
    try:
        from engine_launch.embedded.api import EngineError
        from engine_launch.embedded.factory import check_options
        from engine_launch.embedded.server_options import server_options
    except ModuleNotFoundError:
        return ""
    try:
        check_options(server_options(parsed).engine)
    except EngineError as error:
        return str(error)
    return ""


def _model(parsed: ParsedFlags) -> list[Check]:
    given = parsed.value("--model-path")
    if given is None or importlib.util.find_spec("platformdirs") is None:
        return []
    from engine_launch.embedded.api import EngineError
    from engine_launch.embedded.model_files import resolve_model

    name = "flags target"
    try:
        path = resolve_model(expanded(str(given)))
    except EngineError as error:
        return [fail(name, f"{error}.")]
    return [ok(name, f"{path} is a GGUF file; whether it holds a model that can be served is seen at the start")]


def _drafter(parsed: ParsedFlags) -> list[Check]:
    """A drafter that the flags name, and the window against its block; it is compared with the engine's own target only, whose
    sizes are known without its file."""
    given = parsed.value("--speculative-draft-model-path")
    if given is None or algorithm(parsed) is None:
        return []
    name = "flags drafter"
    try:
        checkpoint = read_checkpoint(expanded(str(given)))
        window = parsed.value("--speculative-draft-window-size")
        check_window(window if isinstance(window, int) else None, block_size(parsed) or checkpoint.config.block_size)
    except (CheckpointError, FlagError) as error:
        return [fail(name, str(error))]
    config = checkpoint.config
    if parsed.was_given("--model-path"):
        return [ok(name, f"{config.window_text}, block {config.block_size}; it is compared with the target at the start")]
    findings = check_drafter(config, DEFAULT_TARGET, checkpoint.shapes)
    text = " ".join(finding.message for finding in findings)
    if any(finding.severity is Severity.ERROR for finding in findings):
        return [fail(name, text)]
    return [warn(name, text) if findings else ok(name, f"fits {DEFAULT_TARGET.name}: {config.window_text}")]
