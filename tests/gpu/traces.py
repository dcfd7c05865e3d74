"""What a trace of torch's profiler says of a server's rounds: launches, the GPU's busy time, and what it was busy with."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any

GRAPH_LAUNCH = "cudaGraphLaunch"
KERNEL_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
COPIES = ("cudaMemcpyAsync", "cudaMemsetAsync")
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize")


@dataclass(frozen=True)
class Rounds:
    """Per round, of all rounds in a trace."""

    rounds: int
    span_ms: float
    """From the first kernel's begin to the last one's end, by the rounds."""
    busy_ms: float
    """Time in which at least one kernel runs."""
    launches: float
    """Kernels and copies that the CPU launches one by one."""
    graphs: float
    waits_ms: float
    """Time that the CPU waits for the GPU."""
    longest: tuple[tuple[str, float], ...]
    """Kernels by the time they take, ms a round."""


def read_trace(path: Path) -> list[dict[str, Any]]:
    """The events of a trace file, packed or not."""
    data = path.read_bytes()
    return list(json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"])


def summarise(events: Iterable[Mapping[str, Any]], rounds: int, longest: int = 10) -> Rounds:
    """``events``: those of a trace (times in µs); ``rounds``: how many it holds.

    Raises:
        ValueError: there is no kernel in it.
    """
    kernels: list[tuple[float, float]] = []
    by_name: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    waits = 0.0
    for event in events:
        kind, name = event.get("cat"), str(event.get("name"))
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            begin, length = float(event["ts"]), float(event["dur"])
            kernels.append((begin, begin + length))
            by_name[name] += length
        elif kind in ("cuda_runtime", "cuda_driver"):
            calls[name] += 1
            if name in WAITS:
                waits += float(event["dur"])
    if not kernels:
        raise ValueError("no kernel in the trace")
    kernels.sort()
    busy, end = 0.0, kernels[0][0]
    for begin, stop in kernels:
        busy += max(0.0, stop - max(begin, end))
        end = max(end, stop)

    def each(microseconds: float) -> float:
        return round(microseconds / rounds / 1000, 4)

    return Rounds(
        rounds,
        each(end - kernels[0][0]),
        each(busy),
        round(sum(calls[name] for name in (*KERNEL_LAUNCHES, *COPIES)) / rounds, 1),
        round(calls[GRAPH_LAUNCH] / rounds, 1),
        each(waits),
        tuple((name[:120], each(length)) for name, length in nlargest(longest, by_name.items(), key=lambda item: item[1])),
    )
