"""Answers while they stream, the tree of one verify, and comparisons."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.load.records import Chunk, RequestRecord
from dflash_console.load.request import Endpoint, PromptRequest
from dflash_console.tui.answers import Answer
from dflash_console.tui.comparison import Agreement, KeptAnswer, comparison_words, judgement, parts_at
from dflash_console.tui.prompt_runner import PromptError, make_requests
from dflash_console.tui.tree import PictureError, draw_tree, read_pictures, summary

from .recorded import ROUND
from .support import answer_record


def test_an_answer_says_for_how_long_nothing_has_come_until_something_comes() -> None:
    answer = Answer(0, silent_s=7)
    assert answer.figures(brief=True).startswith("nothing has come yet for 7 s")
    answer.add(Chunk(0, "Here", 7.5, tokens=1, first=True))
    assert "nothing" not in answer.figures(brief=True)
    answer.silent_s = 9
    assert answer.figures(brief=True).endswith("nothing more for 9 s")


def streamed() -> Answer:
    answer = Answer(0)
    for index, (text, tokens) in enumerate((("Here", 1), (" is a", 2), (" function", 1), (" that", 4))):
        answer.add(Chunk(0, text, 0.2 + index * 0.1, tokens=tokens, first=index == 0))
    return answer


def test_speed_counts_tokens_after_the_first_and_not_events() -> None:
    assert streamed().decode_tok_s == pytest.approx(7 / 0.3)


def test_commit_length_while_streaming_leaves_the_first_event_out() -> None:
    assert streamed().commit_length == pytest.approx(7 / 3)


def test_an_event_of_unknown_size_makes_the_count_unknown_and_not_wrong() -> None:
    answer = streamed()
    answer.add(Chunk(0, "x", 0.9, tokens=None))
    assert answer.decode_tok_s is None
    assert "? tokens" in answer.figures()


def test_the_servers_own_figures_win_once_the_answer_has_ended() -> None:
    answer = streamed()
    answer.record = answer_record(0, "Here is a function that")
    assert "commit 3.00" in answer.figures()
    assert "4 verifies" in answer.figures()
    assert "stop" in answer.figures()


def test_a_failed_answer_shows_its_reason() -> None:
    answer = Answer(0, record=answer_record(0, "", error="the server refused the request (400): too long"))
    assert answer.figures() == "✗ the server refused the request (400): too long"


def test_neighbouring_verifies_have_different_shades() -> None:
    text = streamed().shaded(("#111111", "#222222", "#333333"))
    grounds = [str(span.style) for span in text.spans]
    assert text.plain == "Here is a function that"
    assert all(left != right for left, right in pairwise(grounds))


def kept(name: str, record: RequestRecord, text: str = "hello", precision: str = "fp32", **asked: object) -> KeptAnswer:
    return KeptAnswer(name, replace(PromptRequest.of(text), **asked), record, precision)  # type: ignore[arg-type]


def test_without_shades_every_other_verify_is_underlined() -> None:
    text = streamed().shaded(())
    assert [text.plain[span.start : span.end] for span in text.spans if "underline" in str(span.style)] == [" is a", " that"]


def test_same_output_is_said_for_greedy_answers_and_not_claimed_for_warm_ones() -> None:
    left, right = answer_record(0, "abc"), answer_record(0, "abc", decode_tok_s=60.0)
    words = comparison_words(kept("plain", left), kept("this", right))
    assert words.startswith("plain: same output ✓")
    assert "2.00×" in words
    assert "same" not in comparison_words(kept("plain", left, temperature=0.7), kept("this", right, temperature=0.7))


def test_another_output_names_the_place() -> None:
    left, right = answer_record(0, "abc", token_ids=(1, 2, 3)), answer_record(0, "abd", token_ids=(1, 2, 4))
    assert "another output ✗ from token 3 on" in comparison_words(kept("plain", left), kept("this", right))
    assert parts_at(kept("plain", left), kept("this", right)) == 2


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("bf16", "bf16", "bf16: near-ties may fall either way"),
        ("fp32", "fp16", "fp16: near-ties may fall either way"),
        ("bf16", "", "bf16: near-ties may fall either way"),
        ("", "", "unless this is fp32, near-ties may fall either way"),
        ("fp32", "", "unless this is fp32, near-ties may fall either way"),
    ],
)
def test_where_near_ties_may_fall_either_way_a_parting_is_no_fault(one: str, other: str, words: str) -> None:
    left, right = answer_record(0, "abc", token_ids=(1, 2, 3)), answer_record(0, "abd", token_ids=(1, 2, 4))
    plain, this = kept("plain", left, precision=one), kept("this", right, precision=other)
    assert judgement(plain, this).agreement is Agreement.NEAR_TIE
    speeds = "30.0 tok/s, this 30.0 (1.00×)"
    assert comparison_words(plain, this) == f"plain: parts at token 3 · {speeds} · {words}"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"text": "goodbye"}, "another prompt"),
        ({"temperature": 0.5}, "temperature 0.5 against 0"),
        ({"max_tokens": 9}, "up to 9 tokens against 256"),
        ({"endpoint": Endpoint.GENERATE}, "one with the chat template, one without"),
    ],
)
def test_answers_to_different_questions_are_not_judged(asked: dict[str, object], words: str) -> None:
    other = kept("earlier", answer_record(0, "xyz"), **asked)  # type: ignore[arg-type]
    said = comparison_words(other, kept("this", answer_record(0, "abc")))
    assert f"asked otherwise: {words}" in said
    assert "output" not in said


@given(st.text(), st.text())
def test_texts_part_where_their_common_beginning_ends(left: str, right: str) -> None:
    at = parts_at(kept("other", answer_record(0, left)), kept("this", answer_record(0, right)))
    if at is None:
        assert left == right
    else:
        assert left[:at] == right[:at]
        assert left[at : at + 1] != right[at : at + 1]


def test_a_raw_text_is_sent_as_it_stands_and_a_chat_turn_without_its_edges() -> None:
    (raw,) = make_requests("def f(x):\n    ", "1", "0", "9", raw=True)
    (chat,) = make_requests(" hello \n", "1", "0", "9")
    assert (raw.endpoint, raw.text) == (Endpoint.GENERATE, "def f(x):\n    ")
    assert (chat.endpoint, chat.text) == (Endpoint.CHAT, "hello")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (("0", "0", "9"), "n "),
        (("1", "9", "9"), "T "),
        (("1", "0", "no"), "max "),
        (("1", "x", "9"), "T "),
        # What Python calls a digit and reads as no number, and more digits than it reads.
        (("²", "0", "9"), "n "),
        (("1", "0", "9" * 5000), "max "),
    ],
)
def test_fields_that_cannot_be_read_are_named(fields: tuple[str, str, str], name: str) -> None:
    with pytest.raises(PromptError) as error:
        make_requests("hello", *fields)
    assert str(error.value).startswith(name)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(PromptError, match="empty"):
        make_requests("  ", "1", "0", "9")


def test_a_verify_is_read_with_its_path_and_expectation() -> None:
    (picture,) = read_pictures({"rounds": [ROUND]})
    assert picture.commit_length == 3
    assert picture.expected == pytest.approx(1 + 0.905 + 0.670 + 0.082 + 0.407, abs=0.01)
    assert "commit 3 (expected 3.1)" in summary(picture)
    assert "40 ms" in summary(picture)


def test_the_tree_shows_accepted_nodes_and_where_the_target_left_it() -> None:
    (picture,) = read_pictures([ROUND])
    text = [line.plain for line in draw_tree(picture, accepted="green", quiet="dim")]
    assert text[0].startswith("● ·def")
    assert text[1].startswith("├─ ● ·merge")
    assert any("◆ (left" in line for line in text)
    assert any("○ ·sort" in line for line in text)


def test_a_record_of_another_form_is_refused_in_words() -> None:
    with pytest.raises(PictureError):
        read_pictures({"rounds": [{"round": 1}]})
