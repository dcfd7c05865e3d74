"""The parts that only need SGLang's HTTP API, run against the embedded engine with a tiny random target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine_launch.embedded.api import Algorithm
from tests.engine.models import tiny_drafter, tiny_engine, tiny_settings, tiny_target
from tests.engine.serving import serving
from tests.gpu.__main__ import run_part, run_parts
from tests.gpu.client import Answer, Client, ServerError, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts import PARTS, mixed
from tests.gpu.parts.equality import differing
from tests.gpu.parts.window import pools
from tests.gpu.prompts import random_prompts
from tests.gpu.records import PartResult, Verdict
from tests.gpu.servers import Server

VOCABULARY = 128
CAPTURED = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    store = tmp_path_factory.mktemp("store")
    short = [list(prompt) for prompt in random_prompts(24, VOCABULARY, seed=1)]
    long = [list(prompt) for prompt in random_prompts(4, VOCABULARY, seed=2, shortest=100, longest=120)]
    (store / "prompts.json").write_text(json.dumps({"code": short[:12], "chat": short[12:], "long": long}), encoding="utf-8")
    target = tiny_target(torch.float64, vocab=VOCABULARY, context=512)
    engine = tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE), max_running=8)
    with serving(engine) as server:
        names = {name for part in PARTS.values() for name in part.servers}
        yield Context(store, {name: Server(name, Client(server.url), None) for name in names}, scale=0.05)
    engine.close()


@pytest.mark.parametrize("name", ["equality", "smoke", "hot"])
def test_a_part_finds_equal_texts(context: Context, name: str) -> None:
    result = run_part(PARTS[name], context)
    assert [check for check in result.checks if check.verdict not in (Verdict.MET, Verdict.SHOWN)] == []
    assert PartResult.from_json(result.to_json()) == result


def test_temperature_is_told_from_another_temperature(context: Context) -> None:
    result = run_part(PARTS["temperature"], context)
    verdicts = {check.name: check for check in result.checks}
    assert verdicts["tree 0.8 against plain 0.8, frequencies"].verdict is Verdict.MET, result.checks
    assert verdicts["tree greedy against plain 0.8, frequencies"].verdict is Verdict.MET, result.checks


def test_mixed_requests_are_counted_by_what_came_of_them(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "LONGEST", 512)
    result = run_part(PARTS["mixed"], context)
    crash = result.checks[0]
    assert crash.verdict is Verdict.MET, crash
    for kind in ("cancelled", "four answers", "too long, refused", "prefix"):
        assert kind in crash.measured


def test_a_refused_hot_change_is_an_error(context: Context) -> None:
    with pytest.raises(ServerError, match="was refused"):
        context.client("tree32").set_state(no_such_setting=1)


def test_a_part_that_breaks_is_a_result_and_the_next_one_runs(context: Context, tmp_path: Path) -> None:
    def breaks(_: Context) -> Findings:
        raise ServerError(500, "the scheduler is gone")

    parts = [Part("first", "", (), breaks), Part("second", "", (), lambda _: Findings([], {}))]
    assert run_parts(parts, tmp_path, context.store) == 1
    first = PartResult.from_json((tmp_path / "first.json").read_text(encoding="utf-8"))
    assert first.checks[0].verdict is Verdict.BROKEN
    assert "the scheduler is gone" in first.checks[0].measured
    assert (tmp_path / "second.json").is_file()


def test_a_part_that_takes_too_long_is_broken_off(context: Context, tmp_path: Path) -> None:
    import time

    def sleeps(_: Context) -> Findings:
        time.sleep(30)
        return Findings([], {})

    parts = [Part("first", "", (), sleeps), Part("second", "", (), lambda _: Findings([], {}))]
    begun = time.monotonic()
    assert run_parts(parts, tmp_path, context.store, seconds=0.5) == 1
    assert time.monotonic() - begun < 10
    for name in ("first", "second"):
        assert "time" in PartResult.from_json((tmp_path / f"{name}.json").read_text(encoding="utf-8")).checks[0].measured


def answer(*ids: int, verifies: int = 0) -> Answer:
    return Answer(ids, verifies, (), 0, "length", 0.1)


def test_where_texts_part_is_found() -> None:
    assert differing([answer(1, 2, 3), answer(1)], [answer(1, 2, 4), answer(1)]) == [(0, 2)]
    assert differing([answer(1, 2)], [answer(1)]) == [(0, 1)]


def test_commit_length_leaves_out_the_token_of_prefill() -> None:
    assert commit_length([answer(*range(9), verifies=2), answer(*range(5), verifies=2)]) == 3.0
    assert commit_length([answer(1, 2)]) == 0.0


def test_pools_are_read_off_a_recorded_log() -> None:
    log = (
        "[2026-11-29 13:42:46] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 6463229, K size: 9.25 GB, V size: 9.25 GB\n"
        "[2026-11-29 13:42:46] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 6463229, K size: 4.62 GB, V size: 4.62 GB\n"
    )
    assert pools(log) == [(6463229, 18.5), (6463229, 9.24)]
