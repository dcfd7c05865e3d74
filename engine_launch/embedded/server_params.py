"""What a client's JSON asks for, checked: nothing that the engine would not honour gets through silently.

A parameter is honoured, or it stands at its neutral value (``frequency_penalty: 0``) and changes nothing, or the request
is refused with a message that names it. Names are SGLang's (``/generate``) and OpenAI's (``/v1/…``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from engine_launch.embedded.api import RequestOverrides, SamplingParams

MAX_COPIES = 8
"""Largest ``n``: answers to one prompt asked for at once."""
MAX_STOPS = 32
"""Most stop strings of one request: every token is held against all of them."""
MAX_STOP_CHARACTERS = 1000
MAX_NUMBER = 1e300
"""Larger numbers (JSON has no bound, and Python reads ``Infinity``) are none that a sampler could use."""
MAX_INTEGER = (1 << 63) - 1
"""Largest whole number that is read: what a seed or a tensor index can be."""
DEFAULT_MAX_NEW_TOKENS = 128
"""SGLang's default for ``/generate``."""


class BadRequest(Exception):
    """A request that is refused with HTTP 400; the message is one sentence for the client."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Fields:
    """Typed reading of one JSON object; every complaint names the field."""

    def __init__(self, values: Mapping[str, object], where: str = "") -> None:
        self._values = values
        self._where = where
        """Prefix of the names in messages: ``sampling_params.``."""

    @classmethod
    def of(cls, value: object, name: str) -> Fields:
        """Fields of the object under ``name``; ``None`` counts as an empty one."""
        if value is None:
            return cls({}, f"{name}.")
        if not isinstance(value, Mapping):
            raise BadRequest(f"{name} must be an object.", name)
        return cls({str(key): item for key, item in value.items()}, f"{name}.")

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def raw(self, name: str) -> object:
        """The JSON value, ``None`` when absent or null."""
        return self._values.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._values)

    def refuse(self, name: str, why: str) -> BadRequest:
        return BadRequest(f"{self._where}{name} {why}.", f"{self._where}{name}")

    def text(self, name: str, default: str = "") -> str:
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.refuse(name, "must be text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if value in (0, 1):
            return value == 1
        raise self.refuse(name, "must be true or false")

    def integer(self, name: str, default: int | None, minimum: int | None = None) -> int | None:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(name, "must be a whole number")
        if abs(value) > MAX_INTEGER:
            raise self.refuse(name, "is too large")
        if minimum is not None and value < minimum:
            raise self.refuse(name, f"must be at least {minimum}, but is {value}")
        return value

    def number(self, name: str, default: float, low: float, high: float = math.inf, *, above: bool = False) -> float:
        """A finite number in ``[low, high]``, or ``(low, high]`` with ``above``."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_NUMBER < value < MAX_NUMBER:
            raise self.refuse(name, "must be a number")
        if value > high or value < low or (above and value == low):
            span = f"{'above' if above else 'at least'} {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
            raise self.refuse(name, f"must be {span}, but is {value:g}")
        return float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or a list of strings."""
        value = self.raw(name)
        if value is None:
            return ()
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            raise self.refuse(name, "must be a string that is not empty, or a list of such")
        return tuple(str(item) for item in items)

    def token_ids(self, name: str) -> tuple[int, ...]:
        return token_ids(self.raw(name), f"{self._where}{name}")

    def only(self, honoured: Iterable[str], neutral: Mapping[str, tuple[object, ...]], harmless: Iterable[str] = ()) -> None:
        """Refuse every field that is none of these.

        Args:
            honoured: fields that the caller reads.
            neutral: fields accepted only with one of these values (``None`` is always accepted).
            harmless: fields that say nothing about the answer.

        Raises:
            BadRequest: names the first field that would have to be ignored.
        """
        known = set(honoured) | set(harmless)
        for name in self.names():
            value = self.raw(name)
            if name in known or value is None:
                continue
            if name in neutral:
                if value in neutral[name] or value in ([], {}, ""):
                    continue
                raise self.refuse(name, "is not supported by the embedded engine; leave it out")
            near = get_close_matches(name, known | set(neutral), n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise BadRequest(f"{self._where}{name} is not a parameter of this server{hint}", f"{self._where}{name}")


def token_ids(value: object, name: str) -> tuple[int, ...]:
    """A JSON list of token ids.

    Raises:
        BadRequest: anything else.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in value):
        raise BadRequest(f"{name} must be a list of token ids.", name)
    return tuple(value)


def parse_body(body: bytes) -> Fields:
    """The JSON object of a request body.

    Raises:
        BadRequest: not JSON, or not an object.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The request body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRequest("The request body contains half of a surrogate pair, which is no character.") from None
    return Fields(value)


@dataclass(frozen=True)
class Sampling:
    """How one prompt is to be answered."""

    params: SamplingParams
    overrides: RequestOverrides
    record_rounds: bool
    copies: int
    """Answers wanted (``n``)."""

    def copy_params(self, index: int) -> SamplingParams:
        """Parameters of the ``index``-th copy: with a seed, each copy draws from its own, or all would be alike."""
        seed = self.params.seed
        if seed is None or index == 0:
            return self.params
        return replace(self.params, seed=seed + index)


_COMMON = ("temperature", "top_p", "top_k", "min_p", "stop", "stop_token_ids", "ignore_eos", "n", "custom_params")

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_new_tokens": (0,),
    "min_tokens": (0,),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
    "stop_regex": (),
    "logit_bias": (),
    "no_stop_trim": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "stream_interval": (1,),
}
"""Sampling parameters of SGLang that this engine does not have, with the values at which they change nothing."""


def native_sampling(value: object) -> Sampling:
    """``sampling_params`` of ``/generate``.

    Raises:
        BadRequest: a parameter is out of its range or would have to be ignored.
    """
    fields = Fields.of(value, "sampling_params")
    fields.only((*_COMMON, "max_new_tokens", "sampling_seed"), _NEUTRAL)
    return _sampling(fields, "max_new_tokens", "sampling_seed", DEFAULT_MAX_NEW_TOKENS)


_OPENAI_NEUTRAL: dict[str, tuple[object, ...]] = {
    **{name: values for name, values in _NEUTRAL.items() if name != "spaces_between_special_tokens"},
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "suffix": (),
    "tools": (),
    "tool_choice": ("none", "auto"),
    "functions": (),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "reasoning_effort": (),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "lora_path": (),
    "return_hidden_states": (False,),
    "continue_final_message": (False,),
    "chat_template_kwargs": (),
    "no_stop_trim": (False,),
}

_HARMLESS = (
    "model",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
    "stream_reasoning",
    "separate_reasoning",
    "priority",
)


def openai_sampling(fields: Fields, *, extra: Sequence[str], default_max_tokens: int) -> Sampling:
    """Sampling parameters of an OpenAI request body.

    Args:
        fields: the whole body.
        extra: fields that the endpoint itself reads.
        default_max_tokens: for requests that name no limit.

    Raises:
        BadRequest: a parameter is out of its range or would have to be ignored.
    """
    honoured = (*_COMMON, "max_tokens", "max_completion_tokens", "seed", "stream", "stream_options", "return_meta_info")
    fields.only((*honoured, *extra), _OPENAI_NEUTRAL, _HARMLESS)
    limit = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    return _sampling(fields, limit, "seed", default_max_tokens)


def _sampling(fields: Fields, limit_name: str, seed_name: str, default_limit: int) -> Sampling:
    top_k = fields.integer("top_k", -1)
    if top_k is None or (top_k < 1 and top_k != -1):
        raise fields.refuse("top_k", "must be at least 1, or -1 for all")
    stop = fields.texts("stop")
    if len(stop) > MAX_STOPS or any(len(word) > MAX_STOP_CHARACTERS for word in stop):
        raise fields.refuse("stop", f"must be at most {MAX_STOPS} strings of at most {MAX_STOP_CHARACTERS} characters")
    copies = fields.integer("n", 1, 1) or 1
    if copies > MAX_COPIES:
        raise fields.refuse("n", f"must be at most {MAX_COPIES}, but is {copies}")
    params = SamplingParams(
        max_new_tokens=fields.integer(limit_name, default_limit, 1) or default_limit,
        temperature=fields.number("temperature", 1.0, 0.0),
        top_p=fields.number("top_p", 1.0, 0.0, 1.0, above=True),
        top_k=top_k,
        min_p=fields.number("min_p", 0.0, 0.0, 1.0),
        stop=stop,
        stop_token_ids=fields.token_ids("stop_token_ids"),
        ignore_eos=fields.flag("ignore_eos"),
        seed=fields.integer(seed_name, None, 0),
    )
    custom = Fields.of(fields.raw("custom_params"), "custom_params")
    custom.only(("ddtree_budget", "ddtree_topk", "speculative", "record_rounds"), {})
    overrides = RequestOverrides(
        ddtree_budget=custom.integer("ddtree_budget", None, 1),
        ddtree_topk=custom.integer("ddtree_topk", None, 1),
        speculative=custom.flag("speculative") if "speculative" in custom else None,
    )
    return Sampling(params, overrides, custom.flag("record_rounds"), copies)
