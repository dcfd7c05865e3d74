"""Two answers to one prompt in one sentence: the same text? how much faster? Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import formats

if TYPE_CHECKING:
    from ..load.records import RequestRecord


def comparison_words(name: str, other: RequestRecord, answer: RequestRecord, *, greedy: bool) -> str:
    """``plain: same output ✓ · 29.1 tok/s, this 48.3 (1.66×)``.

    At a temperature above 0 outputs differ by chance, so only the speeds are compared.
    """
    from ..load.summary import same_output

    if other.error:
        return f"{name}: ✗ {other.error}"
    parts = []
    if greedy:
        result = same_output(other, answer)
        where = (
            "" if result.at is None else f" from {result.by[:-1] if result.by == 'tokens' else 'character'} {result.at + 1} on"
        )
        parts.append("same output ✓" if result.same else f"another output ✗{where}")
    else:
        parts.append("T > 0: outputs differ by chance")
    if other.decode_tok_s and answer.decode_tok_s:
        parts.append(
            f"{formats.tokens_per_second(other.decode_tok_s)} tok/s, "
            f"this {formats.tokens_per_second(answer.decode_tok_s)} ({answer.decode_tok_s / other.decode_tok_s:.2f}×)"
        )
    return f"{name}: {' · '.join(parts)}"
