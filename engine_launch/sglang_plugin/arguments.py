"""Checks SGLang's arguments for DDTREE and sets those that follow from it.

``speculative_num_draft_tokens`` is where SGLang reads the width of a verify pass (KV slots reserved per round, graph widths,
buffers); for DDTREE it becomes that of the widest tree, and the drafter's block moves to ``speculative_dflash_block_size``.
Both spellings still mean the block on the command line, as for DFLASH.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from engine_launch.sglang_plugin import gate
from engine_launch.sglang_plugin.options import Limits, Options

_logger = logging.getLogger(__name__)


def settle(server_args: Any) -> Limits:
    """Check and complete ``server_args`` while SGLang still resolves them.

    Raises:
        ValueError: DDTREE cannot run so; the message says what to change.
    """
    from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
    from sglang.srt.arg_groups.speculative_hook import _handle_dflash

    from engine_launch.sglang_plugin import front_end

    view = resolved_view(server_args)
    problem = refusal(view, attention_backends_of(view))
    if problem:
        raise ValueError(problem)
    options = Options.load()
    if options.self_test and server_args.skip_server_warmup:
        raise ValueError("--ddtree-self-test is a part of the server's warm-up: leave --skip-server-warmup out.")
    if server_args.tokenizer_worker_num > 1:
        # Its front ends each have a warm-up of their own, and none can end the server.
        if options.self_test:
            raise ValueError("--ddtree-self-test does not work with --tokenizer-worker-num above 1: use one of them.")
        front_end.carry(server_args)
    _undo_widening(server_args, options)
    # Block, window, draft backend, running requests: as for DFLASH.
    with _in_our_name(_handle_dflash.__module__):
        _handle_dflash(server_args)
    limits = options.resolve(int(server_args.speculative_num_draft_tokens), server_args.speculative_draft_window_size)
    if options.draft_pool == "ring":
        problem = ring_refusal(server_args)
        if problem:
            raise ValueError(problem)
    problem = _preferred_refusal(server_args.preferred_sampling_params, limits)
    if problem:
        raise ValueError(problem)
    server_args.speculative_dflash_block_size = limits.block
    server_args.speculative_num_draft_tokens = limits.max_width
    version = gate.sglang_version()
    if version != gate.TESTED_VERSION:
        _logger.warning(
            "DDTREE is tested with SGLang %s; this is %s. Every name that it uses is there.", gate.TESTED_VERSION, version
        )
    return limits


@contextlib.contextmanager
def _in_our_name(logger_name: str) -> Iterator[None]:
    """Let what SGLang says of DFLASH, in lines of its log and in errors, say DDTREE: nobody has asked for DFLASH."""

    def rename(record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            record.msg = record.msg.replace("DFLASH", "DDTREE").replace("dflash speculative", "DDTREE speculative")
        return True

    logger = logging.getLogger(logger_name)
    logger.addFilter(rename)
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error).replace("DFLASH", "DDTREE")) from None
    finally:
        logger.removeFilter(rename)


def _preferred_refusal(preferred: str | dict[str, Any] | None, limits: Limits) -> str:
    """Why no request could be served with ``--preferred-sampling-params``, the warm-up's own included; or an empty text."""
    from sglang.srt.sampling.sampling_params import SamplingParams

    from engine_launch.sglang_plugin.scheduler_hooks import request_refusal

    try:
        given = json.loads(preferred) if isinstance(preferred, str) else preferred
        params = SamplingParams(**(given or {}))
    except (TypeError, ValueError):  # SGLang says so itself
        return ""
    problem = request_refusal(SimpleNamespace(return_logprob=False, sampling_params=params), limits)
    return f"--preferred-sampling-params would have every request refused: {problem.rstrip('.')}." if problem else ""


def block_of(server_args: Any) -> int:
    """The drafter's block in settled arguments."""
    return int(server_args.speculative_dflash_block_size)


def refusal(view: Any, backends: tuple[str | None, str | None]) -> str:
    """Why DDTREE cannot run with these resolved arguments, or an empty text. ``backends``: of prefill and of decode."""
    if not str(view.device).startswith("cuda"):
        return f"DDTREE needs a GPU of NVIDIA or AMD (--device cuda), not {view.device}."
    if view.speculative_draft_model_path is None:
        return "DDTREE needs a DFlash drafter: give --speculative-draft-model-path."
    if view.page_size not in (None, 1):
        return f"DDTREE needs --page-size 1, not {view.page_size}: a tree's branches cannot share a page."
    if set(backends) != {"triton"}:
        named = "/".join(sorted({str(backend) for backend in backends}))
        return f"DDTREE needs an attention backend with tree masks: give --attention-backend triton (it is {named})."
    if "fp4" in str(view.kv_cache_dtype) or view.kv_cache_dtype == "mxfp8":
        return (
            f"DDTREE does not work with --kv-cache-dtype {view.kv_cache_dtype}: its scales lie apart from the rows that are "
            "moved when a path is accepted. fp8_e4m3, fp8_e5m2 and bf16 can be used."
        )
    if view.speculative_draft_attention_backend == "trtllm_mha":
        return (
            "DDTREE does not work with --speculative-draft-attention-backend trtllm_mha, which takes a tree's width for the "
            "drafter's block: give triton or flashinfer."
        )
    for field, value, flag in _UNSUPPORTED:
        if getattr(view, field, value) != value:
            return f"DDTREE does not work with {flag}: leave it out."
    if view.disaggregation_mode != "null":
        return "DDTREE does not work with prefill-decode disaggregation: leave --disaggregation-mode out."
    return ""


def ring_refusal(server_args: Any) -> str:
    """Why the draft pool cannot be a ring with these settled arguments, or an empty text."""
    flag = "--speculative-ddtree-draft-pool ring"
    if not server_args.speculative_draft_window_size:
        return f"{flag} needs --speculative-draft-window-size: it is what a request's ring has room for."
    if server_args.enable_hierarchical_cache:
        return f"{flag} does not work with --enable-hierarchical-cache, which copies draft KV by token: use one of them."
    if getattr(server_args, "enable_streaming_session", False):
        return (
            f"{flag} does not work with --enable-streaming-session, whose turns take all of the one before from the cache, the "
            "window's tokens too: use one of them."
        )
    return ""


_UNSUPPORTED: tuple[tuple[str, object, str], ...] = (
    ("enable_deterministic_inference", False, "--enable-deterministic-inference (its attention kernel reads masks differently)"),
    ("speculative_use_rejection_sampling", False, "--speculative-use-rejection-sampling (its drafts are not sampled)"),
    ("enable_multi_layer_eagle", False, "--enable-multi-layer-eagle"),
    ("speculative_adaptive", False, "--speculative-adaptive (set the budget with --speculative-ddtree-budget)"),
    ("speculative_accept_threshold_single", 1.0, "--speculative-accept-threshold-single (it changes the target's answers)"),
    ("speculative_accept_threshold_acc", 1.0, "--speculative-accept-threshold-acc (it changes the target's answers)"),
    ("enable_strict_thinking", False, "--enable-strict-thinking (it is a grammar, which no tree's nodes are held to)"),
    ("enable_dp_attention", False, "--enable-dp-attention"),
    ("enable_two_batch_overlap", False, "--enable-two-batch-overlap"),
    ("enable_pdmux", False, "--enable-pdmux"),
    ("kv_canary", "none", "--kv-canary (it does not know that the KV of accepted tokens is moved)"),
    ("enable_unified_memory", False, "--enable-unified-memory"),
    ("enable_page_major_kv_layout", False, "--enable-page-major-kv-layout"),
    ("attn_cp_size", 1, "--attn-cp-size"),
    ("dcp_size", 1, "--dcp-size (no tree masks there)"),
    ("pp_size", 1, "--pp-size"),
)
"""Fields, the value that they must have, and what to say of the flag."""


def _undo_widening(server_args: Any, options: Options) -> None:
    """Arguments that were settled before (a copy that resolves itself again) carry the width; give the block back its place."""
    block, width = server_args.speculative_dflash_block_size, server_args.speculative_num_draft_tokens
    if block is not None and width is not None and block != width and options.resolve(int(block)).max_width == int(width):
        server_args.speculative_num_draft_tokens = int(block)
