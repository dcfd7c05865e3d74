"""Two answers side by side: were they asked the same, is the text the same, how much faster? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import TYPE_CHECKING

from .. import formats

if TYPE_CHECKING:
    from ..load.records import RequestRecord
    from ..load.request import PromptRequest

NEAR_TIES = (
    "In bf16 two nearly equal logits can change places with the number of rows in a pass, and all that follows is then "
    "another text: one good answer that parts from another is most often that. A wrong tree parts in most answers, early, "
    "and reads badly."
)
"""What a parting of two greedy answers does and does not mean."""
NO_NEAR_TIES = (
    "In fp32 a greedy answer is plain decoding's to the last token: either the tree is verified wrongly, or the two were not "
    "answered by the same model with the same context."
)
"""The same where near-ties are no excuse."""


@dataclass(frozen=True)
class KeptAnswer:
    """A finished answer with what was asked for it."""

    name: str
    asked: PromptRequest
    record: RequestRecord
    precision: str = ""
    """The format in which the server computed it (``bf16``); empty when it is not known."""


class Agreement(Enum):
    """What two answers say of each other."""

    SAME = "same output"
    NEAR_TIE = "they part, as right answers may"
    OTHER = "they part, and right answers would not"
    UNJUDGED = "no equal output was to be expected"


def asked_otherwise(one: PromptRequest, other: PromptRequest) -> str:
    """What the two questions differ in, apart from engine settings; empty when an equal output is to be expected."""
    if one.text != other.text:
        return "another prompt"
    if one.endpoint is not other.endpoint:
        return "one with the chat template, one without"
    if one.temperature != other.temperature:
        return f"temperature {one.temperature:g} against {other.temperature:g}"
    if one.max_tokens != other.max_tokens:
        return f"up to {one.max_tokens} tokens against {other.max_tokens}"
    return ""


@dataclass(frozen=True)
class Judgement:
    """What two answers say of each other, in words."""

    agreement: Agreement
    words: str
    """``same output ✓``, where the two part, or why they say nothing about each other."""
    note: str = ""
    """What a parting means where the server computes as it does; it may be cut off before the words are."""


def judgement(other: KeptAnswer, answer: KeptAnswer) -> Judgement:
    """Whether ``other`` and ``answer`` agree, and whether they had to."""
    from ..evidence.precision import FP32
    from ..load.summary import same_output

    otherwise = asked_otherwise(other.asked, answer.asked)
    if otherwise:
        return Judgement(Agreement.UNJUDGED, f"asked otherwise: {otherwise}")
    if answer.asked.temperature > 0:
        return Judgement(Agreement.UNJUDGED, "T > 0: outputs differ by chance")
    result = same_output(other.record, answer.record)
    if result.at is None:
        return Judgement(Agreement.SAME, "same output ✓")
    place = f"{'token' if result.by == 'tokens' else 'character'} {result.at + 1}"
    formats_used = {other.precision, answer.precision}
    if formats_used == {FP32}:
        return Judgement(Agreement.OTHER, f"another output ✗ from {place} on")
    rounded = sorted(formats_used - {FP32, ""})
    where = f"{' and '.join(rounded)}: " if rounded else "unless this is fp32, "
    return Judgement(Agreement.NEAR_TIE, f"parts at {place}", f"{where}near-ties may fall either way")


def comparison_words(other: KeptAnswer, answer: KeptAnswer) -> str:
    """``plain: same output ✓ · 29.1 tok/s, this 48.3 (1.66×)``."""
    if other.record.error:
        return f"{other.name}: ✗ {other.record.error}"
    judged = judgement(other, answer)
    parts = [judged.words]
    theirs, ours = other.record.decode_tok_s, answer.record.decode_tok_s
    if theirs and ours:
        speeds = f"{formats.tokens_per_second(theirs)} tok/s, this {formats.tokens_per_second(ours)}"
        parts.append(f"{speeds} ({ours / theirs:.2f}×)")
    if judged.note:
        parts.append(judged.note)
    return f"{other.name}: {' · '.join(parts)}"


def parts_at(other: KeptAnswer, answer: KeptAnswer) -> int | None:
    """The first character in which the texts differ; ``None`` when they are the same."""
    if other.record.text == answer.record.text:
        return None
    pairs = zip_longest(other.record.text, answer.record.text)
    return next(index for index, (theirs, ours) in enumerate(pairs) if theirs != ours)


def without(answers: Sequence[KeptAnswer], answer: KeptAnswer) -> tuple[KeptAnswer, ...]:
    """The answers that ``answer`` can be compared with: finished without an error, and not itself."""
    return tuple(kept for kept in answers if kept.record is not answer.record and not kept.record.error)
