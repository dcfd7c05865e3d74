"""The engine's words are found inside any wrapper; a setting is read as argparse reads it and edited alone."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.command import (
    CommandError,
    CommandForm,
    command_reading,
    count_engines,
    engine_arguments,
    find_engine,
    flag_value,
    hidden_flags,
    set_flag,
)
from dflash_console.evidence.reading import Known
from dflash_console.evidence.shell import split_shell
from dflash_console.knobs import KNOBS, OFF, PLAIN, Value, find_knob

from .support import container_command, spelled_command

WINDOW = KNOBS["draft_window"]
BUDGET = KNOBS["tree_budget"]
ALGORITHM = KNOBS["algorithm"]
SGLANG = ("python", "-m", "sglang.launch_server")


@pytest.mark.parametrize(
    ("words", "form", "first"),
    [
        ("ddtree-launch serve --port 1", CommandForm.LAUNCHER, "--port"),
        ("/opt/venv/bin/python3 /opt/venv/bin/ddtree-launch serve --port 1", CommandForm.LAUNCHER, "--port"),
        ("python -m engine_launch serve --port 1", CommandForm.LAUNCHER_MODULE, "--port"),
        ("/usr/bin/python3 -X dev -m sglang.launch_server --tp 8", CommandForm.SGLANG_MODULE, "--tp"),
        ("/usr/bin/python3 -um sglang.launch_server --tp 8", CommandForm.SGLANG_MODULE, "--tp"),
        ("python -Ibm sglang serve --tp 8", CommandForm.SGLANG_SERVE, "--tp"),
        ("python -msglang.launch_server --tp 8", CommandForm.SGLANG_MODULE, "--tp"),
        ("docker run --rm --entrypoint sglang img:1 serve --tp 8", CommandForm.SGLANG_SERVE, "--tp"),
        ("podman run --entrypoint=/opt/v/bin/sglang img:1 serve --tp 8", CommandForm.SGLANG_SERVE, "--tp"),
        ("sglang serve --model-path /w/t", CommandForm.SGLANG_SERVE, "--model-path"),
        ("env CUDA_VISIBLE_DEVICES=0 A=b sglang serve --tp 8", CommandForm.SGLANG_SERVE, "--tp"),
        ("numactl --cpunodebind=0 --membind=0 python -m sglang.launch_server --tp 8", CommandForm.SGLANG_MODULE, "--tp"),
        ("docker run --rm --gpus all -e A=b img:1 python3 -m sglang.launch_server --tp 8", CommandForm.SGLANG_MODULE, "--tp"),
        ("bash -lc 'cd /srv && exec ddtree-launch serve --port 1 2>&1 | tee log'", CommandForm.LAUNCHER, "--port"),
    ],
)
def test_the_engine_is_found_in_every_form_of_start(words: str, form: CommandForm, first: str) -> None:
    found = find_engine(shlex.split(words))
    assert found is not None
    assert found.form is form
    assert found.arguments[0] == first
    assert all("tee" not in word and word != "|" for word in found.arguments)


@pytest.mark.parametrize(
    "words", ["/usr/bin/env bash /srv/sgl/bin/start.sh", "pkill -f sglang.launch_server", "sglang --help", ""]
)
def test_a_command_that_names_no_engine_has_none(words: str) -> None:
    argv = shlex.split(words)
    assert find_engine(argv) is None
    reading = command_reading(argv, WINDOW)
    assert reading.known is Known.UNKNOWN
    assert reading.why


def test_a_wrapper_script_is_named_when_flags_hide_in_it() -> None:
    with pytest.raises(CommandError, match=r"start\.sh"):
        set_flag(["/usr/bin/env", "bash", "/srv/sgl/bin/start.sh"], WINDOW, 512)


def test_the_flags_of_a_container_in_a_shell_string_are_read() -> None:
    argv = container_command()
    found = find_engine(argv)
    assert found is not None
    assert found.nested
    assert found.container
    assert flag_value(argv, WINDOW).value == 2048
    assert flag_value(argv, BUDGET).value == 24
    assert flag_value(argv, ALGORITHM).value == "DDTREE"


def test_editing_inside_a_shell_string_changes_the_value_and_no_other_byte() -> None:
    argv = container_command()
    changed = set_flag(argv, WINDOW, 512)
    assert changed[:2] == argv[:2]
    assert changed[2] == argv[2].replace(
        "--speculative-dflash-draft-window-size 2048", "--speculative-dflash-draft-window-size 512"
    )
    assert '"$(cat /srv/llm/secret/key)"' in changed[2]


def test_editing_works_in_a_shell_string_within_a_shell_string() -> None:
    inner = (
        'exec python -m sglang.launch_server --api-key \\"$(cat k)\\" --speculative-draft-window-size \\"2048\\" --port 3 2>&1'
    )
    argv = ["bash", "-c", f'docker run img bash -lc "{inner}"']
    assert set_flag(argv, WINDOW, 512)[2] == argv[2].replace("2048", "512")
    added = set_flag(argv, BUDGET, 16)
    assert added[2] == argv[2].replace("--port 3", "--port 3 --speculative-ddtree-budget 16")
    assert flag_value(added, BUDGET).value == 16


def test_words_added_to_a_string_that_is_held_together_by_backslashes_stay_in_it() -> None:
    argv = ["bash", "-c", "bash -c ddtree-launch\\ serve\\ --port\\ 3; echo done"]
    added = set_flag(argv, BUDGET, 16)
    assert added[2] == "bash -c ddtree-launch\\ serve\\ --port\\ 3\\ --speculative-ddtree-budget\\ 16; echo done"
    assert flag_value(added, BUDGET).value == 16


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("ddtree-launch serve --port 1 || ddtree-launch serve --port 2", 2),
        ("if x; then sglang serve; else python -m sglang.launch_server; fi", 2),
        ("bash -c 'sglang serve --tp 1' || bash -c 'sglang serve --tp 2'", 2),
        ("pkill -f sglang.launch_server; exec sglang serve 2>&1 | tee log", 1),
        ("docker rm sglang; docker run img bash -c 'sglang serve --tp 2'", 1),
        ("./start.sh", 0),
    ],
)
def test_engines_of_one_line_are_counted(text: str, number: int) -> None:
    assert count_engines(("bash", "-c", text)) == number


def test_a_value_that_would_need_quotes_inside_quotes_is_refused_and_not_guessed() -> None:
    argv = ["bash", "-c", 'bash -c "ddtree-launch serve --speculative-draft-model-path /w/d"']
    with pytest.raises(CommandError, match="quoting"):
        set_flag(argv, KNOBS["drafter"], "/w/it's here")


def test_prefixes_old_names_and_equals_signs_are_recognised_as_argparse_does() -> None:
    argv = spelled_command()
    expected: dict[str, Value] = {
        "algorithm": "DFLASH",
        "draft_window": 2048,
        "drafter": "/w/d",
        "block_size": 8,
        "tp_size": 8,
        "mem_fraction": 0.9,
    }
    assert {name: flag_value(argv, KNOBS[name]).value for name in expected} == expected
    assert flag_value(argv, find_knob("flag:--disable-radix-cache")).value is True


def test_the_last_occurrence_wins_and_the_earlier_ones_are_reported() -> None:
    reading = flag_value(spelled_command(), KNOBS["block_size"])
    assert reading.text == "8"
    assert reading.overridden == ("16",)
    assert "2 times" in command_reading(spelled_command(), KNOBS["block_size"]).why


def test_an_edit_keeps_the_spelling_and_changes_the_last_occurrence_only() -> None:
    argv = spelled_command()
    changed = set_flag(argv, KNOBS["block_size"], 12)
    assert changed == tuple(word.replace("-tokens=8", "-tokens=12") for word in argv)
    window = set_flag(argv, WINDOW, 512)
    assert window[window.index("--speculative-dflash-draft-window") + 1] == "512"


def test_a_prefix_that_fits_two_flags_is_no_setting() -> None:
    argv = [*SGLANG, "--speculative-num", "4"]
    assert not flag_value(argv, KNOBS["block_size"]).given


def test_a_similar_flag_of_the_engine_is_not_taken_for_a_setting() -> None:
    argv = [*SGLANG, "--speculative-draft-model-revision", "main", "--speculative-draft-window-size", "64"]
    assert not flag_value(argv, KNOBS["drafter"]).given
    assert flag_value(argv, WINDOW).value == 64


def test_setting_the_value_that_is_there_changes_no_byte() -> None:
    argv = (*SGLANG, "--speculative-algorithm", "dflash")
    assert set_flag(argv, ALGORITHM, "DFLASH") == argv


def test_off_removes_every_occurrence_and_leaves_the_rest() -> None:
    argv = (*SGLANG, "--speculative-draft-window-size", "1", "--port", "3", "--speculative-draft-window-size=2", "--tp", "8")
    assert set_flag(argv, WINDOW, OFF) == (*SGLANG, "--port", "3", "--tp", "8")
    assert set_flag(argv, WINDOW, None) == set_flag(argv, WINDOW, OFF)


def test_removing_from_a_shell_string_leaves_one_gap() -> None:
    argv = ("bash", "-c", "exec ddtree-launch serve --port 3 \\\n  --speculative-draft-window-size 64 \\\n  --tp 1")
    assert set_flag(argv, WINDOW, None)[2] == "exec ddtree-launch serve --port 3 \\\n  --tp 1"


def test_a_value_that_only_the_shell_knows_is_unknown_and_can_be_replaced() -> None:
    argv = ("bash", "-c", 'ddtree-launch serve --speculative-ddtree-budget "$BUDGET" --port 3')
    assert flag_value(argv, BUDGET).value is None
    assert command_reading(argv, BUDGET).known is Known.UNKNOWN
    assert set_flag(argv, BUDGET, 8)[2] == "ddtree-launch serve --speculative-ddtree-budget 8 --port 3"


def test_a_setting_without_a_flag_cannot_be_put_on_a_command_line() -> None:
    with pytest.raises(CommandError, match="running engine"):
        set_flag((*SGLANG,), KNOBS["speculation"], False)


def test_a_switch_outside_the_catalogue_is_added_bare_and_removed() -> None:
    knob = find_knob("flag:--enable-metrics")
    added = set_flag(SGLANG, knob, True)
    assert added == (*SGLANG, "--enable-metrics")
    assert set_flag(added, knob, False) == SGLANG


def test_a_switch_takes_no_word_behind_it_for_its_value() -> None:
    argv = (*SGLANG, "--enable-metrics", "stray", "--port", "3")
    knob = find_knob("flag:--enable-metrics")
    assert flag_value(argv, knob).value is True
    assert set_flag(argv, knob, False) == (*SGLANG, "stray", "--port", "3")


def test_a_key_is_never_in_a_reading() -> None:
    reading = command_reading([*SGLANG, "--api-key", "sk-1"], find_knob("flag:--api-key"))
    assert reading.known is Known.VALUE
    assert "sk-1" not in repr(reading)


def test_a_bad_value_is_said_and_not_taken_for_another() -> None:
    reading = flag_value([*SGLANG, "--speculative-ddtree-budget", "many"], BUDGET)
    assert reading.value is None
    assert "many" in reading.problem
    assert flag_value([*SGLANG, "--speculative-ddtree-budget", "--port", "3"], BUDGET).problem


VALUES: dict[str, st.SearchStrategy[Value]] = {
    "draft_window": st.one_of(st.integers(1, 65536), st.just(OFF)),
    "tree_budget": st.integers(1, 1024),
    "tree_topk": st.integers(1, 64),
    "block_size": st.integers(2, 64),
    "algorithm": st.sampled_from(["DDTREE", "DFLASH", PLAIN]),
    "drafter": st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=12).filter(
        lambda text: text.strip().strip("'\"") == text and not text.startswith("--")
    ),
}
OTHER_WORDS = st.lists(
    st.one_of(
        st.sampled_from(["--port", "--tp-size", "--served-model-name", "--speculative-num-steps", "--enable-metrics"]),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=10).filter(
            lambda t: not t.startswith("--s")
        ),
    ),
    max_size=8,
)


@st.composite
def edits(draw: st.DrawFn) -> tuple[tuple[str, ...], str, Value]:
    name = draw(st.sampled_from(sorted(VALUES)))
    before, after = draw(OTHER_WORDS), draw(OTHER_WORDS)
    knob = KNOBS[name]
    present = draw(st.booleans())
    value = draw(VALUES[name])
    joined = draw(st.booleans())
    flag = list(knob.flag_arguments(draw(VALUES[name]))) if present else []
    if flag and joined:
        flag = ["=".join(flag)]
    # A switch keeps the words before from swallowing the flag, as it would on a real command line.
    return (*SGLANG, *before, "--enable-metrics", *flag, "--disable-cuda-graph", *after), name, value


@given(edits())
def test_after_an_edit_the_setting_reads_back_and_no_other_word_has_changed(edit: tuple[tuple[str, ...], str, Value]) -> None:
    argv, name, value = edit
    knob = KNOBS[name]
    changed = set_flag(argv, knob, value)
    after = flag_value(changed, knob)
    assert after.value == (value if knob.flag_arguments(value) else None)
    assert _without(changed, name) == _without(argv, name)


@given(edits())
def test_the_same_holds_inside_a_shell_string(edit: tuple[tuple[str, ...], str, Value]) -> None:
    argv, name, value = edit
    knob = KNOBS[name]
    shell = ("/bin/bash", "-c", f"cd /srv;  exec {shlex.join(argv)}   2>> log")
    changed = set_flag(shell, knob, value)
    assert changed[:2] == shell[:2]
    words = tuple(word.value for word in split_shell(changed[2]))
    assert words[:3] == ("cd", "/srv", ";")
    assert words[-2:] == ("2>>", "log")
    assert _without(words, name) == _without(tuple(word.value for word in split_shell(shell[2])), name)
    assert flag_value(changed, knob).value == (value if knob.flag_arguments(value) else None)


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        ("bash -c 'exec sglang serve $FLAGS --model-path /x'", "$FLAGS"),
        ("bash -c 'A=(--x 1); exec python -m sglang.launch_server --port $P \"${A[@]}\"'", "${A[@]}"),
        ("bash -c 'sglang serve --enable-metrics $(cat /f)'", "$(cat /f)"),
        ("sglang serve --model-path /x $MORE", "$MORE"),
        ("sglang serve --config /etc/s.yaml", "the file /etc/s.yaml (--config)"),
        ("sglang serve --config=/etc/s.yaml --port 1", "the file /etc/s.yaml (--config)"),
        ("bash -c 'sglang serve --api-key \"$(cat /k)\" --port $P --x=$Y'", ""),
        ("sglang serve --model-path /x", ""),
        ("/srv/start.sh $FLAGS", ""),
    ],
)
def test_a_flag_that_an_expansion_or_a_file_may_give_is_unknown_and_not_absent(words: str, hidden: str) -> None:
    argv = shlex.split(words)
    assert hidden_flags(argv) == hidden
    reading = command_reading(argv, WINDOW)
    if hidden:
        assert (reading.known, reading.why) == (Known.UNKNOWN, f"not given in words, and {hidden} may give it")
        given = command_reading(set_flag(argv, WINDOW, 512), WINDOW)
        assert (given.known, given.value) == (Known.VALUE, 512), "the last one wins, whatever the expansion holds"


@pytest.mark.parametrize(
    "words",
    [
        "bash -c 'echo starting sglang serve on 1; exec sglang serve --port 1'",
        "bash -c 'pkill -f sglang serve; sglang serve --port 1'",
        "bash -c '/usr/bin/printf %s python -m sglang.launch_server; exec python -msglang.launch_server --port 1'",
    ],
)
def test_a_command_that_only_speaks_of_an_engine_is_not_taken_for_it(words: str) -> None:
    argv = shlex.split(words)
    assert count_engines(argv) == 1
    assert engine_arguments(argv) == ("--port", "1")


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_value_is_no_value(text: str) -> None:
    reading = command_reading(["sglang", "serve", "--speculative-draft-window-size", text], WINDOW)
    assert (reading.known, reading.why) == (Known.UNKNOWN, "--speculative-draft-window-size has an empty value")


@given(st.sampled_from(["512", "40\\96", "'4096'", "40'96'", "'40''96'", '"40"96', "$'4096'"]), st.booleans())
def test_a_value_of_several_quoted_parts_is_replaced_whole(old: str, joined: bool) -> None:
    flag = f"--speculative-draft-window-size{'=' if joined else ' '}{old}"
    text = f"exec python3 -m sglang.launch_server {flag} --port '1' # it's"
    changed = set_flag(("/bin/bash", "-c", text), WINDOW, 1024)
    assert [word.value for word in split_shell(changed[2])[4:]] == [
        *(["--speculative-draft-window-size=1024"] if joined else ["--speculative-draft-window-size", "1024"]),
        *("--port", "1"),
    ]
    assert changed[2].endswith(" --port '1' # it's")


def _without(words: tuple[str, ...], name: str) -> list[str]:
    """All words but the setting's flag and value."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in KNOBS[name].flags:
            skip = True
        elif not any(word.startswith(f"{flag}=") for flag in KNOBS[name].flags):
            kept.append(word)
    return kept
