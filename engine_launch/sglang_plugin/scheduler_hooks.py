"""What DDTREE changes in a scheduler process, put in place when its worker is made and never without it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engine_launch.sglang_plugin import settings, weights
from engine_launch.sglang_plugin.plants import PLANT_MOVE, PLANT_NONE

_logger = logging.getLogger(__name__)
_PLANT = "ddtree_plant"
"""Hot key of the planted errors; known only with ``DDTREE_TEST_HOOKS=1``."""
_BY_SLOT = ("return_hidden_states", "return_routed_experts", "return_indexer_topk")
"""Of a request: what SGLang keeps by row of a pass or by KV slot, while an accepted path's rows lie anywhere in the tree."""
_INT32 = 1 << 31
_LARGEST_BIAS = 1e30
"""Divided by the lowest temperature it is still an fp32 number; SGLang bounds logits by the same."""
_CHAINS_ONLY = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
"""SGLang takes these while it runs and would answer true; no tree asks for them, as the start says."""
_installed = False


def install() -> None:
    """Replace the functions below, once per process."""
    global _installed
    if _installed:
        return
    _installed = True
    from sglang.srt.managers import io_struct
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
    from sglang.srt.mem_cache import allocation_sizing
    from sglang.srt.model_executor.pool_configurator import DefaultPoolConfigurator
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.speculative import dflash_utils, spec_utils

    _replace(dflash_utils, "validate_dflash_request", _validate_request)
    _replace(spec_utils, "spec_need_hidden_states", lambda original, *args, **kwargs: False)
    _replace(allocation_sizing, "get_req_to_token_extra_context_len", _row_headroom)
    _replace(dflash_utils, "scale_kv_cell_size_per_token_for_dflash", _token_bytes)
    _replace(DefaultPoolConfigurator, "calculate_pool_sizes", _pool_sizes)
    _replace(DecodeCudaGraphRunner, "get_spec_info", _graph_input)
    _replace(Req, "update_finish_state", _finish)
    _replace(Scheduler, "set_internal_state", _set_state)
    _replace(Scheduler, "get_internal_state", _get_state)
    _replace(Scheduler, "init_metrics_reporter", _start_metrics)
    _replace(Scheduler, "init_req_max_new_tokens", _leave_room)
    for name, answer in weights.UPDATES.items():
        _replace(SchedulerWeightUpdaterManager, name, partial(weights.update, getattr(io_struct, answer)))
    _replace(SchedulerWeightUpdaterManager, "check_weights", partial(weights.check, io_struct.CheckWeightsReqOutput))


def _replace(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Put ``around(original, …)`` in the place of ``owner.name``, also where another module has imported it by name."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    wrapped.__name__ = name
    setattr(owner, name, wrapped)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("sglang.") and vars(module).get(name) is original:
            setattr(module, name, wrapped)


def _graph_input(original: Callable[..., Any], runner: Any, num_tokens: int) -> Any:
    """At capture: let the target's graphs read a tree mask, which DFLASH's need not."""
    verify_input = original(runner, num_tokens)
    if not runner.model_runner.is_draft_worker:
        # One cell stands for the whole buffer: it tells the backend that there is a mask, and is copied onto itself.
        verify_input.custom_mask = runner.attn_backend.verify_mask.buffer[:1]
    return verify_input


def _row_headroom(original: Callable[..., int], server_args: Any) -> int:
    """A request near the context's end reserves two passes beyond it; SGLang leaves room for one, which a wide tree outgrows."""
    return max(original(server_args), 4 + 2 * int(server_args.max_speculative_num_draft_tokens or 0))


def _leave_room(original: Callable[..., None], scheduler: Any, req: Any) -> None:
    """Let an answer that fills the KV pool end in time, by its length. SGLang leaves one slot, while a round reserves two passes:
    a request that runs alone would be ended as out of memory, and its text be lost."""
    original(scheduler, req)
    params = req.sampling_params
    reserve = 2 * int(scheduler.server_args.speculative_num_draft_tokens)
    room = scheduler.max_total_num_tokens - len(req.origin_input_ids) - reserve - 1
    params.max_new_tokens = max(0, min(params.max_new_tokens, room))
    params.min_new_tokens = min(params.min_new_tokens, params.max_new_tokens)


def _token_bytes(original: Callable[..., int], **sizes: Any) -> int:
    """Bytes of one token in both pools. SGLang takes a layer of the drafter to be as large as one of the target, which it is not
    beside latent attention; it is told the drafter's own size. With the ring a token needs no room in the drafter's pool."""
    from engine_launch.sglang_plugin.worker import running_worker

    worker = running_worker()
    if worker is None:
        return original(**sizes)
    if worker.ring_plan is not None:
        return int(worker.ring_plan.token_bytes(sizes["target_cell_size_per_token"], sizes["target_num_layers"]))
    return original(**sizes, draft_cell_size_per_token=worker.draft_shape.row_bytes)


def _pool_sizes(original: Callable[..., Any], configurator: Any, available_bytes: int, page_size: int) -> Any:
    """The target's pool from what the ring leaves."""
    from engine_launch.sglang_plugin.worker import running_worker

    worker = running_worker()
    if worker is not None and worker.ring_plan is not None:
        available_bytes = worker.ring_plan.left_for_target(available_bytes)
    return original(configurator, available_bytes, page_size)


def _lengthen_tail(scheduler: Any) -> None:
    """Let a prefix-cache hit leave as much of a prompt as the drafter's ring needs; a cache may need a tail for itself."""
    cache, worker = scheduler.tree_cache, scheduler.draft_worker
    own = cache.swa_reprefill_tail_tokens
    cache.swa_reprefill_tail_tokens = lambda: worker.prefix_tail(own())


def _finish(original: Callable[..., None], req: Any, new_accepted_len: int = 1) -> None:
    """Let an answer end where plain decoding would end it, when one commit holds several ends.

    SGLang looks at a whole commit for one kind of end after the other: ``max_new_tokens``, then the stop strings in the order of
    the request, then tokens. A later one of two ends could win, and what lies between them would be given out. So the tokens of
    a commit are looked at one by one where it matters: at the last token allowed, and where a stop string has been found. A
    regular expression may match a beginning of the commit and not the whole, so it is always tried on each.
    """
    params = req.sampling_params
    ends = len(req.output_ids) >= params.max_new_tokens
    strings = params.stop_strs or params.stop_regex_strs
    if new_accepted_len <= 1 or req.finished() or req.to_finish or not (ends or strings):
        original(req, new_accepted_len)
        return
    if not ends and not params.stop_regex_strs:
        original(req, new_accepted_len)
        if not req.finished() or getattr(req.finished_reason, "matched", None) not in params.stop_strs:
            return
        req.finished_reason = req.finished_len = None
    committed = req.output_ids[-new_accepted_len:]
    del req.output_ids[-new_accepted_len:]
    for place, token in enumerate(committed):
        req.output_ids.append(token)
        original(req, 1)
        if req.finished():
            req.output_ids.extend(committed[place + 1 :])
            return


def request_refusal(req: Any, limits: Any) -> str | None:
    """Why DDTREE cannot serve a request, in words for a 400, or ``None``."""
    params = req.sampling_params
    odd = _odd_value(params)
    if odd:
        return odd
    if req.return_logprob:
        return "DDTREE speculative decoding does not support return_logprob."
    for name in _BY_SLOT:
        if getattr(req, name, False):
            return f"DDTREE speculative decoding does not support {name}."
    penalties = (
        ("frequency_penalty", params.frequency_penalty, 0.0),
        ("presence_penalty", params.presence_penalty, 0.0),
        ("repetition_penalty", params.repetition_penalty, 1.0),
        ("min_new_tokens", params.min_new_tokens, 0),
    )
    for name, value, neutral in penalties:
        if value != neutral:
            return (
                f"DDTREE speculative decoding does not support {name} (it is {value}): it depends on the path through the tree. "
                "Leave it out; if the request has none, it comes from --preferred-sampling-params, or from the model's "
                "generation_config.json: then start the server with --sampling-defaults openai."
            )
    if any((params.json_schema, params.regex, params.ebnf, params.structural_tag)) or getattr(req, "grammar", None):
        return "DDTREE speculative decoding does not support grammars (json_schema, regex, ebnf, structural_tag)."
    if getattr(req, "custom_logit_processor", None):
        return "DDTREE speculative decoding does not support custom_logit_processor."
    if params.sampling_seed is not None:
        return "DDTREE speculative decoding does not support sampling_seed."
    return settings.request_refusal(params.custom_params, limits) or None


def _odd_value(params: Any) -> str:
    """What of a request's parameters would end SGLang's scheduler, which takes any JSON for them; or an empty text."""
    tokens, top_k, bias = params.max_new_tokens, params.top_k, params.logit_bias
    interval = getattr(params, "stream_interval", None)
    if tokens is not None and not isinstance(tokens, int):
        return f"max_new_tokens is a whole number, not {tokens!r}."
    if not isinstance(top_k, (int, float)) or not -_INT32 <= top_k < _INT32:
        return f"top_k is -1 or at most {_INT32 - 1}, not {top_k!r}."
    if interval is not None and not isinstance(interval, int):
        return f"stream_interval is a whole number, not {interval!r}."
    if bias is not None:
        if not isinstance(bias, Mapping):
            return f"logit_bias is an object of numbers by token, not {type(bias).__name__}."
        wrong = [value for value in bias.values() if not isinstance(value, (int, float))]
        if wrong:
            return f"logit_bias is an object of numbers by token; {wrong[0]!r} is no number."
        # Written so that NaN, which is neither more nor less, is refused too.
        large = [value for value in bias.values() if not abs(value) <= _LARGEST_BIAS]
        if large:
            return f"logit_bias is an object of numbers by token, of at most {_LARGEST_BIAS:.0e} in size; {large[0]} is none."
    return ""


def _make_harmless(req: Any) -> None:
    """A refused request is in one batch all the same, where SGLang ends it: what cannot be given must not be asked for there."""
    fresh = type(req.sampling_params)(max_new_tokens=1)
    fresh.normalize(None)
    req.sampling_params = fresh
    req.custom_logit_processor = None
    for name in _BY_SLOT:
        setattr(req, name, False)


def _validate_request(original: Callable[..., str | None], req: Any, enable_overlap: bool) -> str | None:
    from engine_launch.sglang_plugin.worker import running_worker

    worker = running_worker()
    if worker is None:
        return original(req, enable_overlap)
    problem = worker.held or request_refusal(req, worker.limits) or original(req, enable_overlap)
    if problem is None:
        return None
    _make_harmless(req)
    return str(problem).replace("DFLASH", "DDTREE")


def _start_metrics(original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """Add our series to a scheduler that writes SGLang's (``--enable-metrics``, the rank that reports).

    SGLang calls this once its prefix cache is there and before it takes requests, so the ring's tail is set here too.
    """
    original(scheduler, *args, **kwargs)
    if scheduler.draft_worker.ring_plan is not None:
        _lengthen_tail(scheduler)
    context = scheduler.metrics_collector_context
    if context.current_scheduler_metrics_enabled and context.collector is not None:
        from engine_launch.sglang_plugin.metrics import TreeMetrics

        scheduler.draft_worker.start_metrics(TreeMetrics(context.collector.labels))


def _set_state(original: Callable[..., Any], scheduler: Any, request: Any) -> Any:
    """``/set_internal_state``: our keys go to the worker, all of them or none; the others to SGLang."""
    import msgspec
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    worker = scheduler.draft_worker
    hooks = os.environ.get("DDTREE_TEST_HOOKS") == "1"
    ours = {key: value for key, value in request.server_args.items() if key in settings.FIELDS or (hooks and key == _PLANT)}
    for name in _CHAINS_ONLY:
        if name in request.server_args:
            _logger.warning("Hot change refused. %s has no effect on DDTREE (from /set_internal_state).", name)
            return SetInternalStateReqOutput(updated=False)
    if not ours:
        return original(scheduler, request)
    rest = {key: value for key, value in request.server_args.items() if key not in ours}
    before, plant = worker.current, worker.plant
    reported = before.as_reported()
    for name, value in ours.items():
        try:
            if name == _PLANT:
                worker.plant = max(PLANT_NONE, min(PLANT_MOVE, int(value)))
            else:
                worker.change_setting(name, value)
        except (ValueError, OverflowError) as error:
            _logger.warning(
                "Hot change refused. %s: %s -> %g (from /set_internal_state): %s", name, reported.get(name, plant), value, error
            )
            worker.restore_settings(before)
            worker.plant = plant
            return SetInternalStateReqOutput(updated=False)
    if rest:
        answer = original(scheduler, msgspec.structs.replace(request, server_args=rest))
        if not answer.updated:
            worker.restore_settings(before)
            worker.plant = plant
            return answer
    else:
        # As SGLang does after any change: the mean commit length begins anew.
        reporter = scheduler.metrics_reporter
        reporter.spec_total_num_accept_tokens = reporter.spec_total_num_forward_ct = 0
    for name, value in ours.items():
        _logger.info("Hot change applied. %s: %s -> %g (from /set_internal_state)", name, reported.get(name, plant), value)
    return SetInternalStateReqOutput(updated=True)


def _get_state(original: Callable[..., Any], scheduler: Any, request: Any) -> Any:
    """``/server_info`` → ``internal_states``: what is in effect now."""
    answer = original(scheduler, request)
    worker = scheduler.draft_worker
    answer.internal_state.update(worker.current.as_reported())
    answer.internal_state["ddtree"] = worker.report()
    if worker.stages.measures:
        answer.internal_state["ddtree_round_ms"] = worker.stages.means()
    return answer
