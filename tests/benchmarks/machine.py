"""What a figure was measured on, in one line."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def description(dtype: torch.dtype) -> str:
    """CPU, cores, instructions, memory, Python and torch."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    special = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    cores = len(os.sched_getaffinity(0))
    name = fields.get("model name", platform.machine())
    return (
        f"{name} (family {fields.get('cpu family', '?')}), {cores} cores, {' '.join(special)}; {memory:.0f} GiB; "
        f"Python {platform.python_version()}, torch {torch.__version__}, {str(dtype).removeprefix('torch.')}, "
        f"{torch.get_num_threads()} threads; load {os.getloadavg()[0]:.1f} at the end"
    )
