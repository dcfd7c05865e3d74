"""What a prompt asks of the server, and the JSON bodies of the two endpoints that can answer it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
"""What a request body is made of."""

ParamValue = int | float | bool
"""A value in ``sampling_params.custom_params``."""


class Endpoint(Enum):
    """Where a prompt goes."""

    CHAT = "/v1/chat/completions"
    """The server applies its chat template: the prompt is a user's turn."""
    GENERATE = "/generate"
    """SGLang's own endpoint: the text is continued as it stands. The only one of stock SGLang whose streams report verify calls
    and the histogram of each request: its chat endpoint refuses ``return_meta_info`` with ``stream`` (0.5.17, HTTP 400)."""


TOKENIZE = "/tokenize"
"""Where the server says which tokens a conversation is. With ``messages`` (SGLang 0.5.17) it renders them exactly as its chat
endpoint does, generation prompt included, so that ``/generate`` can answer a user's turn and report its figures."""


class Extra(Enum):
    """Asked of a server for the figures' sake, not for the user's; one that refuses it is asked again without."""

    TOKENS = "/tokenize with messages"
    """Answer a user's turn by ``/tokenize`` and ``/generate``."""
    USAGE_OF_CHUNKS = "continuous_usage_stats"
    """The running token count in each chunk of a chat answer."""
    USAGE = "stream_options"
    """Any token count in a chat answer."""


class Role(Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class PromptRequest:
    """One prompt with its sampling settings; the same record serves both endpoints."""

    messages: tuple[Message, ...]
    endpoint: Endpoint = Endpoint.CHAT
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    """Go on to ``max_tokens``: runs of equal length are easier to compare."""
    custom_params: Mapping[str, ParamValue] = field(default_factory=dict)
    """Per-request engine settings (``ddtree_budget``, ``ddtree_topk``, ``speculative`` …); empty for stock SGLang."""
    openai: bool = False
    """A user's turn goes to the chat endpoint itself, as OpenAI's clients send it: with the sampling defaults of the model's
    ``generation_config.json``, the server's reasoning parser, and no figures of verifies."""

    @classmethod
    def of(
        cls, text: str, *, endpoint: Endpoint = Endpoint.CHAT, max_tokens: int = 256, temperature: float = 0.0
    ) -> PromptRequest:
        """A single user's turn."""
        return cls((Message(Role.USER, text),), endpoint, max_tokens, temperature)

    @property
    def text(self) -> str:
        """The prompt as one text: what ``/generate`` continues, and what lists show."""
        return "\n\n".join(message.content for message in self.messages)


def template_body(messages: tuple[Message, ...]) -> dict[str, JsonValue]:
    """The body of ``/tokenize`` that asks for the tokens of a conversation under the server's own chat template."""
    return {"messages": _turns(messages)}


def prompt_tokens_body(messages: tuple[Message, ...]) -> dict[str, JsonValue]:
    """The body of a chat request for one token, which brings the prompt's tokens along.

    Salted, so that the real answer finds nothing of this one in the server's prefix cache and its TTFT is what it would be.
    Sampling is neutral, whatever the model's own defaults: DDTREE refuses penalties.
    """
    return {
        "model": "default",
        "messages": _turns(messages),
        "max_tokens": 1,
        "temperature": 0.0,
        "repetition_penalty": 1.0,
        "stream": False,
        "return_prompt_token_ids": True,
        "cache_salt": "ddtree-console: tokens of a prompt",
    }


def request_body(
    request: PromptRequest,
    *,
    model: str = "default",
    input_ids: tuple[int, ...] = (),
    without: Collection[Extra] = (),
) -> dict[str, JsonValue]:
    """The JSON body that streams an answer to ``request``.

    Args:
        input_ids: the prompt as tokens: the body is then one of ``/generate``, whatever the endpoint.
        without: what this server refuses.
    """
    if input_ids or request.endpoint is Endpoint.GENERATE:
        prompt: dict[str, JsonValue] = {"input_ids": list(input_ids)} if input_ids else {"text": request.text}
        return {**prompt, "sampling_params": _sampling(request, tokens="max_new_tokens", seed="sampling_seed"), "stream": True}
    body: dict[str, JsonValue] = {
        "model": model,
        "messages": _turns(request.messages),
        **_sampling(request, tokens="max_tokens", seed="seed"),
        "stream": True,
    }
    if Extra.USAGE not in without:
        each_chunk: dict[str, JsonValue] = {} if Extra.USAGE_OF_CHUNKS in without else {"continuous_usage_stats": True}
        body["stream_options"] = {"include_usage": True, **each_chunk}
    return body


def _turns(messages: tuple[Message, ...]) -> list[JsonValue]:
    return [{"role": message.role.value, "content": message.content} for message in messages]


def _sampling(request: PromptRequest, *, tokens: str, seed: str) -> dict[str, JsonValue]:
    """What a request asks of sampling; the endpoints have two names of their own for it."""
    params: dict[str, JsonValue] = {
        tokens: request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    if request.seed is not None:
        params[seed] = request.seed
    if request.ignore_eos:
        params["ignore_eos"] = True
    if request.custom_params:
        params["custom_params"] = dict(request.custom_params)
    return params
