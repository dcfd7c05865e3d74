"""What the console sends for a prompt, taken by SGLang's own request handling: the bodies, and the tokens of a user's turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, TokenizeRequest
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.entrypoints.openai.serving_tokenize import OpenAIServingTokenize
from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams

from dflash_console.load.request import Extra, Message, PromptRequest, Role, request_body, template_body

REQUEST = PromptRequest(
    (Message(Role.SYSTEM, "be short"), Message(Role.USER, "hello")),
    max_tokens=9,
    temperature=0.5,
    top_p=0.9,
    seed=3,
    ignore_eos=True,
    custom_params={"ddtree_budget": 16, "speculative": False},
)


class Letters:
    """A tokenizer of one token a character, and a template that names the roles."""

    chat_template = "{{ messages }}"
    model_max_length = 100

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: object) -> str:
        assert options["add_generation_prompt"] is True
        return "".join(f"<{message['role']}>{message['content']}" for message in messages) + "<assistant>"

    def encode(self, text: str, **_: object) -> list[int]:
        return [ord(letter) for letter in text]


@pytest.fixture
def managers() -> tuple[MagicMock, MagicMock]:
    """The tokenizer's manager and the template's, as much of them as these handlers ask."""
    manager = MagicMock()
    manager.tokenizer = Letters()
    manager.model_config = SimpleNamespace(
        is_multimodal=False, hf_config=SimpleNamespace(model_type="llama", architectures=["LlamaForCausalLM"])
    )
    manager.model_config.get_default_sampling_params = dict
    for name in (
        "tool_call_parser",
        "reasoning_parser",
        "context_length",
        "chat_template",
        "tokenizer_metrics_allowed_custom_labels",
    ):
        setattr(manager.server_args, name, None)
    manager.server_args.default_chat_template_kwargs = None
    template = MagicMock()
    template.chat_template_name = None
    template.jinja_template_content_format = "string"
    template.reasoning_config = None
    return manager, template


def handled(managers: tuple[MagicMock, MagicMock], body: dict[str, Any]) -> GenerateReqInput:
    chat = OpenAIServingChat(*managers)
    request = ChatCompletionRequest.model_validate(body)
    assert not chat._validate_request(request)
    adapted, _ = chat._convert_to_internal_request(request, None)
    return adapted


def test_a_streamed_chat_turn_is_taken(managers: tuple[MagicMock, MagicMock]) -> None:
    for without in ((), (Extra.USAGE_OF_CHUNKS,), (Extra.USAGE,)):
        adapted = handled(managers, request_body(REQUEST, without=without))
        assert adapted.stream is True


def test_asking_for_figures_in_a_streamed_chat_turn_is_refused(managers: tuple[MagicMock, MagicMock]) -> None:
    with pytest.raises(ValueError, match="return_meta_info is not supported with streaming"):
        handled(managers, {**request_body(REQUEST), "return_meta_info": True})


def test_the_tokens_of_a_turn_are_those_that_chat_prefills(managers: tuple[MagicMock, MagicMock]) -> None:
    tokens = OpenAIServingTokenize(*managers)._tokenize_chat_request(
        TokenizeRequest.model_validate(template_body(REQUEST.messages))
    )
    assert "".join(map(chr, tokens)) == "<system>be short<user>hello<assistant>"
    assert tokens == handled(managers, request_body(REQUEST)).input_ids


def test_generate_samples_as_chat_would(managers: tuple[MagicMock, MagicMock]) -> None:
    taken = GenerateReqInput(**request_body(REQUEST, input_ids=(1, 2, 3)))
    taken.normalize_batch_and_arguments()
    assert (taken.input_ids, taken.stream) == ([1, 2, 3], True)
    assert SamplingParams(**taken.sampling_params) == SamplingParams(**handled(managers, request_body(REQUEST)).sampling_params)
