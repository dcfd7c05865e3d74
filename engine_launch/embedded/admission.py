"""What an engine can take: its bounds, and the check that every request passes before it is queued."""

from __future__ import annotations

from dataclasses import dataclass

from engine_launch.embedded.api import EngineError, GenerateRequest, Settings
from engine_launch.embedded.hot_settings import check_overrides


@dataclass(frozen=True)
class EngineLimits:
    """Bounds of one engine, in tokens unless said otherwise."""

    context_length: int
    max_running_requests: int
    max_total_num_tokens: int
    """Target KV tokens that all running requests may reserve together."""
    chunked_prefill_size: int
    decode_log_interval: int
    """Rounds between decode lines."""
    random_seed: int = 0
    prefix_cache_bytes: int = 0
    """Keys and values kept for requests with the same beginning; 0 keeps none."""


def check_request(request: GenerateRequest, limits: EngineLimits, settings: Settings, vocab: int, has_tokenizer: bool) -> None:
    """Refuse what can never run.

    Raises:
        EngineError: with one sentence about the first thing that is wrong.
    """
    prompt, answer = len(request.input_ids), request.sampling.max_new_tokens
    if prompt == 0:
        raise EngineError("the prompt is empty; at least one token is needed")
    if answer < 1:
        raise EngineError(f"max_new_tokens is {answer}; at least 1 is needed")
    if prompt + answer > limits.context_length:
        raise EngineError(
            f"the prompt has {prompt} tokens and the answer may have {answer}, together more than the context length "
            f"of {limits.context_length}; shorten one of them"
        )
    if prompt + answer > limits.max_total_num_tokens:
        raise EngineError(f"the request needs {prompt + answer} KV tokens; the pool has {limits.max_total_num_tokens}")
    if not all(0 <= token < vocab for token in request.input_ids):
        raise EngineError(f"the prompt holds a token id outside of the vocabulary (0 to {vocab - 1})")
    if request.sampling.stop and not has_tokenizer:
        raise EngineError("stop strings need a tokenizer; this engine has none")
    check_overrides(request.overrides, settings)
