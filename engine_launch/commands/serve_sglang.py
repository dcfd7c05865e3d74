"""``ddtree-launch serve --engine sglang``: check what can be checked at once, then become SGLang with the same flags.

A plain ``python -m sglang.launch_server --speculative-algorithm DDTREE …`` does the same without this: the plugin is found by
SGLang itself. What this adds is that mistakes are said before a minute of loading, not after it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from engine_launch.commands.checkpoint import CheckpointError, read_shapes
from engine_launch.commands.line_parser import port_number
from engine_launch.commands.output import warn
from engine_launch.doctor.check import Status
from engine_launch.doctor.command_line import check_config_file, check_folders
from engine_launch.doctor.software import PLUGIN, PLUGIN_TARGET, RESTRICTING_VARIABLE, kept_out
from engine_launch.local_paths import expanded, is_folder
from engine_launch.refusals import LAUNCHED_VARIABLE
from engine_launch.sglang_plugin.gate import TESTED_VERSION
from engine_launch.spec.checks import GPU_DEVICES
from engine_launch.spec.drafter_check import Severity, Shapes, TargetShape, capture_problem, check_drafter, ranks_problem
from engine_launch.spec.drafter_config import DrafterConfigError, load_drafter_config
from engine_launch.spec.flags import FlagError
from engine_launch.spec.installing import install_command
from engine_launch.spec.sglang_checks import asked_algorithm, block_given, check_sglang_flags, number, read_flags
from engine_launch.versions import UNKNOWN, version_of

PLUGIN_GROUP = "sglang.srt.plugins"
DEFAULT_PORT = 30000
GPU_TOOLS = ("nvidia-smi", "rocm-smi")


def has_sglang() -> bool:
    return importlib.util.find_spec("sglang") is not None


def has_gpu() -> bool:
    """Whether a driver's device is here."""
    return any(map(os.path.exists, GPU_DEVICES))


def serve_sglang(argv: Sequence[str]) -> NoReturn:
    """Become SGLang with these flags.

    Raises:
        FlagError: SGLang or the plugin is not here, or the flags, the drafter or the port would stop it later.
    """
    for warning in check(argv):
        warn(warning)
    os.environ[LAUNCHED_VARIABLE] = str(os.getpid())
    os.execv(sys.executable, [sys.executable, "-m", "sglang.launch_server", *argv])


def check(argv: Sequence[str]) -> tuple[str, ...]:
    """Look before the start; returns warnings.

    Raises:
        FlagError: the first thing that would stop it.
    """
    flags = read_flags(argv)
    for looked_at in (check_config_file(flags, argv), *check_folders(flags, sglang=True)):
        if looked_at is not None and looked_at.status is Status.FAIL:
            raise FlagError(looked_at.message)
    draft_folder = _folder(flags.get("--speculative-draft-model-path", ""))
    given = block_given(flags)
    block = _block(draft_folder) if given is None and draft_folder else given
    verdicts = check_sglang_flags(flags, block)
    if verdicts.errors:
        raise FlagError(verdicts.errors[0])
    if not has_sglang():
        raise FlagError(
            "SGLang is not installed in this Python environment. Use --engine embedded or, in an environment of its own (it "
            f"cannot share one with the embedded engine): {install_command('sglang', importlib.metadata.distribution)}"
        )
    warnings = [*verdicts.warnings, *_check_plugin(flags), *_check_drafter(flags, draft_folder)]
    _check_gpu(flags)
    _check_port(flags)
    return tuple(warnings)


def _check_plugin(flags: Mapping[str, str]) -> list[str]:
    if asked_algorithm(flags) != "DDTREE":
        return []
    entries = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP)}
    if entries.get(PLUGIN) != PLUGIN_TARGET:
        raise FlagError(
            "SGLang does not find the DDTREE plugin. In the environment that SGLang runs in: "
            f"{install_command('', importlib.metadata.distribution)}"
        )
    if kept_out(os.environ):
        named = os.environ[RESTRICTING_VARIABLE]
        raise FlagError(f"{RESTRICTING_VARIABLE}={named} keeps the DDTREE plugin out: add {PLUGIN} to it.")
    version = version_of("sglang")
    if version == UNKNOWN:
        return [f"DDTREE is tested with SGLang {TESTED_VERSION}; the version of this one is not known."]
    return [] if version == TESTED_VERSION else [f"DDTREE is tested with SGLang {TESTED_VERSION}; this is {version}."]


def _check_gpu(flags: Mapping[str, str]) -> None:
    """DDTREE runs on GPUs alone; without one SGLang loads for half a minute and ends in a traceback of its own."""
    if asked_algorithm(flags) == "DDTREE" and not has_gpu() and not any(map(shutil.which, GPU_TOOLS)):
        raise FlagError(
            "no GPU is to be seen here: there is neither a driver's device (/dev/nvidiactl, /dev/kfd) nor its tool (nvidia-smi, "
            "rocm-smi). In a container, give it the GPUs (docker run --gpus all); else load the driver, or use --engine embedded."
        )


def _folder(path: str) -> Path | None:
    """A local checkpoint; a name on a model hub is left to SGLang."""
    folder = expanded(path)
    return folder if path and is_folder(folder) else None


def _block(folder: Path) -> int | None:
    try:
        return load_drafter_config(folder).block_size
    except DrafterConfigError:
        return None


def _check_drafter(flags: Mapping[str, str], folder: Path | None) -> list[str]:
    """A local drafter, its weights, and both against a local target. What can only be read from a hub is left alone."""
    if folder is None or asked_algorithm(flags) not in ("DDTREE", "DFLASH"):
        return []
    try:
        config, shapes = load_drafter_config(folder), drafter_shapes(flags, folder)
    except DrafterConfigError as error:
        raise FlagError(f"{error}.") from None
    except CheckpointError as error:
        raise FlagError(str(error)) from None
    problem = ranks_problem(config, number(flags, "--tp-size") or 1)
    if problem:
        raise FlagError(f"the drafter {folder} cannot be shared out so: {problem}")
    target = target_shape(_folder(flags.get("--model-path", "")))
    if target is None:
        return []
    findings = check_drafter(config, target, shapes)
    errors = [finding.message for finding in findings if finding.severity is Severity.ERROR]
    misfit = errors[0] if errors else capture_problem(config, target)
    if misfit:
        raise FlagError(f"the drafter {folder} does not fit {target.name}: {misfit}")
    return []


def drafter_shapes(flags: Mapping[str, str], folder: Path) -> Shapes | None:
    """Tensors of a local drafter, ``None`` where the flags load it in a way that cannot be looked at, or needs no weights.

    Raises:
        CheckpointError: they are not there, or not whole.
    """
    load_format = flags.get("--speculative-draft-load-format") or flags.get("--load-format") or "auto"
    return read_shapes(folder) if load_format in ("auto", "safetensors") else None


def target_shape(folder: Path | None) -> TargetShape | None:
    """A local target's shape, from its configuration; the language model's where it is one part of several."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(config, dict) or folder is None:
        return None
    part = config.get("text_config")
    values = part if isinstance(part, dict) else config
    sizes = [values.get(key) for key in ("hidden_size", "num_hidden_layers", "vocab_size")]
    if not all(isinstance(size, int) for size in sizes):
        return None
    hidden, layers, vocabulary = (int(str(size)) for size in sizes)
    return TargetShape(folder.name, hidden, layers, vocabulary)


def _check_port(flags: Mapping[str, str]) -> None:
    from engine_launch.embedded.server_bind import StartError, bind

    try:
        port = port_number(flags.get("--port", str(DEFAULT_PORT)))
        if port:
            bind(flags.get("--host", "127.0.0.1"), port).close()
    except argparse.ArgumentTypeError as error:
        raise FlagError(f"--port {error}.") from None
    except StartError as error:
        raise FlagError(str(error)) from None
