"""The parts that only need SGLang's HTTP API, run against the embedded engine with a tiny random target."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine_launch.embedded.api import Algorithm
from tests.engine.models import tiny_drafter, tiny_engine, tiny_settings, tiny_target
from tests.engine.serving import serving
from tests.gpu import __main__ as runner
from tests.gpu.__main__ import run_part, run_parts
from tests.gpu.client import Answer, Client, ServerError, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.models import TARGETS
from tests.gpu.oracle import make_table
from tests.gpu.parts import PARTS, memory, mixed, parallel, random_targets, suites
from tests.gpu.parts.equality import differing
from tests.gpu.parts.starting import series
from tests.gpu.parts.window import pools
from tests.gpu.prompts import random_prompts
from tests.gpu.records import PartResult, Verdict
from tests.gpu.servers import Server
from tests.gpu.setups import SPREAD
from tests.gpu.turns import Turns

VOCABULARY = 128
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
"""The parts of these tests start no threads of their own."""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    store = tmp_path_factory.mktemp("store")
    short = [list(prompt) for prompt in random_prompts(24, VOCABULARY, seed=1)]
    long = [list(prompt) for prompt in random_prompts(4, VOCABULARY, seed=2, shortest=100, longest=120)]
    (store / "prompts.json").write_text(json.dumps({"code": short[:12], "chat": short[12:], "long": long}), encoding="utf-8")
    target = tiny_target(torch.float64, vocab=VOCABULARY, context=512)
    engine = tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE), max_running=8)
    with serving(engine) as server:
        names = {name for part in PARTS.values() for name in (*part.servers, *part.optional)} | SPREAD.keys()
        yield Context(store, {name: Server(name, Client(server.url), None) for name in names}, scale=0.05)
    engine.close()


@pytest.mark.parametrize("name", ["equality", "equality-single", "smoke", "hot"])
def test_a_part_finds_equal_texts(context: Context, name: str) -> None:
    result = run_part(PARTS[name], context)
    assert [check for check in result.checks if check.verdict not in (Verdict.MET, Verdict.SHOWN)] == []
    assert PartResult.from_json(result.to_json()) == result


def test_temperature_is_told_from_another_temperature(context: Context) -> None:
    # Of equal distributions one comparison in a hundred is rejected at 1 %; twice in a row is no chance.
    for _ in range(2):
        result = run_part(PARTS["temperature"], context)
        verdicts = {check.name: check for check in result.checks}
        assert verdicts["tree greedy against plain 0.8, frequencies"].verdict is Verdict.MET, result.checks
        if verdicts["tree 0.8 against plain 0.8, frequencies"].verdict is Verdict.MET:
            return
    pytest.fail(f"rejected twice: {result.checks}")


def test_mixed_requests_are_counted_by_what_came_of_them(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "LONGEST", 512)
    result = run_part(PARTS["mixed"], context)
    crash = result.checks[0]
    assert crash.verdict is Verdict.MET, crash
    for kind in ("cancelled", "four answers", "too long, refused", "prefix"):
        assert kind in crash.measured


@pytest.mark.parametrize("given_away", [True, False])
def test_memory_that_stays_in_use_is_missed(context: Context, monkeypatch: pytest.MonkeyPatch, given_away: bool) -> None:
    """The embedded engine has no memory of a GPU to give away: its two answers to that are made up here."""
    used = iter((5 * 2**30, (3 if given_away else 5) * 2**30, 5 * 2**30))

    def command(_: Client, path: str, body: object) -> str:
        if path == "/release_memory_occupation" and body == {"tags": ["weights"]}:
            raise ServerError(400, "DDTREE cannot release the memory of weights")
        return "Cache flushed."

    monkeypatch.setattr(Client, "command", command)
    monkeypatch.setattr(memory, "used_bytes", lambda _: next(used))
    checks = {check.name: check.verdict for check in run_part(PARTS["memory"], context).checks}
    missed = [name for name, verdict in checks.items() if verdict is not Verdict.MET]
    assert len(checks) == 7
    assert missed == ([] if given_away else ["memory of the KV cache given away and taken back"])


def test_a_refused_hot_change_is_an_error(context: Context) -> None:
    with pytest.raises(ServerError, match="was refused"):
        context.client("tree32").set_state(no_such_setting=1)


@FORKS
def test_a_part_that_breaks_is_a_result_and_the_next_one_runs(tmp_path: Path) -> None:
    def breaks(_: Context) -> Findings:
        raise ServerError(500, "the scheduler is gone")

    parts = [Part("first", "", (), breaks), Part("second", "", (), lambda _: Findings([], {}))]
    assert run_parts(parts, tmp_path, tmp_path) == 1
    first = PartResult.from_json((tmp_path / "first.json").read_text(encoding="utf-8"))
    assert first.checks[0].verdict is Verdict.BROKEN
    assert "the scheduler is gone" in first.checks[0].measured
    assert (tmp_path / "second.json").is_file()


def said(tmp_path: Path, part: str) -> str:
    return PartResult.from_json((tmp_path / f"{part}.json").read_text(encoding="utf-8")).checks[0].measured


def sleeps(_: Context) -> Findings:
    time.sleep(30)
    return Findings([], {})


@FORKS
def test_a_run_that_takes_too_long_is_broken_off(tmp_path: Path) -> None:
    parts = [Part("first", "", (), sleeps), Part("second", "", (), lambda _: Findings([], {}))]
    begun = time.monotonic()
    assert run_parts(parts, tmp_path, tmp_path, seconds=0.5) == 1
    assert time.monotonic() - begun < 10
    assert "time" in said(tmp_path, "first")
    assert "no time left" in said(tmp_path, "second")


@FORKS
def test_a_part_that_hangs_does_not_hold_up_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(_: Context) -> Findings:
        # As a pool does whose threads wait for a server that is silent.
        while True:
            with contextlib.suppress(Exception):
                time.sleep(30)

    monkeypatch.setattr(runner, "ENDING_SECONDS", 0.3)
    parts = [Part("first", "", (), hangs), Part("second", "", (), lambda _: Findings([], {}))]
    begun = time.monotonic()
    assert run_parts(parts, tmp_path, tmp_path, part_seconds=0.5) == 1
    assert time.monotonic() - begun < 10
    assert said(tmp_path, "first") == "out of time after 0 s"
    assert PartResult.from_json((tmp_path / "second.json").read_text(encoding="utf-8")).checks == ()


@FORKS
def test_a_part_that_kills_its_process_is_told(tmp_path: Path) -> None:
    def dies(_: Context) -> Findings:
        os._exit(7)

    assert run_parts([Part("first", "", (), dies)], tmp_path, tmp_path) == 1
    assert said(tmp_path, "first").startswith("its process ended")


def test_who_measures_speed_is_alone(tmp_path: Path) -> None:
    file, soon = tmp_path / "turns", time.monotonic() + 0.3
    with Turns(file) as one, Turns(file) as other:
        assert not one.take(alone=True, until=soon)
        # The one that waited does not hold up the other, which may be alone or not.
        assert other.take(alone=True, until=time.monotonic() + 5)
        assert not one.take(alone=False, until=time.monotonic() + 0.3)
        assert other.take(alone=False, until=time.monotonic() + 5)
        assert one.take(alone=False, until=time.monotonic() + 5)
    with Turns(file) as alone:
        assert alone.take(alone=True, until=time.monotonic() + 5)
    with Turns(None) as free:
        assert free.take(alone=True, until=time.monotonic() + 5)
        assert not free.take(alone=True, until=time.monotonic() - 1)


def test_suites_are_told_one_by_one(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "TOKENS", 24)
    result = run_part(PARTS["suites"], context)
    assert [check.verdict for check in result.checks] == [Verdict.SHOWN] * 3, result.checks
    assert "chat" in result.checks[1].name


def test_what_wants_several_turns_is_no_suite(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "TOKENS", 8)
    prompts = json.loads((context.store / "prompts.json").read_text(encoding="utf-8"))
    sets = {"conversation": prompts["code"], "chat": prompts["chat"]}
    (tmp_path / "prompts.json").write_text(json.dumps(sets), encoding="utf-8")
    found = suites.run(Context(tmp_path, context.servers, 0.05))
    assert [check.name.split(", ")[1] for check in found.checks] == ["chat"]


def test_experts_are_held_to_plain_decoding_and_that_to_itself(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_targets, "MLA_MOE", {"vocab_size": VOCABULARY})
    # The embedded engine plants no errors.
    change = Client.set_state
    monkeypatch.setattr(Client, "set_state", lambda client, **to: None if "ddtree_plant" in to else change(client, **to))
    found = random_targets.moe(Context(tmp_path, context.servers, 0.05))
    verdicts = {check.name: (check.verdict, check.measured) for check in found.checks}
    for server in ("the same server", "the tree's server with speculation off"):
        for batch, count in ((8, 8), (1, 2)):
            assert verdicts[f"plain decoding in fp32, {server}, batch {batch}, against batch 8"] == (
                Verdict.SHOWN,
                f"{count} of {count} equal",
            )
    equal = [verdict for name, verdict in verdicts.items() if name.endswith("tree = plain")]
    assert len(equal) == 6
    assert {verdict for verdict, _ in equal} == {Verdict.MET}
    # Nor does it have an oracle, so no commit length is as set; with few requests neither.
    set_ones = [verdict for name, verdict in verdicts.items() if name.endswith("as set")]
    assert [verdict for verdict, _ in set_ones] == [Verdict.MISSED] * 6, set_ones


def test_trees_over_several_gpus_are_held_to_one(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "dense-small", {**TARGETS["dense-small"], "vocab_size": VOCABULARY})
    monkeypatch.setattr(mixed, "LONGEST", 512)
    surroundings = Context(tmp_path, context.servers, 0.05, tmp_path, (0, 1))
    checks, data = parallel.trees(surroundings, "dense")
    equal = [check for check in checks if "greedy" in check.name]
    assert len(equal) == len(parallel.BUDGETS)
    assert {check.verdict for check in equal} == {Verdict.MET}, equal
    assert data["gpus"] == 2
    # The embedded engine has no ranks, and says nothing of them.
    assert next(check for check in checks if "by the ranks" in check.name).verdict is Verdict.MISSED


class Canned(Client):
    """Gives the same answers whatever it is asked."""

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__("http://localhost:1")
        self.answers = answers

    def set_state(self, **settings: int | float) -> None:
        pass

    def generate_all(self, *_: object, **__: object) -> list[Answer]:
        return self.answers


@pytest.mark.parametrize(
    ("plain", "steady", "one", "many", "verdict"),
    [
        (4, 2, 4, 4, Verdict.MET),
        (5, 1, 4, 5, Verdict.MET),
        (5, 1, 4, 4, Verdict.MISSED),
        (4, 2, 4, 5, Verdict.MISSED),
        (4, 2, 5, 4, Verdict.MISSED),
    ],
    ids=["all equal", "plain differs over the ranks", "trees differ from plain there", "trees differ", "trees of one GPU differ"],
)
def test_trees_answer_for_trees_and_not_for_the_sum_over_ranks(
    plain: int, steady: int, one: int, many: int, verdict: Verdict
) -> None:
    """The last token of the second of two answers: plain over the ranks, and trees on one GPU and over the ranks."""
    single, ranks = (Canned([answer(1, 2, verifies=1), answer(3, last, verifies=1)]) for last in (one, many))
    prompts = [(7, 8), (8, 9)]
    table = make_table(prompts, [(1, 2), (3, 4)], 3, 0.5)
    (check,) = parallel._budget("x", single, ranks, table, prompts, [(1, 2), (3, plain)], steady, 4, 2)
    assert check.verdict is verdict, check


def test_captures_are_kept_as_they_came(context: Context, tmp_path: Path) -> None:
    missing = parallel.capture(context.servers["tree16"], tmp_path, "idle")
    assert json.loads((tmp_path / "idle-server_info").read_text(encoding="utf-8"))
    assert (tmp_path / "idle-v1-loads").is_file()
    # Started without metrics, and maybe on a machine without a GPU: said, and the rest is kept.
    assert [item for item in missing if item.startswith("metrics: HTTP")]
    assert not [item for item in missing if not item.startswith(("nvidia-smi", "metrics"))]


def test_series_are_read_whatever_their_labels() -> None:
    metrics = '# HELP sglang:ddtree_budget x\nsglang:ddtree_budget{model_name="m",tp_rank="0"} 8.0\nsglang:up 1\n'
    assert series(metrics, "ddtree_budget") == 8.0
    assert series(metrics, "up") == 1.0
    assert series(metrics, "ddtree_topk") is None


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
