"""SGLang's own ``/generate``: its body read, its answers written (shapes as recorded from 0.5.17).

``text`` and ``output_ids`` of a stream are cumulative; the ``spec_*`` figures and the end times come with the last event.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from engine_launch.embedded.api import FinishReason, GenerateRequest, RequestStats, RoundRecord
from engine_launch.embedded.server_answers import Answer, Step
from engine_launch.embedded.server_params import BadRequest, Fields, Sampling, native_sampling, token_ids
from engine_launch.embedded.tokenizer import Tokenizer

_BODY_NEUTRAL: dict[str, tuple[object, ...]] = {
    "return_logprob": (False,),
    "top_logprobs_num": (0,),
    "token_ids_logprob": (),
    "return_hidden_states": (False,),
    "lora_path": (),
    "image_data": (),
    "audio_data": (),
    "video_data": (),
    "input_embeds": (),
    "session_params": (),
    "custom_logit_processor": (),
}
_BODY_HARMLESS = ("model", "logprob_start_len", "return_text_in_logprobs", "log_metrics", "priority", "stream_options")


@dataclass(frozen=True)
class NativeCall:
    """A ``/generate`` call, checked."""

    requests: tuple[GenerateRequest, ...]
    stream: bool
    single: bool
    """One prompt, one copy: the answer is an object, else a list of them."""


def parse_generate(body: Fields, tokenizer: Tokenizer) -> NativeCall:
    """Read the body of ``/generate``.

    Raises:
        BadRequest: no prompt, two prompts, or something that would have to be ignored.
    """
    body.only(("text", "input_ids", "sampling_params", "stream", "rid"), _BODY_NEUTRAL, _BODY_HARMLESS)
    prompts, listed = _prompts(body, tokenizer)
    samplings = _samplings(body.raw("sampling_params"), len(prompts))
    rids = _rids(body.raw("rid"), sum(sampling.copies for sampling in samplings))
    requests = tuple(
        GenerateRequest(
            rid=rids.pop(0),
            input_ids=prompt,
            sampling=sampling.copy_params(copy),
            overrides=sampling.overrides,
            record_rounds=sampling.record_rounds,
        )
        for prompt, sampling in zip(prompts, samplings, strict=True)
        for copy in range(sampling.copies)
    )
    return NativeCall(requests, body.flag("stream"), single=not listed and len(requests) == 1)


def _prompts(body: Fields, tokenizer: Tokenizer) -> tuple[list[tuple[int, ...]], bool]:
    text, ids = body.raw("text"), body.raw("input_ids")
    if (text is None) == (ids is None):
        raise BadRequest("Give the prompt either as text or as input_ids.", "text")
    if ids is not None:
        listed = isinstance(ids, list) and bool(ids) and isinstance(ids[0], list)
        given = ids if listed and isinstance(ids, list) else [ids]
        prompts = [token_ids(one, "input_ids") for one in given]
    else:
        listed = isinstance(text, list)
        prompts = [tokenizer.encode(one) for one in body.texts("text")]
    if not prompts or not all(prompts):
        raise BadRequest("The prompt is empty.", "text" if ids is None else "input_ids")
    return prompts, listed


def _samplings(value: object, prompts: int) -> list[Sampling]:
    if not isinstance(value, list):
        return [native_sampling(value)] * prompts
    if len(value) != prompts:
        raise BadRequest(f"sampling_params has {len(value)} entries for {prompts} prompts.", "sampling_params")
    return [native_sampling(one) for one in value]


def _rids(value: object, count: int) -> list[str]:
    if value is None:
        return [uuid.uuid4().hex for _ in range(count)]
    given = value if isinstance(value, list) else [value]
    if not all(isinstance(rid, str) and rid for rid in given):
        raise BadRequest("rid must be text, or a list of texts.", "rid")
    rids = [str(rid) for rid in given]
    if isinstance(value, str) and count > 1:
        return [f"{rids[0]}_{index}" for index in range(count)]
    if len(rids) != count or len(set(rids)) != count:
        raise BadRequest(f"rid needs {count} different entries for {count} answers.", "rid")
    return rids


def finish_json(finish: FinishReason | None, stats: RequestStats) -> dict[str, object] | None:
    """``finish_reason`` of ``meta_info``."""
    if finish is None:
        return None
    if finish.type == "length":
        return {"type": "length", "length": stats.completion_tokens}
    if finish.type == "stop":
        return {"type": "stop", "matched": finish.matched}
    # SGLang's two further keys are null unless it ended the request by an error of its own.
    return {"type": "abort", "message": finish.message, "status_code": None, "err_type": None}


def meta_info(answer: Answer, step: Step, *, sent: bool) -> dict[str, object]:
    """``meta_info`` of one event, with its keys in SGLang's order.

    Args:
        sent: put in when the answer's first event left (SGLang does so in the first and the last event of a stream).
    """
    stats = step.stats
    forward = answer.received + stats.queue_time
    info: dict[str, object] = {
        "id": answer.request.rid,
        "finish_reason": finish_json(step.finish, stats),
        "prompt_tokens": stats.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "forward_entry_time": forward,
        "prefill_finished_time": forward + stats.prefill_seconds,
        "queue_time": stats.queue_time,
        "reasoning_tokens": 0,
        "completion_tokens": stats.completion_tokens,
        "cached_tokens": stats.cached_tokens,
        "cached_tokens_details": {"device": stats.cached_tokens, "host": 0} if stats.cached_tokens else None,
        "dp_rank": None,
    }
    if step.finish is not None:
        info["e2e_latency"] = answer.finished - answer.received
        info.update(spec_figures(stats))
        info["request_received_ts"] = answer.received
        info["api_server_dispatch_finish_ts"] = answer.dispatched
        info["request_finished_ts"] = answer.finished
        if stats.decode_seconds > 0 and stats.completion_tokens > 1:
            info["decode_throughput"] = (stats.completion_tokens - 1) / stats.decode_seconds
    if sent:
        answer.sent = answer.sent or time.time()
        info["response_sent_to_client_ts"] = answer.sent
    if step.round is not None:
        info["ddtree_round"] = round_json(step.round)
    return info


def spec_figures(stats: RequestStats) -> dict[str, object]:
    """The ``spec_*`` fields of a finished request; none of them for one that was never verified."""
    if not stats.spec_verify_ct:
        return {}
    proposed = stats.spec_num_proposed_drafts
    histogram = list(stats.spec_correct_drafts_histogram)
    return {
        "spec_accept_rate": stats.spec_num_correct_drafts / proposed if proposed else 0.0,
        "spec_accept_length": stats.completion_tokens / stats.spec_verify_ct,
        "spec_num_correct_drafts": stats.spec_num_correct_drafts,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": stats.spec_verify_ct,
        "spec_accepted_drafts": stats.spec_num_correct_drafts,
        "spec_proposed_drafts": proposed,
        "spec_correct_drafts_histogram": histogram,
        "spec_accept_histogram": histogram,
    }


def generate_json(answer: Answer, step: Step, *, index: int | None, sent: bool) -> dict[str, object]:
    """One answer of ``/generate``, or one event of its stream (then with the ``index`` of its answer, if there are several)."""
    body: dict[str, object] = {
        "text": answer.text,
        "output_ids": list(answer.output_ids),
        "meta_info": meta_info(answer, step, sent=sent),
    }
    if index is not None:
        body["index"] = index
    return body


def round_json(record: RoundRecord) -> dict[str, object]:
    """A draft-and-verify round as JSON; ``tokens[i]`` is node ``i + 1``, the root is node 0."""
    return {**{field.name: getattr(record, field.name) for field in fields(record)}, "seconds": dict(record.seconds)}


def rounds_json(records: Sequence[RoundRecord], tokenizer: Tokenizer) -> list[Mapping[str, object]]:
    """Rounds with the texts of their tokens, for a view of the tree."""
    return [
        {
            **round_json(record),
            "token_texts": [tokenizer.token_text(token) for token in record.tokens],
            "root_text": tokenizer.token_text(record.root),
            "bonus_text": tokenizer.token_text(record.bonus),
        }
        for record in records
    ]
