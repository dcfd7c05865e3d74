"""From proofs to a verdict: wrong values first, then values that nothing confirms."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..evidence.engine_log import REPLACED, lines_like_confirmation
from ..evidence.journal import LogLine
from ..evidence.secrets import mask_text
from ..evidence.terminal_text import clean_line
from ..knobs import show_value
from ..proof import KnobProof, Proof
from .records import StageFailed, Verdict

_LOG_LINE = re.compile(r"^log line (\d+)")


def judge(proofs: Sequence[KnobProof], lines: Sequence[LogLine]) -> None:
    """Accept when every value is proven or cannot be proven on this engine.

    Raises:
        StageFailed: another value is in effect, or evidence that this engine gives was not seen.
    """
    for proof in proofs:
        if proof.proof is Proof.OTHER:
            raise wrong_value(proof, lines)
    for proof in proofs:
        if proof.proof is Proof.MISSING:
            nearest = lines_like_confirmation(lines)
            wanted = "left to the engine" if proof.wanted is None else show_value(proof.wanted)
            reason = f"the server answers, but no line of this start confirms {proof.knob.title.lower()} {wanted}"
            if proof.reading is not None and proof.reading.why.startswith(REPLACED):
                reason += f": {proof.reading.why}"
            reason += f"; the nearest line: {shown_text(nearest[0].text)}" if nearest else "; no line looks like a confirmation"
            raise StageFailed(Verdict.NO_LINE, reason, nearest)


def wrong_value(proof: KnobProof, lines: Sequence[LogLine]) -> StageFailed:
    """The failure for a value that is not the wanted one, with the line that says so."""
    match = _LOG_LINE.match(proof.reading.where) if proof.reading is not None else None
    cause = tuple(line for line in lines if match is not None and line.number == int(match[1]))
    text = f": {shown_text(cause[0].text)}" if cause else ""
    return StageFailed(Verdict.OTHER_VALUE, f"{proof.words}{text}", cause)


def shown_text(text: str) -> str:
    """An engine's line as a part of a sentence: reasons go to screens, history and the audit file, so escapes and secrets go."""
    return mask_text(clean_line(text))


def overall(proofs: Sequence[KnobProof]) -> Verdict:
    """The verdict when nothing failed: one setting without evidence makes the whole unknown."""
    return Verdict.UNKNOWN if any(proof.proof is Proof.UNPROVABLE for proof in proofs) else Verdict.CONFIRMED
