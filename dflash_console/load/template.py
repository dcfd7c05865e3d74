"""A server's own chat template: which tokens a conversation is, asked of the server that will answer it."""

from __future__ import annotations

import asyncio

import httpx

from ..evidence.values import read_json
from .request import TOKENIZE, Endpoint, Message, prompt_tokens_body, template_body

TOKENIZE_TIMEOUT_S = 10.0
"""Longest wait for ``/tokenize``: it takes milliseconds, and seconds for a prompt of a million characters."""
_REFUSALS = (
    httpx.codes.BAD_REQUEST,
    httpx.codes.UNAUTHORIZED,
    httpx.codes.FORBIDDEN,
    httpx.codes.REQUEST_ENTITY_TOO_LARGE,
    httpx.codes.UNPROCESSABLE_ENTITY,
)
"""The prompt or whoever asks is refused: the chat endpoint would refuse them too, and its words are for chat's users."""
_PASSING = (
    httpx.codes.TOO_MANY_REQUESTS,
    httpx.codes.BAD_GATEWAY,
    httpx.codes.SERVICE_UNAVAILABLE,
    httpx.codes.GATEWAY_TIMEOUT,
)
"""Out of order now, which may be over the next time."""


class NoTemplateTokens(Exception):
    """The server does not turn a conversation into tokens."""

    def __init__(self, message: str, *, lasting: bool = True) -> None:
        super().__init__(message)
        self.lasting = lasting
        """It never will; else it may only be out of order now."""


class ChatTemplate:
    """Asks for each conversation once: copies of a prompt that are sent at the same time share the answer."""

    def __init__(self, http: httpx.AsyncClient, patience_s: float = TOKENIZE_TIMEOUT_S) -> None:
        """
        Args:
            patience_s: longest wait for ``/tokenize`` before the tokens are asked for in the other way.
        """
        self._http = http
        self._patience_s = patience_s
        self._asked: dict[tuple[Message, ...], asyncio.Task[tuple[int, ...]]] = {}

    async def tokens(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        """The tokens that the server's chat endpoint would prefill for ``messages``.

        Raises:
            NoTemplateTokens: the server gives the tokens in neither way, or refuses the prompt.
            httpx.ConnectError, httpx.ConnectTimeout: there is no server.
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
        try:
            async with asyncio.timeout(self._patience_s):
                answer = await self._http.post(TOKENIZE, json=template_body(messages), headers={"Connection": "close"})
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise
        except httpx.HTTPError as problem:
            return await self._ask_by_chat(messages, type(problem).__name__, lasting=False)
        except TimeoutError:
            return await self._ask_by_chat(messages, f"no answer within {self._patience_s:g} s", lasting=False)
        status = answer.status_code
        if status in _REFUSALS:
            raise NoTemplateTokens(f"{TOKENIZE} with messages: {status}")
        tokens = _token_ids(_member(_body(answer), "tokens")) if status == httpx.codes.OK else ()
        return tokens or await self._ask_by_chat(messages, str(status), lasting=status not in _PASSING)

    async def _ask_by_chat(self, messages: tuple[Message, ...], failure: str, *, lasting: bool) -> tuple[int, ...]:
        """The tokens from a chat answer of one token, for a server whose ``/tokenize`` breaks.

        SGLang 0.5.17 answers there with the tokenizer's ``model_max_length``, which is 1e30 where a model's files name none:
        more than its JSON writer takes (``TypeError: Integer exceeds 64-bit range``), and so a 500 for every request. A proxy
        may lack it, or let it hang or break off.

        Args:
            failure: what ``/tokenize`` did, in a word.
            lasting: it will do so the next time.
        """
        said = f"{TOKENIZE} with messages: {failure}, and a chat answer"
        try:
            answer = await self._http.post(Endpoint.CHAT.value, json=prompt_tokens_body(messages))
        except httpx.HTTPError as problem:
            raise NoTemplateTokens(f"{said} did not come ({type(problem).__name__})", lasting=False) from None
        choices = _member(_body(answer), "choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        tokens = _token_ids(_member(first, "prompt_token_ids"))
        if answer.status_code != httpx.codes.OK or not tokens:
            lasting = lasting and answer.status_code not in _PASSING
            raise NoTemplateTokens(f"{said} brought no tokens of its prompt ({answer.status_code})", lasting=lasting)
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
