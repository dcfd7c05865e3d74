"""A server's own chat template: which tokens a conversation is, asked of the server that will answer it."""

from __future__ import annotations

import asyncio

import httpx

from ..evidence.values import read_json
from .request import TOKENIZE, Message, template_body


class NoTemplateTokens(Exception):
    """The server does not turn a conversation into tokens."""

    def __init__(self, message: str, *, lasting: bool = True) -> None:
        super().__init__(message)
        self.lasting = lasting
        """It never will; else it may only be out of order now."""


class ChatTemplate:
    """Asks for each conversation once: copies of a prompt that are sent at the same time share the answer."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._asked: dict[tuple[Message, ...], asyncio.Task[tuple[int, ...]]] = {}

    async def tokens(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """The tokens that the server's chat endpoint would prefill for ``messages``.

        Raises:
            NoTemplateTokens: the server has no such endpoint, takes no messages there, or has no template.
            httpx.HTTPError: no answer.
        """
        task = self._asked.get(messages)
        if task is None:
            task = self._asked[messages] = asyncio.create_task(self._ask(messages))
        # Shielded: when one of several copies is cancelled, the others still wait for the same answer.
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        answer = await self._http.post(TOKENIZE, json=template_body(messages))
        if answer.status_code != httpx.codes.OK:
            raise NoTemplateTokens(f"{TOKENIZE} with messages: {answer.status_code}", lasting=answer.status_code < 500)
        try:
            body = read_json(answer.text)
        except ValueError:
            body = None
        tokens = body.get("tokens") if isinstance(body, dict) else None
        if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
            raise NoTemplateTokens(f"{TOKENIZE} with messages brought no tokens")
        return tuple(tokens)
