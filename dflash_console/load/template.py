"""A server's own chat template: which tokens a conversation is, asked of the server that will answer it."""

from __future__ import annotations

import asyncio

import httpx

from ..evidence.values import read_json
from .request import TOKENIZE, Endpoint, Message, prompt_tokens_body, template_body


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
        # A server whose handler broke closes the connection after the answer; a prompt that took it over would break off.
        answer = await self._http.post(TOKENIZE, json=template_body(messages), headers={"Connection": "close"})
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            return await self._ask_by_chat(messages)
        if answer.status_code != httpx.codes.OK:
            raise NoTemplateTokens(f"{TOKENIZE} with messages: {answer.status_code}", lasting=answer.status_code < 500)
        tokens = _token_ids(_member(_body(answer), "tokens"))
        if not tokens:
            raise NoTemplateTokens(f"{TOKENIZE} with messages brought no tokens")
        return tokens

    async def _ask_by_chat(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """The tokens from a chat answer of one token, for a server whose ``/tokenize`` breaks.

        SGLang 0.5.17 answers there with the tokenizer's ``model_max_length``, which is 1e30 where a model's files name none:
        more than its JSON writer takes (``TypeError: Integer exceeds 64-bit range``), and so a 500 for every request.
        """
        answer = await self._http.post(Endpoint.CHAT.value, json=prompt_tokens_body(messages))
        choices = _member(_body(answer), "choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        tokens = _token_ids(_member(first, "prompt_token_ids"))
        if answer.status_code != httpx.codes.OK or not tokens:
            raise NoTemplateTokens(f"{TOKENIZE} with messages: 500, and a chat answer brought no tokens of its prompt")
        return tokens


def _body(answer: httpx.Response) -> object:
    try:
        return read_json(answer.text)
    except ValueError:
        return None


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _token_ids(value: object) -> tuple[int, ...]:
    """Empty for what is no list of tokens."""
    if not isinstance(value, list):
        return ()
    tokens = tuple(token for token in value if type(token) is int)
    return tokens if len(tokens) == len(value) else ()
