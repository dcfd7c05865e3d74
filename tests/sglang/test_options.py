"""What follows from DDTREE's flags, and their way to another process."""

from __future__ import annotations

import argparse
import json

import pytest

from engine_launch.sglang_plugin import flags
from engine_launch.sglang_plugin.options import ENVIRONMENT, Options
from engine_launch.spec.tree_sizes import OptionError, parse_widths


def test_without_flags_there_is_room_to_tune_while_running() -> None:
    limits = Options().resolve(8)
    assert (limits.budget, limits.topk, limits.max_budget, limits.max_topk) == (8, 4, 32, 8)
    assert limits.widths == (1, 9, 17, 33)


def test_a_budget_takes_the_next_larger_captured_width() -> None:
    limits = Options(budget=16, max_budget=64, widths=(2, 9, 17)).resolve(8)
    assert limits.widths == (1, 2, 9, 17, 65)
    assert [limits.width_for(budget) for budget in (0, 1, 2, 8, 16, 17, 64)] == [1, 2, 9, 9, 17, 65, 65]


def test_the_widest_pass_has_room_for_the_drafters_block() -> None:
    limits = Options(budget=2, max_budget=2).resolve(16)
    assert (limits.max_width, limits.max_budget) == (16, 2), "a wide block does not let a budget above the ceiling in"
    assert Options(budget=40).resolve(16).max_budget == 40


def test_a_ring_has_room_for_the_window_of_the_start() -> None:
    assert Options(draft_pool="ring").resolve(8, 512).ring_window == 512
    assert Options(draft_pool="stock").resolve(8, 512).ring_window == Options().resolve(8, 512).ring_window == 0


@pytest.mark.parametrize("window", [7, (1 << 20) + 1])
def test_a_window_out_of_bounds_is_refused_as_it_is_while_running(window: int) -> None:
    with pytest.raises(OptionError, match=rf"--speculative-draft-window-size is {window}; 8 to 1048576 are possible"):
        Options().resolve(8, window)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(budget=0), "--speculative-ddtree-budget is 0"),
        (Options(budget=300), "1 to 256"),
        (Options(topk=65), "--speculative-ddtree-topk is 65"),
        (Options(budget=40, max_budget=32), "is more than --speculative-ddtree-max-budget 32"),
        (Options(topk=9, max_topk=8), "is more than --speculative-ddtree-max-topk 8"),
        (Options(widths=(99,)), "--speculative-ddtree-verify-widths is 99"),
    ],
)
def test_numbers_that_cannot_be_are_named(options: Options, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        options.resolve(8)


def test_values_reach_a_process_that_inherits_the_environment() -> None:
    environment: dict[str, str] = {}
    options = Options(budget=16, widths=(9, 17), self_test=True, draft_pool="ring")
    options.store(environment)
    assert set(environment) == {ENVIRONMENT}
    assert Options.load(environment) == options
    assert Options.load({}) == Options()


@pytest.mark.parametrize("block", [0, 1, 258])
def test_a_block_has_the_anchor_and_a_position(block: int) -> None:
    with pytest.raises(OptionError, match=rf"--speculative-num-draft-tokens.* is {block}; 2 to 257"):
        Options().resolve(block)
    assert Options().resolve(2).block == 2


@pytest.mark.parametrize(
    "text",
    ["no JSON", "[1]", "3", '{"budgets": 3}', '{"budget": "16"}', '{"budget": true}', '{"widths": []}', '{"self_test": null}'],
)
def test_an_environment_that_holds_something_else_is_named(text: str) -> None:
    with pytest.raises(OptionError, match=f"{ENVIRONMENT} is .*budget, draft_pool"):
        Options.load({ENVIRONMENT: text})


def test_what_is_not_given_is_left_out_or_null() -> None:
    assert Options.load({ENVIRONMENT: json.dumps({"budget": 16})}) == Options(budget=16)
    assert Options.load({ENVIRONMENT: json.dumps({"budget": None, "widths": None})}) == Options()


def test_widths_are_a_list_of_numbers() -> None:
    assert parse_widths("17, 9,9") == (9, 17)
    for text in ("9,x", "", " , "):
        with pytest.raises(OptionError, match=f"takes whole numbers, such as 9,17,33, not '{text}'"):
            parse_widths(text)


def given(*words: str) -> Options:
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    return flags.values(parser.parse_args(words))


@pytest.mark.parametrize("words", [("9,17,33",), ("33", "9", "17"), ("9,17", "33"), ("9, 17, 33",)])
def test_widths_may_stand_behind_commas_or_blanks(words: tuple[str, ...]) -> None:
    assert given("--speculative-ddtree-verify-widths", *words, "--ddtree-self-test").widths == (9, 17, 33)
    assert given("--speculative-ddtree-verify-widths=33,9,17").widths == (9, 17, 33)


@pytest.mark.parametrize("word", ["9;17", "", "wide"])
def test_widths_that_are_none_are_refused_in_words(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        given("--speculative-ddtree-verify-widths", word)
    assert f"takes whole numbers, such as 9,17,33, not {word!r}" in capsys.readouterr().err


def test_the_flags_are_read_from_a_command_line() -> None:
    parser = argparse.ArgumentParser()
    flags.add_arguments(parser)
    assert flags.values(parser.parse_args([])) == Options()
    given = ["--speculative-ddtree-budget", "16", "--speculative-ddtree-topk", "4", "--speculative-ddtree-max-budget", "64"]
    given += ["--speculative-ddtree-max-topk", "8", "--speculative-ddtree-verify-widths", "9,17", "--ddtree-self-test"]
    given += ["--speculative-ddtree-draft-pool", "ring"]
    assert flags.values(parser.parse_args(given)) == Options(16, 4, 64, 8, (9, 17), True, "ring")
