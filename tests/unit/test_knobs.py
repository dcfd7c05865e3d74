"""The catalogue of settings: one canonical value whatever a source wrote, and clear refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.knobs import (
    AUTO,
    CONFIG,
    KNOBS,
    OFF,
    PLAIN,
    TRUTH_KNOBS,
    KnobError,
    Value,
    find_knob,
    parse_settings,
    same_value,
    show_value,
)
from engine_launch.spec.flags import BY_SPELLING


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("draft_window", "2048", 2048),
        ("draft_window", "None", OFF),
        ("draft_window", "null", OFF),
        ("draft_window", "0", OFF),
        ("draft_window", "OFF", OFF),
        ("layers_window", "config", CONFIG),
        ("layers_window", "None", OFF),
        ("layers_window", "512", 512),
        ("algorithm", "ddtree", "DDTREE"),
        ("algorithm", "None", PLAIN),
        ("algorithm", "", PLAIN),
        ("speculation", "1", True),
        ("speculation", "off", False),
        ("tree_budget", "16", 16),
        ("tree_budget", "auto", AUTO),
        ("tree_budget", "auto(max 64)", AUTO),
        ("mem_fraction", "0.85", 0.85),
        ("drafter", "'/w/d'", "/w/d"),
    ],
)
def test_every_spelling_of_a_value_has_one_canonical_form(name: str, text: str, value: Value) -> None:
    parsed = KNOBS[name].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tree_budget", "0"),
        ("tree_budget", "many"),
        ("tree_topk", "65"),
        ("draft_window", "-5"),
        ("draft_window", "2k"),
        ("block_size", "1"),
        ("mem_fraction", "1.5"),
        ("speculation", "maybe"),
        ("algorithm", "dd tree"),
        ("drafter", ""),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_the_settings_name(name: str, text: str) -> None:
    with pytest.raises(KnobError, match=name):
        KNOBS[name].parse(text)


@given(st.sampled_from(sorted(KNOBS)), st.text(max_size=12))
def test_a_value_that_was_parsed_reads_back_from_how_it_is_shown(name: str, text: str) -> None:
    try:
        value = KNOBS[name].parse(text)
    except KnobError:
        return
    assert same_value(KNOBS[name].parse(show_value(value)), value)


def test_unknown_equals_nothing_not_even_itself() -> None:
    assert not same_value(None, None)
    assert not same_value(None, OFF)
    assert same_value("ddtree", "DDTREE")
    assert not same_value(1, "1")


def test_a_value_that_means_without_the_flag_puts_nothing_on_the_command_line() -> None:
    assert KNOBS["draft_window"].flag_arguments(OFF) == ()
    assert KNOBS["algorithm"].flag_arguments(PLAIN) == ()
    assert KNOBS["layers_window"].flag_arguments(OFF) == ("--speculative-draft-layers-window", "off")
    assert KNOBS["draft_window"].flag_arguments(2048) == ("--speculative-draft-window-size", "2048")
    assert KNOBS["speculation"].flag_arguments(True) == ()


def test_hot_values_are_numbers_and_what_is_none_is_refused() -> None:
    assert KNOBS["draft_window"].hot_value(OFF) == 0
    assert KNOBS["speculation"].hot_value(False) == 0
    assert KNOBS["tree_budget"].hot_value(16) == 16
    # A tree of no nodes is no budget: the number 0 stands for the word.
    assert KNOBS["tree_budget"].hot_value(AUTO) == 0
    with pytest.raises(KnobError, match="at start"):
        KNOBS["layers_window"].hot_value(CONFIG)


def test_settings_on_a_command_line_are_parsed_and_the_last_one_counts() -> None:
    assert parse_settings(["draft_window=512", "tree_budget=8", "tree_budget=16"]) == {"draft_window": 512, "tree_budget": 16}
    with pytest.raises(KnobError, match="NAME=VALUE"):
        parse_settings(["draft_window"])
    with pytest.raises(KnobError, match="there is no setting called windw"):
        parse_settings(["windw=1"])


def test_any_flag_can_be_named_and_a_malformed_one_cannot() -> None:
    knob = find_knob("flag:--chunked-prefill-size")
    assert knob.flags == ("--chunked-prefill-size",)
    assert knob.server_fields == ("chunked_prefill_size",)
    with pytest.raises(KnobError):
        find_knob("flag:rm -rf")


def test_a_switch_of_the_engine_is_set_with_on_and_off_and_takes_no_value() -> None:
    knob = find_knob("flag:--enable-metrics")
    assert knob.flag_arguments(knob.parse("on")) == ("--enable-metrics",)
    assert knob.flag_arguments(knob.parse("off")) == ()
    assert knob.default is False
    with pytest.raises(KnobError):
        knob.parse("5")


def test_every_flag_of_the_catalogue_is_one_that_the_launcher_knows() -> None:
    for knob in KNOBS.values():
        assert all(flag in BY_SPELLING for flag in knob.flags), knob.name


def test_a_settings_default_is_a_value_that_it_takes() -> None:
    assert all(
        same_value(knob.parse(show_value(knob.default)), knob.default) for knob in KNOBS.values() if knob.default is not None
    )
    assert set(TRUTH_KNOBS) <= set(KNOBS)


@pytest.mark.parametrize(
    ("name", "knob"),
    [
        ("flag:--speculative-draft-window-size", "draft_window"),
        ("flag:--speculative-dflash-draft-window-size", "draft_window"),
        ("flag:--speculative-ddtree-budget", "tree_budget"),
        ("flag:--tp", "tp_size"),
    ],
)
def test_a_flag_of_the_catalogue_is_that_setting_and_needs_its_evidence(name: str, knob: str) -> None:
    # As "any other flag" the new process's command line alone would prove it, whatever the engine made of it.
    assert find_knob(name) is KNOBS[knob]
    assert parse_settings([f"{name}=8"]) == {knob: 8}


@pytest.mark.parametrize("flag", ["--speculative-draft-win", "--speculative-ddtree-bud", "--enable-metric"])
def test_a_flag_cut_short_is_refused_because_the_engine_would_take_it_for_the_whole_one(flag: str) -> None:
    with pytest.raises(KnobError, match="write the flag whole"):
        find_knob(f"flag:{flag}")


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("tree_budget=" + "9" * 20, "tree_budget takes a number from 1 to 1024, not 9999"),
        ("tree_budget=" + "9" * 5000, "from 1 to 1024"),
        ("draft_window=" + "9" * 5000, "takes a number from 1 to 999999999999999999, not"),
        ("layers_window=" + "9" * 5000, "takes a number from 1 to 999999999999999999, not"),
        ("tree_budget=１６", "whole number"),
        ("mem_fraction=nan", "takes a number"),
        ("mem_fraction=inf", "takes a number"),
        ("flag:--served-model-name=--port", "another flag"),
        ("flag:--served-model-name=a\nb", "one line"),
        ("flag:--served-model-name=a\0b", "one line"),
        ("drafter=\udcff", "one line"),
    ],
    ids=lambda text: repr(text[:40]),
)
def test_a_value_that_would_break_the_command_or_python_is_refused_in_a_short_sentence(item: str, why: str) -> None:
    with pytest.raises(KnobError, match=why) as caught:
        parse_settings([item])
    assert len(str(caught.value)) < 200
