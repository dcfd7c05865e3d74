"""What a prompt asks of the server, and the JSON bodies of the two endpoints that can answer it."""

from __future__ import annotations

from collections.abc import Mapping
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
    """SGLang's own endpoint: the text is continued as it stands. The only one of stock SGLang that reports verify calls
    and the histogram of each request."""


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


def request_body(request: PromptRequest, *, model: str = "default") -> dict[str, JsonValue]:
    """The JSON body that streams an answer to ``request``.

    For chat, ``return_meta_info`` asks for the figures that ``/generate`` reports by itself; a server that does not know
    the field ignores it, and the answer then carries token counts only (``stream_options``).
    """
    if request.endpoint is Endpoint.GENERATE:
        return {"text": request.text, "sampling_params": _sampling_params(request), "stream": True}
    body: dict[str, JsonValue] = {
        "model": model,
        "messages": [{"role": message.role.value, "content": message.content} for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_meta_info": True,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.ignore_eos:
        body["ignore_eos"] = True
    if request.custom_params:
        body["custom_params"] = dict(request.custom_params)
    return body


def _sampling_params(request: PromptRequest) -> dict[str, JsonValue]:
    params: dict[str, JsonValue] = {
        "max_new_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    if request.seed is not None:
        params["sampling_seed"] = request.seed
    if request.ignore_eos:
        params["ignore_eos"] = True
    if request.custom_params:
        params["custom_params"] = dict(request.custom_params)
    return params
