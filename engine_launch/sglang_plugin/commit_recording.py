"""How the graphs of a commit are recorded: on a stream of their own, with a helper of SGLang's that nobody else calls."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

import torch

from engine_launch.sglang_plugin.commit_graphs import Append, CommitGraphs, Record

_logger = logging.getLogger(__name__)


class CaptureFailed(Exception):
    """A capture was broken off. torch's allocator then never gives memory back (pytorch#180395), so the process must end."""


class CudaRecorder:
    """Records calls as CUDA graphs that share one pool of memory: they never run at the same time.

    What a call keeps from one time to the next lies outside of that pool; who records it must hold it, see :func:`of_worker`.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        self._pool: Any = None

    def __call__(self, call: Callable[[], None]) -> Callable[[], None]:
        """
        Raises:
            RuntimeError: the call cannot be run, or there is too little memory for it.
            CaptureFailed: it can be run, and not be captured.
        """
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(2):  # kernels are compiled and libraries set up by running, not by recording
                call()
        current.wait_stream(self._stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        gc.disable()  # what it collects may be a graph, whose end is not allowed in a capture
        try:
            # The outer stream is put back where a capture fails, torch's own is not. Other threads may ask CUDA meanwhile.
            with (
                torch.cuda.stream(self._stream),
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
            ):
                call()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise CaptureFailed(
                f"DDTREE could not capture the drafter's part of a commit as a CUDA graph: {error}. "
                "Start the server with --disable-cuda-graph, or with a drafter that SGLang knows."
            ) from error
        finally:
            gc.enable()
        self._pool = graph.pool()
        return graph.replay


def of_worker(worker: Any, append: Append, sizes: Iterable[int]) -> CommitGraphs:
    """Graphs of ``append`` for a DFLASH worker, which has loaded its drafter; ``sizes`` are none without CUDA graphs.

    SGLang's helper for the drafter's keys and values works in buffers that it gives up for larger ones when a longer prompt
    comes, and is itself given up when a call of it fails once (out of memory, say): graphs of it would go on writing where
    they were. So a copy is recorded, which shares the weights, is called no more afterwards and is kept with the graphs.
    """
    if not torch.cuda.is_available():
        sizes = ()
    graphs = CommitGraphs(
        append,
        sizes,
        block=int(worker.block_size),
        features=int(worker.draft_model.fc.in_features),
        dtype=worker.model_runner.dtype,
        device=worker.device,
    )
    if sizes:
        record_with_own_helper(graphs, worker, CudaRecorder())
    return graphs


def record_with_own_helper(graphs: CommitGraphs, worker: Any, record: Record) -> None:
    """See :func:`of_worker`. Afterwards the worker is as before, also when recording has failed."""
    own = copy(worker._fused_kv_helper)
    before = {name: getattr(worker, name) for name in ("_fused_kv_helper", "_use_fused_kv_materialize")}
    worker._fused_kv_helper = own
    try:
        graphs.record(record)
        if worker._fused_kv_helper is not own:
            # SGLang has caught what went wrong, and layer by layer would be slower than its helper without a graph.
            graphs.give_up()
            _logger.warning("DDTREE commits without CUDA graphs: SGLang's own helper failed while they were recorded")
    finally:
        vars(worker).update(before)
    layers = [getattr(layer, "self_attn", None) for layer in getattr(worker.draft_model, "layers", ())]
    rotary = [getattr(part, "rotary_emb", None) for part in (own, *layers)]
    graphs.keep(own, *(getattr(embedding, "cos_sin_cache", None) for embedding in rotary))
