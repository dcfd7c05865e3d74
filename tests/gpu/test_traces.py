"""A trace's rounds in figures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.traces import read_trace, summarise


def kernel(name: str, begin: float, length: float) -> dict[str, Any]:
    return {"cat": "kernel", "name": name, "ts": begin, "dur": length}


def call(name: str, length: float = 5.0) -> dict[str, Any]:
    return {"cat": "cuda_runtime", "name": name, "ts": 0.0, "dur": length}


EVENTS = [
    kernel("gemm", 2000.0, 1000.0),
    kernel("gemm", 1000.0, 500.0),
    kernel("copy", 1250.0, 500.0),
    call("cudaLaunchKernel"),
    call("cudaLaunchKernel"),
    call("cudaMemcpyAsync"),
    call("cudaGraphLaunch"),
    call("cudaStreamSynchronize", 400.0),
    {"cat": "cpu_op", "name": "aten::add", "ts": 0.0, "dur": 9.0},
    {"ph": "M", "name": "process_name"},
]


def test_kernels_that_overlap_are_busy_once() -> None:
    found = summarise(EVENTS, 2)
    assert (found.span_ms, found.busy_ms) == (1.0, 0.875)
    assert (found.launches, found.graphs, found.waits_ms) == (1.5, 0.5, 0.2)
    assert found.longest == (("gemm", 0.75), ("copy", 0.25))


def test_a_trace_without_kernels_is_none() -> None:
    with pytest.raises(ValueError, match="no kernel"):
        summarise(EVENTS[3:], 1)


def test_traces_are_read_packed_and_plain(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": EVENTS})
    plain, packed = tmp_path / "a.trace.json", tmp_path / "b.trace.json.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_trace(plain) == read_trace(packed) == EVENTS
