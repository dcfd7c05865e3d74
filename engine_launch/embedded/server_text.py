"""From token ids to the text that a client may see.

Two things hold text back: half a UTF-8 character (the detokeniser's business) and the beginning of what may become a stop
string (this module's). Both are released when they can no longer turn into something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine_launch.embedded.api import FinishReason
from engine_launch.embedded.tokenizer import Detokenizer


class AnswerText:
    """The visible text of one answer while its tokens arrive."""

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._stop = tuple(word for word in stop if word)
        self._raw = ""
        self.text = ""
        """Everything released so far."""

    def push(self, token_ids: Sequence[int], finish: FinishReason | None) -> str:
        """Add one step's tokens; returns the text that it releases.

        With ``finish`` everything held back is released, except what a stop ended: the stop string and all after it, or
        the stop token.
        """
        ids = list(token_ids)
        if finish is not None and isinstance(finish.matched, int) and ids and ids[-1] == finish.matched:
            ids.pop()
        searched = max(0, len(self._raw) - max((len(word) for word in self._stop), default=0) + 1)
        self._raw += self._detokenizer.push(ids)
        if finish is not None:
            self._raw += self._detokenizer.flush()
        end = len(self._raw)
        found = [at for word in self._stop if (at := self._raw.find(word, searched)) >= 0]
        if found:
            end = min(found)
        elif finish is None:
            end -= self._held_back()
        released = self._raw[len(self.text) : end]
        self.text += released
        return released

    def _held_back(self) -> int:
        """Length of the longest tail of the text that begins a stop string."""
        longest = max((len(word) for word in self._stop), default=0)
        for size in range(min(longest - 1, len(self._raw)), 0, -1):
            if any(word.startswith(self._raw[-size:]) for word in self._stop):
                return size
        return 0
