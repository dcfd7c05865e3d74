"""What a client may see of an answer while it grows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.embedded.api import FinishReason, GenerateRequest, SamplingParams
from engine_launch.embedded.request import RequestState
from engine_launch.embedded.sampling import Sampler
from engine_launch.embedded.server_text import AnswerText
from tests.engine.scripted import EOS, byte_tokenizer

TOKENIZER = byte_tokenizer()
LENGTH = FinishReason("length")


def answer(stop: tuple[str, ...] = ()) -> AnswerText:
    return AnswerText(TOKENIZER.detokenizer(), stop)


def test_half_a_character_is_held_back() -> None:
    text = answer()
    first, second = "é".encode()
    assert text.push([first], None) == ""
    assert text.push([second], None) == "é"


def test_unfinished_character_comes_as_replacement_at_the_end() -> None:
    text = answer()
    assert text.push(["é".encode()[0]], LENGTH) == "�"


def test_beginning_of_a_stop_string_is_held_back_until_it_cannot_be_one() -> None:
    text = answer(("END",))
    assert text.push(b"one E", None) == "one "
    assert text.push(b"N", None) == ""
    assert text.push(b"Joy", None) == "ENJoy"


def test_stop_string_and_what_follows_are_never_shown() -> None:
    text = answer(("END",))
    assert text.push(b"one EN", None) == "one "
    assert text.push(b"Dxyz", FinishReason("stop", "END")) == ""
    assert text.text == "one "


def test_of_two_stop_strings_in_one_step_the_first_counts() -> None:
    text = answer(("END", "STOP"))
    assert text.push(b"a STOP b END", FinishReason("stop", "STOP")) == "a "


def test_held_back_text_is_released_when_the_answer_ends_otherwise() -> None:
    text = answer(("END",))
    text.push(b"one EN", None)
    assert text.push(b"", LENGTH) == "EN"


def test_stop_token_has_no_text() -> None:
    text = answer()
    assert text.push([*b"hi", EOS], FinishReason("stop", EOS)) == "hi"
    ordinary = answer()
    assert ordinary.push(b"hi.", FinishReason("stop", ord("."))) == "hi"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_deltas_add_up_to_the_text_whatever_the_steps(size: int) -> None:
    data = "naïve 😀 text with ENglish".encode()
    text = answer(("END", "ENx"))
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    deltas = [text.push(chunk, None) for chunk in chunks] + [text.push(b"", LENGTH)]
    assert "".join(deltas) == text.text == data.decode()


@given(
    st.text(st.sampled_from("abAé"), max_size=30), st.lists(st.text(st.sampled_from("abA"), min_size=1, max_size=4), max_size=3)
)
def test_shown_text_ends_before_the_first_stop_string(content: str, stops: list[str]) -> None:
    """As the engine does, the answer ends with the byte that completes a stop string."""
    data = content.encode()
    prefixes = [data[:end] for end in range(1, len(data) + 1)]
    seen = next((p for p in prefixes if any(word in p.decode(errors="ignore") for word in stops)), None)
    shown = answer(tuple(stops))
    for at, byte in enumerate(data if seen is None else seen, start=1):
        ends = at == len(data if seen is None else seen)
        shown.push([byte], (LENGTH if seen is None else FinishReason("stop", "any")) if ends else None)
    if seen is None:
        assert shown.text == content
    else:
        text = seen.decode()
        assert shown.text == text[: min(text.find(word) for word in stops if word in text)]


@given(
    st.text("abä€ 😀", min_size=1, max_size=25),
    st.lists(st.text("abä€ 😀", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
)
def test_the_engine_ends_an_answer_where_the_text_ends(content: str, stops: list[str], widths: list[int]) -> None:
    """The engine finds a stop string in its own reading of the tokens, the server cuts in another: they must agree."""
    data = content.encode()
    sampling = SamplingParams(max_new_tokens=len(data), stop=tuple(stops))
    state = RequestState(
        GenerateRequest("a", (1,), sampling),
        lambda event: None,
        sampler=Sampler(sampling, 0),
        stop_ids=frozenset(),
        detokenizer=TOKENIZER.detokenizer(),
    )
    text, begin, shown = answer(tuple(stops)), 0, ""
    for width in itertools.cycle(widths):
        shown += text.push(state.emit(data[begin : begin + width]), state.finish)
        begin += width
        if state.finish is not None:
            break
    ends = [len(content[: content.find(stop)].encode()) + len(stop.encode()) for stop in stops if stop in content]
    assert state.finish is not None
    assert state.finish.type == ("stop" if ends else "length")
    assert len(state.output_ids) == min(ends, default=len(data))
    seen = data[: len(state.output_ids)].decode()
    assert shown == seen[: min((seen.find(stop) for stop in stops if stop in seen), default=len(seen))]
