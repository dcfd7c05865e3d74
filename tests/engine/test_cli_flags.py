"""The flag catalogue and its reader: SGLang's spelling, argparse's manners, one clear sentence for what cannot be."""

from __future__ import annotations

import argparse
import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.embedded.server_options import server_args, server_options
from engine_launch.sglang_plugin.flags import add_arguments
from engine_launch.spec import sglang_flags
from engine_launch.spec.checks import check_embedded
from engine_launch.spec.flags import BY_SPELLING, CATALOGUE, HONOURED, Flag, FlagError, Kind, Use, parse_flags, resolve
from engine_launch.spec.sglang_help import NEEDED_FLAGS, TREE_FLAGS, sglang_help


def values(*argv: str) -> dict[str, object]:
    return {item.flag.name: item.value for item in parse_flags(argv).given}


def test_every_spelling_belongs_to_one_flag() -> None:
    spellings = [spelling for flag in CATALOGUE for spelling in flag.spellings]
    assert len(spellings) == len(set(spellings))
    assert not sglang_flags.SWITCHES & sglang_flags.VALUED
    assert set(sglang_flags.ALIASES.values()) <= sglang_flags.SWITCHES | sglang_flags.VALUED


def test_old_window_spelling_is_the_same_flag() -> None:
    for spelling in ("--speculative-draft-window-size", "--speculative-dflash-draft-window-size"):
        assert values(f"{spelling}=512") == {"--speculative-draft-window-size": 512}


def test_the_prefix_cache_is_on_unless_the_flag_says_no() -> None:
    assert server_options(parse_flags([])).engine.prefix_cache
    options = server_options(parse_flags(["--disable-radix-cache"]))
    assert not options.engine.prefix_cache
    assert server_args(options)["disable_radix_cache"] is True


def test_unique_prefix_names_the_flag() -> None:
    assert values("--speculative-algo", "DDTREE") == {"--speculative-algorithm": "DDTREE"}


def test_ambiguous_prefix_lists_what_it_could_be() -> None:
    with pytest.raises(FlagError, match=r"--speculative-draft could be any of .*--speculative-draft-model-path"):
        parse_flags(["--speculative-draft", "x"])


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("--speculative-dtree-budget", "--speculative-ddtree-budget"),
        ("--budget", "--speculative-ddtree-budget"),
        ("--hots", "--host"),
        ("--speculative-draft-windows-size", "--speculative-draft-window-size"),
    ],
)
def test_unknown_flag_names_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(FlagError, match=rf"Did you mean {meant}\?"):
        parse_flags([wrong, "8"])


def test_flag_of_sglang_without_use_here_is_one_warning() -> None:
    parsed = parse_flags(["--tp-size", "8", "--trust-remote-code", "--cuda-graph-bs", "1", "2", "4", "--port", "1234"])
    assert [warning.split()[0] for warning in parsed.warnings] == ["--tp-size", "--trust-remote-code", "--cuda-graph-bs"]
    assert parsed.value("--port") == 1234


def test_flag_of_several_words_takes_them_up_to_the_next_flag() -> None:
    parsed = parse_flags(["--uvicorn-access-log-exclude-prefixes", "/metrics", "/v1/loads", "--port", "1"])
    assert parsed.value("--uvicorn-access-log-exclude-prefixes") == "/metrics /v1/loads"
    assert parsed.value("--port") == 1


def test_repeated_flag_counts_with_its_last_value_and_says_so() -> None:
    parsed = parse_flags(["--port", "1", "--port=2"])
    assert parsed.value("--port") == 2
    assert parsed.warnings == ("--port is given 2 times; 2 is used.",)


def test_repeated_key_is_not_shown() -> None:
    parsed = parse_flags(["--api-key", "first-secret", "--api-key", "second-secret"])
    assert "secret" not in " ".join(parsed.warnings)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port"], "--port needs a value"),
        (["--port", "--host", "x"], "--port needs a value"),
        (["--port", "many"], "--port takes a whole number, not 'many'"),
        (["--enable-metrics=yes"], "--enable-metrics takes no value"),
        (["--dtype", "float99"], "--dtype takes auto, bfloat16 or float32"),
        (["--speculative-ddtree-budget", "0"], "must be at least 1, but 0 was given"),
        (["--speculative-ddtree-topk", "-3"], "must be at least 1, but -3 was given"),
        (["--speculative-draft-layers-window", "trained"], "takes a whole number or config or off, not 'trained'"),
        (["8000"], "'8000' belongs to no flag"),
        (["--host="], "--host needs a value"),
    ],
)
def test_wrong_value_is_one_sentence(argv: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        parse_flags(argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--speculative-algorithm", "EAGLE3"], "it knows DFLASH and DDTREE"),
        (
            ["--speculative-algorithm=dflash", "--speculative-num-draft-tokens=8", "--speculative-draft-window-size=7"],
            "7 is below the block size 8",
        ),
        (["--speculative-num-draft-tokens", "8", "--speculative-dflash-block-size", "16"], "are one setting"),
        (["--port", "70000"], "at most 65535"),
        (["--random-seed", str(1 << 62)], "at most 4611686018427387903"),
        (["--random-seed", str(-1 << 62)], "at most 4611686018427387903"),
        (["--max-running-requests", "100000"], "at most 1024"),
        (["--api-key", "two words"], "printable ASCII"),
    ],
)
def test_rule_between_flags_is_one_sentence(argv: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        check_embedded(parse_flags(argv))


def test_window_without_drafter_is_a_warning_as_in_sglang() -> None:
    (warning,) = check_embedded(parse_flags(["--speculative-draft-window-size", "512"]))
    assert warning.startswith("--speculative-draft-window-size has no effect with speculative_algorithm=None")
    assert check_embedded(parse_flags(["--speculative-algorithm", "DDTREE", "--speculative-draft-window-size", "512"])) == ()


def test_tree_flags_with_a_chain_are_a_warning() -> None:
    (warning,) = check_embedded(parse_flags(["--speculative-algorithm", "DFLASH", "--speculative-ddtree-topk", "2"]))
    assert "honoured by DDTREE only" in warning


_VALUED = tuple(flag for flag in HONOURED if flag.kind is not Kind.SWITCH)


def _text_for(flag: Flag) -> st.SearchStrategy[str]:
    if flag.kind is Kind.CHOICE:
        return st.sampled_from(flag.choices)
    if flag.kind is Kind.TEXT:
        return st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(lambda t: not t.startswith("-"))
    numbers = st.integers(flag.minimum if flag.minimum is not None else 0, 10**9).map(str)
    return st.one_of(numbers, st.sampled_from(flag.choices)) if flag.choices else numbers


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    words: list[str] = []
    for flag in draw(st.lists(st.sampled_from([one for one in HONOURED if one.kind is not Kind.ANY]), max_size=6)):
        spelling = draw(st.sampled_from(flag.spellings))
        if flag.kind is Kind.SWITCH:
            words.append(spelling)
            continue
        text = draw(_text_for(flag))
        words += [f"{spelling}={text}"] if draw(st.booleans()) else [spelling, text]
    return words


@given(command_lines())
def test_reads_what_argparse_reads(words: list[str]) -> None:
    """SGLang's parser is argparse: for command lines that both take, the values agree."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for flag in HONOURED:
        action = "store_true" if flag.kind is Kind.SWITCH else "store"
        parser.add_argument(*flag.spellings, dest=flag.name, action=action, default=None)
    theirs = {name: value for name, value in vars(parser.parse_args(words)).items() if value is not None}
    parsed = parse_flags(words)
    ours = {item.flag.name: parsed.value(item.flag.name) for item in parsed.given}
    assert ours == {
        name: int(value) if isinstance(ours.get(name), int) and value is not True else value for name, value in theirs.items()
    }


@given(st.sampled_from(sorted(BY_SPELLING)), st.integers(3, 60))
def test_a_prefix_never_means_a_flag_that_does_not_begin_with_it(spelling: str, length: int) -> None:
    prefix = spelling[:length]
    try:
        flag = resolve(prefix)
    except FlagError:
        return
    assert any(one.startswith(prefix) for one in flag.spellings)


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_words_parse_or_are_a_flag_error(words: list[str]) -> None:
    with contextlib.suppress(FlagError):
        parse_flags(words)


def test_help_tells_every_flag_that_is_honoured() -> None:
    from engine_launch.spec.flags_help import serve_help

    text = serve_help()
    assert all(flag.name in text for flag in HONOURED)
    for columns in (10, 60, 80, 100, 400):
        assert max(map(len, serve_help(columns).splitlines())) <= min(max(columns, 60), 120)
    assert all(flag.use is not Use.NONE for flag in HONOURED)


def test_the_help_for_sglang_tells_the_plugins_flags_with_their_values_and_defaults() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    text = sglang_help(100)
    by_name = {flag.name: flag for flag in TREE_FLAGS}
    for action in parser._actions:
        (spelling,) = action.option_strings
        flag = by_name.pop(spelling)
        assert flag.choices == tuple(action.choices or ())
        assert (flag.kind is Kind.SWITCH) is (action.nargs == 0)
        default = re.search(r"Default:? ([^.]+)\.", action.help or "")
        assert default is None or f"(default: {default[1]})" in flag.help
    assert not by_name
    assert all(flag.name in text for flag in (*TREE_FLAGS, *NEEDED_FLAGS))
    for columns in (10, 60, 80, 100, 400):
        assert max(map(len, sglang_help(columns).splitlines())) <= min(max(columns, 60), 120)
