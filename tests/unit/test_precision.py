"""In which format an engine computes, from its report and the log of its start."""

from __future__ import annotations

import json

import pytest

from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.precision import model_precision
from dflash_console.evidence.server import ServerInfo, parse_server_info
from dflash_console.evidence.start_log import StartLog

EMBEDDED = "[2026-11-29 16:00:02] Load weight end. elapsed=1.62 s, type=LlamaForCausalLM, dtype=torch.{}, avail mem=11.80 GB"
POOL = "[2026-11-29 16:00:03] KV Cache is allocated. dtype: torch.{}, #tokens: 8192, K size: 0.05 GB, V size: 0.05 GB"


def server(**fields: object) -> ServerInfo:
    return parse_server_info(json.dumps({"model_path": "m", **fields}))


def log(*texts: str) -> StartLog:
    return StartLog().add_all(LogLine(text) for text in texts)


@pytest.mark.parametrize(("dtype", "said"), [("float32", "fp32"), ("bfloat16", "bf16"), ("half", "fp16"), ("float", "fp32")])
def test_a_flag_that_names_the_format_counts(dtype: str, said: str) -> None:
    assert model_precision(server(dtype=dtype), None) == said
    assert model_precision(server(dtype=dtype), log(POOL.format("float8_e4m3fn"))) == said


@pytest.mark.parametrize(("dtype", "said"), [("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16")])
@pytest.mark.parametrize("line", [EMBEDDED, POOL])
def test_auto_is_what_the_log_of_the_start_says(line: str, dtype: str, said: str) -> None:
    assert model_precision(server(dtype="auto"), log(line.format(dtype))) == said


def test_a_pool_with_a_format_of_its_own_says_nothing_of_the_model() -> None:
    assert model_precision(server(dtype="auto", kv_cache_dtype="bfloat16"), log(POOL.format("bfloat16"))) == ""


def test_what_nothing_says_is_unknown() -> None:
    assert model_precision(None, None) == ""
    assert model_precision(server(dtype="auto"), log("[2026-11-29 16:00:02] Load weight begin. avail mem=1.00 GB")) == ""
