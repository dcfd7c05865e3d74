"""Seeds for long contexts: documents with a question, and conversations of many turns.

A document is either a long piece of the standard library's source (from the pool) or made of answers that the target gave
to short prompts, one after the other. A conversation begins like a short one and goes on until the room is used up; the
target writes the user's turns as well. So every answer, wherever it stands, is the target's own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from engine_launch.embedded.tokenizer import Tokenizer
from engine_launch.training.dataset import Record
from engine_launch.training.decode import Seed
from engine_launch.training.prompts import DOCUMENT_TOKENS, SYSTEMS, Kind, Opening, chat_prefix
from engine_launch.training.target import END_OF_TEXT, IM_END, IM_START

CONVERSATION_SHARE = 0.4
LIBRARY_SHARE = 0.25
"""Pieces of source among the seeds, while the pool lasts; the rest are documents of the target's own text."""
CONVERSATION_TURNS = 40
"""More than fit: the room ends a conversation."""
DOCUMENT_TURNS = 4
"""Most further turns after the first question about a document."""
CONVERSATION_ANSWER = 320
DOCUMENT_ANSWER = 384
FIRST_TURN_LIMIT = 260
USER_TEMPERATURE = 0.8
"""Of the user's turns that the target writes. At 1 a long conversation soon makes no sense."""
TEXT_ASKS = (
    ("", "\n\nSummarise the texts above."),
    ("", "\n\nWhat are the main points?"),
    ("", "\n\nWhich of these would help a beginner most, and why?"),
    ("", "\n\nMake a list of the topics in the order in which they appear."),
    ("", "\n\nWrite a short introduction to this collection."),
    ("", "\n\nWrite one more text like these."),
    ("", "\n\nExplain the last part in more detail."),
    ("Here are some notes of mine.\n\n", "\n\nTurn them into an outline."),
    ("Read this carefully.\n\n", "\n\nWhat is the first text about?"),
    ("Read this carefully.\n\n", "\n\nAsk me five questions about it and give the answers."),
    ("Rewrite the first paragraph of the following in simpler words.\n\n", ""),
    ("Find mistakes in the following.\n\n", ""),
    ("Which piece of code appears in this text, and what does it do?\n\n", ""),
)
"""What stands before and after a document made of the target's own text."""


class LongSource:
    """Deals seeds whose sequences are 1,200 tokens long or longer; see the module's text for the kinds."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        pool: Iterable[Opening],
        texts: Iterable[Record],
        temperatures: Sequence[float],
        rng: random.Random,
    ) -> None:
        self._rng, self._temperatures = rng, temperatures
        openings = list(pool)
        self._openers = [o for o in openings if o.kind in (Kind.CHAT, Kind.CODE)]
        self._library = [o for o in openings if o.kind is Kind.DOCUMENT]
        self._texts = [
            tuple(t for t in r.tokens[r.answer_start :] if t not in (IM_END, END_OF_TEXT))
            for r in texts
            if r.kind in (Kind.CHAT, Kind.CODE, Kind.FUNCTION)
        ]
        self._between = tokenizer.encode("\n\n")
        self._asks = [
            (tokenizer.encode(chat_prefix(system) + before), tokenizer.encode(after + "<|im_end|>\n<|im_start|>assistant\n"))
            for system in SYSTEMS
            for before, after in TEXT_ASKS
        ]

    def next(self) -> Seed:
        """The next seed."""
        rng = self._rng
        temperature = rng.choice(self._temperatures)
        draw = rng.random()
        if draw < CONVERSATION_SHARE or not (self._library or self._texts):
            given = rng.choice(self._openers).tokens
            limit = len(given) + FIRST_TURN_LIMIT
            return Seed(
                given, True, limit, USER_TEMPERATURE, temperature, CONVERSATION_ANSWER, Kind.CONVERSATION, CONVERSATION_TURNS
            )
        from_library = bool(self._library) and (draw < CONVERSATION_SHARE + LIBRARY_SHARE or not self._texts)
        given = self._library.pop().tokens if from_library else self._own_text()
        turns = rng.randint(0, DOCUMENT_TURNS) if given[0] == IM_START else 0
        return Seed(given, False, len(given), USER_TEMPERATURE, temperature, DOCUMENT_ANSWER, Kind.DOCUMENT, turns)

    def _own_text(self) -> tuple[int, ...]:
        rng = self._rng
        before, after = rng.choice(self._asks)
        most = rng.randint(*DOCUMENT_TOKENS) - len(before) - len(after)
        parts: list[int] = []
        while len(parts) < most:
            parts += (self._between if parts else ()) + rng.choice(self._texts)
        return before + tuple(parts[:most]) + after

    def finished(self, seed: Seed, tokens: tuple[int, ...]) -> None:
        """Nothing follows; conversations have gone on in their slot."""
