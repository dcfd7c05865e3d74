"""The evaluation command on a random target: the tables hold what replay gives, and answers are kept."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from engine_launch.training import evaluate
from engine_launch.training.dataset import read_sequences
from engine_launch.training.drafter import Drafter, DrafterShape
from engine_launch.training.evaluation_tables import as_markdown
from engine_launch.training.heldout import HeldOutSet, answer_set, write_prompts
from engine_launch.training.measures import Key, Measured, Tree, Wanted
from engine_launch.training.replay import CommitCounts, Windows, draft_everywhere
from engine_launch.training.target import TargetForward, TargetShape, random_target

SHAPE = TargetShape(layers=4, hidden=48, heads=3, kv_heads=1, head_dim=16, ffn=64, vocab=256, rope_theta=1e4, rms_eps=1e-5)
DRAFTER = DrafterShape(
    hidden=48, heads=3, kv_heads=1, head_dim=16, ffn=64, vocab=256, block=4, window=16, sliding=(True, False),
    taps=(0, 2), target_layers=4,
)  # fmt: skip
OPTIONS = ("--budgets", "2,6", "--topk", "1,3", "--usual-budget", "6", "--compact", "0,8", "--temperatures", "0,1")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(0)
    Drafter(DRAFTER).export(tmp_path / "drafter")
    rng = random.Random(1)
    rows = [tuple(rng.randrange(20, 200) for _ in range(30)) for _ in range(4)]
    write_prompts({HeldOutSet.CHAT: rows, HeldOutSet.LONG: rows[:2]}, tmp_path / "heldout.json")
    (tmp_path / "model.gguf").write_bytes(b"")
    monkeypatch.setattr(evaluate, "load_target", lambda path: random_target(SHAPE, scale=0.15))
    monkeypatch.setattr("engine_launch.training.heldout.ANSWER_LIMIT", 24)
    # The engine's answers are the real target's; a random one answers from slots, as on a GPU.
    monkeypatch.setattr(evaluate, "answered", lambda target, model, rows, temperature: answer_set(target, rows, temperature))
    return tmp_path


def run(files: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    names = (files / "model.gguf", files / "heldout.json", "--drafter", files / "drafter", "--answers", files / "answers")
    outputs = ("--table", files / "out.md", "--json", files / "out.json")
    monkeypatch.setattr("sys.argv", ["evaluate", *map(str, (*names, *outputs)), *OPTIONS, *options])
    evaluate.main()


def test_one_command_measures_chain_trees_and_windows_at_both_temperatures(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(files, monkeypatch)
    rows = json.loads((files / "out.json").read_text())["rows"]
    trained = [r for r in rows if (r["layers_window"], r["compact_cache"]) == (16, None)]
    assert {(r["budget"], r["topk"]) for r in trained} == {(None, None), (2, 1), (6, 1), (2, 3), (6, 3)}
    assert {(r["set"], r["temperature"], r["answers"]) for r in trained} == {
        ("chat", 0.0, 4), ("chat", 1.0, 4), ("long", 0.0, 2), ("long", 1.0, 2)
    }  # fmt: skip
    others = [r for r in rows if r not in trained]
    assert {(r["layers_window"], r["compact_cache"]) for r in others} == {(16, 8), (None, None), (None, 8)}
    assert {(r["budget"], r["topk"], r["temperature"]) for r in others} == {(None, None, 0.0), (6, 3, 0.0)}
    table = (files / "out.md").read_text()
    assert table in capsys.readouterr().out
    [chat] = [r for r in trained if r["set"] == "chat" and r["temperature"] == 0.0 and r["budget"] is None]
    assert f"| `chat` | chain | {' '.join(map(str, chat['histogram']))} |" in table
    assert sum(chat["histogram"]) == sum(sum(part) for part in chat["histograms_by_context"])


def test_the_figures_are_replay_s_and_answers_are_made_once(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(files, monkeypatch, "--sets", "chat", "--limit", "2")
    [greedy, _] = sorted((files / "answers").iterdir())
    answers = read_sequences([greedy])
    assert len(answers.lengths) == 2
    drafts = draft_everywhere(
        Drafter.load(files / "drafter"),
        TargetForward(random_target(SHAPE, scale=0.15), (0, 2), 256),
        answers,
        3,
        Windows(None, 8),
    )
    found = [n for _, n in drafts.walk(drafts.of_trees((6,), 3)[6])]
    rows = json.loads((files / "out.json").read_text())["rows"]
    [row] = [r for r in rows if r["layers_window"] is None and r["compact_cache"] == 8 and r["budget"]]
    assert row["histogram"] == [found.count(n) for n in range(4)]
    monkeypatch.setattr(evaluate, "answered", lambda *_: pytest.fail("the answers are there already"))
    run(files, monkeypatch, "--sets", "chat", "--limit", "2")


def test_answers_of_a_folder_are_measured_as_they_are(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(files, monkeypatch, "--sets", "chat")
    [greedy, _] = sorted((files / "answers").iterdir())
    whole = json.loads((files / "out.json").read_text())["rows"][0]
    (files / "heldout.json").unlink()
    (files / "heldout.json").mkdir()
    greedy.rename(files / "heldout.json" / "heldout-chat.npz")
    run(files, monkeypatch)
    assert json.loads((files / "out.json").read_text())["rows"][0] == whole
    run(files, monkeypatch, "--limit", "2")
    part = json.loads((files / "out.json").read_text())["rows"][0]
    assert part["answers"] == 2
    assert sum(part["histogram"]) < sum(whole["histogram"])


def test_code_and_chat_are_judged_by_all_their_rounds() -> None:
    usual = Tree(6, 3)
    sets = {HeldOutSet.CODE: CommitCounts((1, 0, 0, 1)), HeldOutSet.CHAT: CommitCounts((8, 0, 0, 0))}
    measures = {
        Key(name, 0.0, Windows(16), tree): Measured(counts, (counts,) * 6)
        for name, counts in sets.items()
        for tree in (None, usual)
    }
    table = as_markdown(measures, dict.fromkeys(((n, 0.0) for n in sets), 5), Drafter(DRAFTER), Wanted((6,), (3,), (), usual))
    assert "| `code` | 5 | 2.50 | 2.50 |" in table
    assert "| `code` and `chat`, all rounds | 10 | 1.30 | 1.30 |" in table


def test_a_window_smaller_than_a_block_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="smaller than the drafter's block of 4"):
        run(files, monkeypatch, "--compact", "3")


def test_a_limit_takes_prompts_from_everywhere() -> None:
    assert evaluate.spread(list(range(10)), 4) == [0, 2, 5, 7]
    assert evaluate.spread([1, 2], 4) == [1, 2]
