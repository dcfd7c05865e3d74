"""Text and ids: streaming never shows half a character, control tokens are left out, templates run in a sandbox."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.tokenizer import ChatMessage, Tokenizer, TokenizerData, build_bpe, byte_alphabet


def data(pre: str = "smollm", model: str = "gpt2") -> TokenizerData:
    tokens = ("<|end|>", "<|start|>", *byte_alphabet(), "he", "hel")
    return TokenizerData(model, pre, tokens, (0, 1), ("h e", "he l"), 1, 0, False, None)


def tokenizer(template: str | None = None) -> Tokenizer:
    return Tokenizer(build_bpe(data()), eos_token_id=0, bos_token_id=1, control_ids=(0, 1), chat_template=template)


TOKENIZER = tokenizer()


@given(st.text(max_size=60))
def test_decoding_gives_back_what_was_encoded(text: str) -> None:
    encoded = TOKENIZER.encode(text)
    assert TOKENIZER.decode(encoded, skip_special=False) == text


@given(st.text(max_size=40).filter(lambda text: "<|" not in text), st.lists(st.integers(1, 5), max_size=20))
def test_a_stream_of_any_cuts_adds_up_to_the_text_and_never_shows_half_a_character(text: str, cuts: list[int]) -> None:
    ids = TOKENIZER.encode(text)
    stream, parts, at = TOKENIZER.detokenizer(), [], 0
    for cut in [*cuts, len(ids)]:
        parts.append(stream.push(ids[at : at + cut]))
        at += cut
    assert "".join(parts) == text
    assert all("\N{REPLACEMENT CHARACTER}" not in part for part in parts if "\N{REPLACEMENT CHARACTER}" not in text)
    assert stream.flush() == ""


def test_an_unfinished_character_shows_only_at_the_end() -> None:
    euro = TOKENIZER.encode("€")
    assert len(euro) == 3
    stream = TOKENIZER.detokenizer()
    assert stream.push(euro[:2]) == ""
    assert stream.flush() == "\N{REPLACEMENT CHARACTER}"


def test_control_tokens_are_known_by_name_and_left_out_of_answers() -> None:
    ids = TOKENIZER.encode("<|start|>hi<|end|>")
    assert ids[0] == 1
    assert ids[-1] == 0
    assert TOKENIZER.decode(ids) == "hi"
    assert TOKENIZER.decode(ids, skip_special=False) == "<|start|>hi<|end|>"
    assert TOKENIZER.token_text(1) == "<|start|>"


def test_an_unknown_id_stands_for_nothing() -> None:
    assert TOKENIZER.decode([999_999]) == ""


def test_a_model_without_template_says_what_to_use_instead() -> None:
    with pytest.raises(EngineError, match="/v1/completions"):
        TOKENIZER.apply_chat_template([ChatMessage("user", "hi")])


def test_a_template_that_refuses_gives_its_reason() -> None:
    with pytest.raises(EngineError, match="roles must alternate"):
        tokenizer("{{ raise_exception('roles must alternate') }}").apply_chat_template([ChatMessage("user", "hi")])


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{% for i in range(10 ** 9) %}a{% endfor %}", "{{ 'a' + 1 }}"])
def test_a_template_that_fails_is_no_error_of_the_servers(template: str) -> None:
    with pytest.raises(EngineError, match="the model's chat template failed: "):
        tokenizer(template).apply_chat_template([ChatMessage("user", "hi")])


def test_a_template_cannot_leave_its_sandbox() -> None:
    with pytest.raises(EngineError, match="refused"):
        tokenizer("{{ ''.__class__.__mro__[1].__subclasses__() }}").apply_chat_template([ChatMessage("user", "hi")])


@pytest.mark.parametrize(
    ("pre", "model", "message"), [("llama3", "gpt2", "pre-tokenizer 'llama3'"), ("smollm", "spm", "kind 'spm'")]
)
def test_tokenizers_of_other_kinds_are_refused(pre: str, model: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        build_bpe(data(pre, model))


@pytest.mark.parametrize(("pre", "tokens"), [("smollm", 2), ("gpt-2", 1)])
def test_smollm_splits_every_digit_off_even_where_a_merge_exists(pre: str, tokens: int) -> None:
    plain = data(pre)
    merged = TokenizerData("gpt2", pre, (*plain.tokens, "12"), plain.control_ids, (*plain.merges, "1 2"), 1, 0, False, None)
    assert len(build_bpe(merged).encode("12").ids) == tokens
