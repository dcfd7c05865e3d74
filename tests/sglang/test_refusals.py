"""What DDTREE refuses: arguments at the start, requests at admission."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_launch.sglang_plugin.arguments import refusal, ring_refusal
from engine_launch.sglang_plugin.options import Options
from engine_launch.sglang_plugin.scheduler_hooks import request_refusal

LIMITS = Options().resolve(8)
TRITON = ("triton", "triton")


def arguments(**changes: object) -> SimpleNamespace:
    values = {
        "device": "cuda",
        "speculative_draft_model_path": "drafter",
        "page_size": 1,
        "disaggregation_mode": "null",
        "pp_size": 1,
        "dcp_size": 1,
        "kv_cache_dtype": "auto",
        "speculative_draft_attention_backend": None,
    }
    return SimpleNamespace(**{**values, **changes})


def test_arguments_that_fit_are_not_refused() -> None:
    assert refusal(arguments(), TRITON) == ""
    assert refusal(arguments(page_size=None), TRITON) == ""
    assert refusal(arguments(kv_cache_dtype="fp8_e4m3", speculative_draft_attention_backend="fa3"), TRITON) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cpu"}, "--device cuda), not cpu"),
        ({"attn_cp_size": 2}, "--attn-cp-size"),
        ({"speculative_draft_model_path": None}, "--speculative-draft-model-path"),
        ({"page_size": 16}, "--page-size 1, not 16"),
        ({"enable_deterministic_inference": True}, "--enable-deterministic-inference"),
        ({"speculative_use_rejection_sampling": True}, "--speculative-use-rejection-sampling"),
        ({"speculative_accept_threshold_acc": 0.9}, "--speculative-accept-threshold-acc"),
        ({"kv_canary": "log"}, "--kv-canary"),
        ({"enable_strict_thinking": True}, "--enable-strict-thinking"),
        ({"enable_dp_attention": True}, "--enable-dp-attention"),
        ({"pp_size": 2}, "--pp-size"),
        ({"enable_multi_layer_eagle": True}, "--enable-multi-layer-eagle"),
        ({"kv_cache_dtype": "nvfp4"}, "--kv-cache-dtype nvfp4: its scales"),
        ({"kv_cache_dtype": "fp4_mx_block16"}, "--kv-cache-dtype fp4_mx_block16"),
        ({"kv_cache_dtype": "mxfp8"}, "--kv-cache-dtype mxfp8"),
        ({"speculative_draft_attention_backend": "trtllm_mha"}, "give triton or flashinfer"),
        ({"disaggregation_mode": "decode"}, "--disaggregation-mode"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_what_to_change(changes: dict[str, object], words: str) -> None:
    assert words in refusal(arguments(**changes), TRITON)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"speculative_draft_window_size": None}, "needs --speculative-draft-window-size"),
        ({"enable_hierarchical_cache": True}, "--enable-hierarchical-cache"),
        ({"enable_streaming_session": True}, "--enable-streaming-session"),
    ],
)
def test_a_ring_needs_a_window_and_a_cache_that_leaves_draft_kv_alone(changes: dict[str, object], words: str) -> None:
    settled = {"speculative_draft_window_size": 512, "enable_hierarchical_cache": False, "enable_streaming_session": False}
    found = ring_refusal(SimpleNamespace(**{**settled, **changes}))
    assert words in found
    assert bool(found) == bool(words)


def test_an_attention_backend_without_tree_masks_is_named() -> None:
    assert "--attention-backend triton (it is fa3)" in refusal(arguments(), ("fa3", "fa3"))
    assert "(it is fa3/triton)" in refusal(arguments(), ("fa3", "triton"))


OF_A_REQUEST = ("return_logprob", "return_hidden_states", "return_routed_experts", "return_indexer_topk")


def request(**params: object) -> SimpleNamespace:
    neutral: dict[str, object] = {
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_new_tokens": 0,
        "json_schema": None,
        "regex": None,
        "ebnf": None,
        "structural_tag": None,
        "sampling_seed": None,
        "custom_params": None,
        "max_new_tokens": 128,
        "top_k": 1 << 30,
        "logit_bias": None,
    }
    own = {name: params.pop(name, False) for name in OF_A_REQUEST}
    return SimpleNamespace(**own, sampling_params=SimpleNamespace(**{**neutral, **params}))


def test_an_ordinary_request_is_admitted() -> None:
    assert request_refusal(request(), LIMITS) is None
    assert request_refusal(request(custom_params={"ddtree_budget": 4, "thinking_budget": 99}), LIMITS) is None
    assert (
        request_refusal(
            request(max_new_tokens=None, top_k=1, stream_interval=4, logit_bias={"5": -100, "6": 0.5, "7": 1e30}), LIMITS
        )
        is None
    )


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"return_logprob": True}, "return_logprob"),
        ({"return_hidden_states": "last"}, "return_hidden_states"),
        ({"return_routed_experts": True}, "return_routed_experts"),
        ({"return_indexer_topk": True}, "return_indexer_topk"),
        ({"frequency_penalty": 0.5}, "frequency_penalty (it is 0.5)"),
        ({"presence_penalty": -1.0}, "presence_penalty"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"repetition_penalty": 1.1}, "--sampling-defaults openai"),
        ({"min_new_tokens": 4}, "min_new_tokens"),
        ({"regex": "a+"}, "grammars"),
        ({"sampling_seed": 3}, "sampling_seed"),
        ({"custom_params": {"ddtree_budget": 999}}, "the tree budget is 999"),
        ({"custom_params": "budget 4"}, "custom_params is an object, not str"),
        ({"max_new_tokens": 5.5}, "max_new_tokens is a whole number, not 5.5"),
        ({"top_k": 1 << 40}, "top_k is -1 or at most 2147483647"),
        ({"top_k": "5"}, "top_k is -1 or at most 2147483647, not '5'"),
        ({"stream_interval": "x"}, "stream_interval is a whole number, not 'x'"),
        ({"logit_bias": {"5": 10**31}}, "of at most 1e+30 in size; 10000000000000000000000000000000 is none"),
        ({"logit_bias": {"5": -1e39}}, "-1e+39 is none"),
        ({"logit_bias": {"5": 0.5, "6": float("inf")}}, "inf is none"),
        ({"logit_bias": {"5": float("nan")}}, "nan is none"),
        ({"logit_bias": [5]}, "logit_bias is an object of numbers by token, not list"),
        ({"logit_bias": {"5": None}}, "None is no number"),
    ],
)
def test_what_would_be_wrong_at_a_node_is_refused_at_admission(params: dict[str, object], words: str) -> None:
    found = request_refusal(request(**params), LIMITS)
    assert found is not None
    assert words in found
