"""Folders in which kernels are compiled at the first start: when one cannot be written, every start compiles anew or fails."""

from __future__ import annotations

import getpass
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from engine_launch.doctor.check import Check, fail, ok, warn

FOLDERS: tuple[tuple[str, str, str], ...] = (
    ("Triton", "TRITON_CACHE_DIR", "~/.triton/cache"),
    ("FlashInfer", "FLASHINFER_WORKSPACE_BASE", "~/.cache/flashinfer"),
    ("torch inductor", "TORCHINDUCTOR_CACHE_DIR", "{tmp}/torchinductor_{user}"),
    ("TVM FFI", "TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi"),
    ("CUDA", "CUDA_CACHE_PATH", "~/.nv/ComputeCache"),
    ("DeepGEMM", "SGLANG_DG_CACHE_DIR", "~/.cache/deep_gemm"),
)
"""Whose, the variable that moves it, and where it is otherwise."""
LEAST_FREE = 5e9
"""Bytes. A first start with FlashInfer compiles some gigabytes."""


def folders(environment: Mapping[str, str]) -> dict[str, Path]:
    """Where each compiler's cache is, or will be."""
    user = environment.get("USER") or environment.get("LOGNAME") or _user()
    home = environment.get("HOME", "~")
    found = {}
    for name, variable, default in FOLDERS:
        text = environment.get(variable) or default.format(tmp=environment.get("TMPDIR", tempfile.gettempdir()), user=user)
        found[name] = Path(text.replace("~", home, 1) if text.startswith("~") else text)
    return found


def check_caches(
    environment: Mapping[str, str],
    writable: Callable[[Path], bool] | None = None,
    free: Callable[[Path], float] | None = None,
) -> Check:
    """Whether each can be written, and whether there is room.

    Args:
        writable: asked of the nearest folder that exists; the file system unless a test says otherwise.
        free: bytes free there.
    """
    writable = writable or (lambda path: os.access(path, os.W_OK))
    free = free or (lambda path: float(shutil.disk_usage(path).free))
    places = {name: (path, _existing(path)) for name, path in folders(environment).items()}
    closed = [f"{name}'s {path}" for name, (path, nearest) in places.items() if not writable(nearest)]
    if closed:
        variables = ", ".join(variable for name, variable, _ in FOLDERS if any(item.startswith(f"{name}'s") for item in closed))
        return fail(
            "jit caches", f"cannot be written: {', '.join(closed)}. Mend the rights, or set {variables} to a folder of this user."
        )
    least, where = min((free(nearest), path) for path, nearest in places.values())
    if least < LEAST_FREE:
        return warn("jit caches", f"only {least / 1e9:.1f} GB free at {where}: a first start compiles some gigabytes of kernels")
    return ok("jit caches", f"{len(places)} folders can be written, {least / 1e9:.0f} GB free")


def _existing(path: Path) -> Path:
    return next((one for one in (path, *path.parents) if os.path.exists(one)), Path("/"))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
