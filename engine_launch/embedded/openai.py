"""OpenAI's ``/v1/chat/completions`` and ``/v1/completions`` as SGLang 0.5.17 speaks them: bodies read, answers written.

Shapes are those of recorded answers: ids are bare hex, ``matched_stop`` stands beside ``finish_reason``, a stream begins
with a chunk that only names the role, and usage comes in a chunk of its own when the client asks for it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from engine_launch.embedded.api import FinishReason, GenerateRequest, RequestStats
from engine_launch.embedded.server_answers import Answer, Step
from engine_launch.embedded.server_native import meta_info
from engine_launch.embedded.server_params import BadRequest, Fields, openai_sampling, token_ids
from engine_launch.embedded.tokenizer import ChatMessage, Tokenizer

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for ``/v1/completions``."""
_TEMPLATE_NEUTRAL: dict[str, tuple[object, ...]] = {
    "tools": (),
    "tool_choice": ("none", "auto"),
    "reasoning_effort": (),
    "chat_template_kwargs": (),
}
_ROLES = ("system", "user", "assistant", "tool", "developer")


class Dialect(Enum):
    """Which of the two endpoints; the values are the ``object`` of whole answers."""

    CHAT = "chat.completion"
    COMPLETION = "text_completion"

    @property
    def chunk_object(self) -> str:
        return "chat.completion.chunk" if self is Dialect.CHAT else "text_completion"


@dataclass(frozen=True)
class OpenAICall:
    """A call of either endpoint, checked."""

    dialect: Dialect
    requests: tuple[GenerateRequest, ...]
    model: str
    stream: bool
    include_usage: bool
    """The stream ends with a usage chunk."""
    continuous_usage: bool
    """Every chunk with text carries usage."""
    copies: int
    """Answers per prompt (``n``)."""
    return_meta_info: bool
    """Choices of a whole answer carry ``/generate``'s ``meta_info``."""
    id: str
    created: int


def parse_openai(
    dialect: Dialect, body: Fields, tokenizer: Tokenizer, *, model: str, context_length: int, default_usage: bool
) -> OpenAICall:
    """Read a body of either endpoint.

    Args:
        model: the served name, echoed when the client names none.
        context_length: bounds the answer when the client gives no limit (chat).
        default_usage: streams carry usage even when the client does not ask.

    Raises:
        BadRequest: anything malformed, or that would have to be ignored.
        EngineError: the chat template refuses the messages.
    """
    if body.flag("stream") and body.flag("return_meta_info"):
        # SGLang 0.5.17's words. It cannot stream them; a client tried against this engine must not find that out there.
        raise BadRequest(
            "return_meta_info is not supported with streaming. Please set stream=false when using return_meta_info=true."
        )
    if dialect is Dialect.CHAT:
        prompts = [_template_tokens(body.raw("messages"), tokenizer)]
        default_limit = max(1, context_length - len(prompts[0]))
    else:
        prompts = _prompts(body.raw("prompt"), tokenizer)
        default_limit = COMPLETION_MAX_TOKENS
    sampling = openai_sampling(
        body,
        extra=("messages",) if dialect is Dialect.CHAT else ("prompt",),
        default_max_tokens=default_limit,
    )
    options = Fields.of(body.raw("stream_options"), "stream_options")
    options.only(("include_usage", "continuous_usage_stats"), {"include_obfuscation": (False,)})
    call_id = uuid.uuid4().hex
    prompts = [prompt for prompt in prompts for _ in range(sampling.copies)]
    requests = tuple(
        GenerateRequest(
            rid=call_id if len(prompts) == 1 else f"{call_id}_{index}",
            input_ids=prompt,
            sampling=sampling.copy_params(index % sampling.copies),
            overrides=sampling.overrides,
            record_rounds=sampling.record_rounds,
        )
        for index, prompt in enumerate(prompts)
    )
    return OpenAICall(
        dialect=dialect,
        requests=requests,
        model=body.text("model") or model,
        stream=body.flag("stream"),
        include_usage=options.flag("include_usage", default_usage),
        continuous_usage=options.flag("continuous_usage_stats"),
        copies=sampling.copies,
        return_meta_info=body.flag("return_meta_info"),
        id=call_id,
        created=int(time.time()),
    )


def parse_tokenize(body: Fields, tokenizer: Tokenizer) -> list[int] | list[list[int]]:
    """Read a body of ``/tokenize``: the tokens of a conversation under the chat template, of a text, or of each of several texts.

    Raises:
        BadRequest: neither or both of ``prompt`` and ``messages``, or anything that would have to be ignored.
        EngineError: the chat template refuses the messages.
    """
    body.only(
        ("prompt", "messages"),
        {"add_special_tokens": (True,), "continue_final_message": (False,), **_TEMPLATE_NEUTRAL},
        ("model",),
    )
    if ("prompt" in body) == ("messages" in body):
        raise BadRequest("Exactly one of 'prompt' or 'messages' must be provided.")
    if "messages" in body:
        return list(_template_tokens(body.raw("messages"), tokenizer))
    texts = [list(tokenizer.encode(text)) for text in body.texts("prompt")]
    return texts if isinstance(body.raw("prompt"), list) else texts[0]


def _template_tokens(messages: object, tokenizer: Tokenizer) -> tuple[int, ...]:
    """What the model reads of a conversation, up to where its answer begins."""
    return tokenizer.encode(tokenizer.apply_chat_template(_messages(messages)))


def _messages(value: object) -> list[ChatMessage]:
    if not isinstance(value, list) or not value:
        raise BadRequest("messages must be a list of at least one message.", "messages")
    return [_message(item, f"messages[{index}]") for index, item in enumerate(value)]


def _message(value: object, name: str) -> ChatMessage:
    fields = Fields.of(value, name)
    fields.only(("role", "content"), {"tool_calls": (), "tool_call_id": (), "refusal": ()}, ("name", "reasoning_content"))
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.refuse("role", f"must be one of {', '.join(_ROLES)}")
    content = fields.raw("content")
    if isinstance(content, list):
        content = "".join(_text_part(part, f"{name}.content[{index}]") for index, part in enumerate(content))
    if not isinstance(content, str):
        raise fields.refuse("content", "must be text, or a list of text parts")
    # "developer" is OpenAI's newer word for the system's turn; chat templates know the old one.
    return ChatMessage("system" if role == "developer" else role, content)


def _text_part(value: object, name: str) -> str:
    part = Fields.of(value, name)
    if part.text("type") != "text":
        raise part.refuse("type", f"{part.text('type') or 'none'} is not supported: the model reads text only")
    return part.text("text")


def _prompts(value: object, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """``prompt`` of ``/v1/completions``: text, token ids, or a list of either."""
    items = value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]
    prompts = [tokenizer.encode(item) if isinstance(item, str) else token_ids(item, "prompt") for item in items]
    if not all(prompts):
        raise BadRequest("prompt must be text that is not empty, token ids, or a list of either.", "prompt")
    return prompts


def usage_json(stats: Sequence[RequestStats], copies: int = 1) -> dict[str, object]:
    """Token counts of a call; ``copies`` answers to one prompt count their prompt once, as OpenAI does."""
    prompt = sum(one.prompt_tokens for one in stats[::copies])
    completion = sum(one.completion_tokens for one in stats)
    cached = sum(one.cached_tokens for one in stats[::copies])
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        "reasoning_tokens": 0,
    }


def _finish(finish: FinishReason | None) -> dict[str, object]:
    return {
        "finish_reason": None if finish is None else finish.type,
        "matched_stop": None if finish is None else finish.matched,
    }


def whole_answer(call: OpenAICall, answers: tuple[Answer, ...], last: list[Step]) -> dict[str, object]:
    """The body of an answer that is not streamed."""
    choices = []
    for answer, step in zip(answers, last, strict=True):
        choice: dict[str, object] = {"index": answer.index}
        if call.dialect is Dialect.CHAT:
            choice["message"] = {
                "role": "assistant",
                "content": answer.text,
                "reasoning_content": None,
                "tool_calls": None,
            }
        else:
            choice["text"] = answer.text
        choice.update({"logprobs": None, **_finish(step.finish)})
        if call.return_meta_info:
            choice["meta_info"] = meta_info(answer, step, sent=True)
        choices.append(choice)
    return {
        "id": call.id,
        "object": call.dialect.value,
        "created": call.created,
        "model": call.model,
        "choices": choices,
        "usage": usage_json([step.stats for step in last], call.copies),
        "metadata": {"weight_version": "default"},
    }


class StreamWriter:
    """The chunks of one streamed call."""

    def __init__(self, call: OpenAICall) -> None:
        self._call = call
        self._stats: dict[int, RequestStats] = {}

    def chunks(self, answer: Answer, step: Step) -> list[dict[str, object]]:
        """The chunks that one step of one answer makes."""
        call, index = self._call, answer.index
        self._stats[index] = step.stats
        chunks = []
        if step.first and call.dialect is Dialect.CHAT:
            role = {"delta": {"reasoning_content": None, "role": "assistant", "content": ""}}
            chunks.append(self._chunk({"index": index, **role}, None, None))
        # Chat tells of tokens with their text only: those that end within a character are counted with the next chunk.
        chat = call.dialect is Dialect.CHAT
        if step.delta or (not chat and call.continuous_usage and step.token_ids and step.finish is None):
            chunks.append(self._chunk({"index": index, **self._content(step.delta)}, None, step.stats))
        if step.finish is not None:
            chunks.append(self._chunk({"index": index, **self._content(None)}, step.finish, None if chat else step.stats))
        return chunks

    def usage(self) -> dict[str, object]:
        """The chunk after the last choice that carries the whole call's usage."""
        stats = [self._stats[index] for index in sorted(self._stats)]
        return {**self._head(), "choices": [], "usage": usage_json(stats, self._call.copies)}

    def _content(self, text: str | None) -> dict[str, object]:
        if self._call.dialect is Dialect.COMPLETION:
            return {"text": text or ""}
        return {"delta": {"reasoning_content": None} | ({} if text is None else {"content": text})}

    def _head(self) -> dict[str, object]:
        call = self._call
        return {"id": call.id, "object": call.dialect.chunk_object, "created": call.created, "model": call.model}

    def _chunk(self, choice: dict[str, object], finish: FinishReason | None, stats: RequestStats | None) -> dict[str, object]:
        """``stats``: those so far, where such a chunk carries them when asked to."""
        chunk = {**self._head(), "choices": [{**choice, "logprobs": None, **_finish(finish)}]}
        return {**chunk, "usage": usage_json([stats])} if stats is not None and self._call.continuous_usage else chunk
