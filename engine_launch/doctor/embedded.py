"""What the embedded engine needs of this machine, and the two matters that every engine shares: Python and the port."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from engine_launch.commands.checkpoint import CheckpointError, read_checkpoint
from engine_launch.commands.drafter import DEFAULT_TARGET
from engine_launch.doctor.check import Check, Status
from engine_launch.embedded.options import PACKAGED_DRAFTER
from engine_launch.local_paths import expanded, is_file, unreachable
from engine_launch.spec.drafter_check import Severity, check_drafter
from engine_launch.spec.installing import install_command
from engine_launch.versions import version_of

EMBEDDED_PACKAGES = ("torch", "safetensors", "tokenizers", "gguf", "jinja2", "starlette", "uvicorn")
"""Import names of the ``embedded`` extra."""


def check_embedded(beside_sglang: bool, flags: Mapping[str, str] = MappingProxyType({})) -> list[Check]:
    """All that concerns the embedded engine alone. The packaged model and drafter are left out where ``flags`` name others, which
    are looked at as a part of the flags.

    Args:
        beside_sglang: SGLang serves here, so the embedded engine's packages may be missing.
    """
    checks = [check_packages(beside_sglang), check_cpu(), check_memory()]
    if importlib.util.find_spec("platformdirs") is not None:
        checks.append(check_cache())
        if _is_packaged(flags.get("--model-path")):
            checks.append(check_model())
    return checks if flags.get("--speculative-draft-model-path") else [*checks, check_drafter_files()]


def _is_packaged(named: str | None) -> bool:
    """Whether the model that flags name, if they name one, is the one from the cache."""
    from engine_launch.embedded.api import EngineError
    from engine_launch.embedded.model_files import default_model_path, resolve_model

    try:
        return named is None or resolve_model(expanded(named)) == default_model_path()
    except EngineError:
        return False


def check_python() -> Check:
    enough = sys.version_info >= (3, 11)
    return Check("python", Status.OK if enough else Status.FAIL, f"{platform.python_version()} ({sys.executable})")


def check_packages(beside_sglang: bool = False) -> Check:
    missing = [name for name in EMBEDDED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing and beside_sglang:
        return Check("packages", Status.OK, f"SGLang serves here; the embedded engine would need {', '.join(missing)}")
    if missing:
        command = install_command("embedded", importlib.metadata.distribution)
        return Check("packages", Status.FAIL, f"{', '.join(missing)} missing: {command}")
    return Check("packages", Status.OK, f"torch {version_of('torch')} and the rest of [embedded]")


def check_cpu() -> Check:
    """Cores of this process, and whether the CPU computes in bfloat16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    flags = _cpu_flags()
    found = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    dtype = "bfloat16" if {"avx512_bf16", "amx_bf16"} & flags else "float32"
    return Check("cpu", Status.OK, f"{cores} cores, {', '.join(found) or 'no vector extensions known'}; --dtype auto is {dtype}")


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def check_memory() -> Check:
    from engine_launch.embedded.logs import GIB, available_memory

    free = available_memory() / GIB
    status = Status.OK if free >= 2 else Status.WARN
    return Check("memory", status, f"{free:.1f} GB available (the embedded engine takes about 1.5 GB)")


def check_cache() -> Check:
    from engine_launch.embedded.model_files import cache_folder

    folder = cache_folder()
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not os.path.isdir(nearest):
        return Check("cache", Status.FAIL, f"{folder} cannot be made: {nearest} is no folder")
    writable = os.access(nearest, os.W_OK | os.X_OK)
    return Check("cache", Status.OK if writable else Status.FAIL, f"{folder}{'' if writable else ' cannot be written'}")


def check_model() -> Check:
    from engine_launch.embedded.model_files import DEFAULT_MODEL, default_model_path, sha256_of

    path = default_model_path()
    if not is_file(path):
        why = unreachable(path)
        return Check("model", Status.WARN, f"not at {path}{f' ({why})' if why else ''}: run `ddtree-launch model get`")
    try:
        found = sha256_of(path)
    except OSError as error:
        return Check("model", Status.FAIL, f"{path} cannot be read: {error.strerror or error}")
    if found != DEFAULT_MODEL.sha256:
        return Check("model", Status.FAIL, f"{path} has the wrong SHA-256: delete it and run `ddtree-launch model get`")
    return Check("model", Status.OK, f"{path} (SHA-256 as expected)")


def check_drafter_files() -> Check:
    try:
        checkpoint = read_checkpoint(PACKAGED_DRAFTER)
    except CheckpointError as error:
        return Check("drafter", Status.FAIL, str(error))
    for finding in check_drafter(checkpoint.config, DEFAULT_TARGET, checkpoint.shapes):
        if finding.severity is Severity.ERROR:
            return Check("drafter", Status.FAIL, finding.message)
    return Check("drafter", Status.OK, f"block size {checkpoint.config.block_size}, {checkpoint.config.window_text}")


def check_port(host: str, port: int) -> Check:
    from engine_launch.embedded.server_bind import StartError, bind

    try:
        bind(host, port).close()
    except StartError as error:
        return Check("port", Status.WARN, str(error))
    return Check("port", Status.OK, f"{host}:{port} is free")
