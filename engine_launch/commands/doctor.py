"""``ddtree-launch doctor``: what this machine has for serving, one line per matter."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from engine_launch.commands.checkpoint import CheckpointError, read_checkpoint
from engine_launch.commands.drafter import DEFAULT_TARGET
from engine_launch.commands.serve import has_gpu, has_sglang
from engine_launch.embedded.options import PACKAGED_DRAFTER
from engine_launch.spec.drafter_check import Severity, check_drafter

EMBEDDED_PACKAGES = ("torch", "safetensors", "tokenizers", "gguf", "jinja2", "starlette", "uvicorn")
"""Import names of the ``embedded`` extra."""


class Status(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    name: str
    status: Status
    message: str


def doctor(argv: Sequence[str]) -> int:
    """Exit code 0 unless a check fails."""
    parser = argparse.ArgumentParser(prog="ddtree-launch doctor", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address whose port is checked")
    parser.add_argument("--port", type=int, default=30000, help="port to be free")
    parser.add_argument("--json", action="store_true", help="print JSON")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    checks = [check_python(), check_packages(), check_cpu(), check_memory()]
    if importlib.util.find_spec("platformdirs") is not None:
        checks += [check_cache(), check_model()]
    checks += [check_drafter_files(), check_port(arguments.host, arguments.port), check_sglang()]
    if arguments.json:
        rows = [{"name": one.name, "status": one.status.value, "message": one.message} for one in checks]
        print(json.dumps({"checks": rows}, indent=2))
    else:
        for one in checks:
            print(f"{one.status.value:<5} {one.name:<9} {one.message}")
    return 1 if any(one.status is Status.FAIL for one in checks) else 0


def check_python() -> Check:
    enough = sys.version_info >= (3, 11)
    return Check("python", Status.OK if enough else Status.FAIL, f"{platform.python_version()} ({sys.executable})")


def check_packages() -> Check:
    missing = [name for name in EMBEDDED_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        return Check("packages", Status.FAIL, f"{', '.join(missing)} missing: pip install 'ddtree-console[embedded]'")
    return Check("packages", Status.OK, f"torch {importlib.metadata.version('torch')} and the rest of [embedded]")


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
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    writable = os.access(nearest, os.W_OK)
    return Check("cache", Status.OK if writable else Status.FAIL, f"{folder}{'' if writable else ' cannot be written'}")


def check_model() -> Check:
    from engine_launch.embedded.model_files import DEFAULT_MODEL, default_model_path, sha256_of

    path = default_model_path()
    if not path.is_file():
        return Check("model", Status.WARN, f"not at {path}: run `ddtree-launch model get`")
    if sha256_of(path) != DEFAULT_MODEL.sha256:
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


def check_sglang() -> Check:
    gpu = "a GPU driver" if has_gpu() else "no GPU driver"
    if not has_sglang():
        return Check("sglang", Status.OK, f"not in this environment, {gpu}: --engine auto is embedded")
    chosen = "sglang" if has_gpu() else "embedded"
    return Check("sglang", Status.OK, f"{importlib.metadata.version('sglang')}, {gpu}: --engine auto is {chosen}")
