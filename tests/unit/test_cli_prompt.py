"""``prompt``: from the command line to requests, and from records to what is printed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import cast

import pytest

from dflash_console.commands.options import PromptOptions
from dflash_console.commands.outcome import ExitCode, UsageError
from dflash_console.commands.prompt import build_requests, check_settings_taken, figures, record_json
from dflash_console.hosts.http import EngineHttp
from dflash_console.hosts.transport import HostError
from dflash_console.load.records import CommitSource, RequestRecord, SpeedSource
from dflash_console.load.request import Endpoint, request_body

CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"


def test_copies_are_requests_of_their_own_each_with_its_seed() -> None:
    requests = build_requests(PromptOptions("hi", copies=3, seed=7, max_tokens=9, temperature=0.5))
    assert [request.seed for request in requests] == [7, 8, 9]
    assert {(request.text, request.max_tokens, request.temperature) for request in requests} == {("hi", 9, 0.5)}
    assert all(request.endpoint is Endpoint.CHAT for request in requests)


def test_raw_text_goes_to_generate_without_a_template() -> None:
    (request,) = build_requests(PromptOptions("Once upon", raw=True))
    assert request.endpoint is Endpoint.GENERATE
    assert request_body(request)["text"] == "Once upon"


def test_the_chat_endpoint_itself_can_be_asked_for() -> None:
    (request,) = build_requests(PromptOptions("hi", openai=True))
    assert (request.endpoint, request.openai) == (Endpoint.CHAT, True)


@pytest.mark.parametrize(
    ("report", "refused"),
    [
        ("server_info.json", True),
        ('{"version": "0.5.17", "engine": "ddtree-embedded"}', False),
        ("<html>a proxy</html>", False),
    ],
)
async def test_settings_of_a_request_are_refused_for_a_server_that_would_ignore_them(report: str, refused: bool) -> None:
    class Engine:
        async def server_info(self) -> bytes:
            return (CAPTURES / report).read_bytes() if report.endswith(".json") else report.encode()

    engine = cast(EngineHttp, Engine())
    if not refused:
        await check_settings_taken(engine)
        return
    with pytest.raises(HostError, match=r"SGLang 0\.5\.17 takes no settings for one request and would ignore them"):
        await check_settings_taken(engine)


def test_a_suite_is_fired_whole_as_often_as_copies_are_wanted() -> None:
    assert len(build_requests(PromptOptions(suite="chat", copies=2))) == 16


def test_a_dash_reads_the_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("from a pipe: é\n".encode())))
    assert build_requests(PromptOptions("-"))[0].text == "from a pipe: é\n"


@pytest.mark.parametrize(("data", "said"), [(b"caf\xe9", "not UTF-8"), (b"x" * (33 << 20), "longer than 32 MiB")])
def test_standard_input_that_is_no_prompt_is_wrong_use(data: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(UsageError, match=said):
        build_requests(PromptOptions("-"))


def test_depth_puts_text_in_front_of_the_prompt() -> None:
    (request,) = build_requests(PromptOptions("What was that?", depth=1_000))
    assert request.text.endswith("\n\nWhat was that?")
    assert len(request.text) > 3_000


def test_plain_decoding_in_place_is_speculation_off_for_the_request() -> None:
    (request,) = build_requests(PromptOptions("hi", algorithm="plain"))
    assert request.custom_params == {"speculative": False}


def test_settings_of_a_request_are_sent_under_the_engines_names() -> None:
    (request,) = build_requests(PromptOptions("hi", settings=("tree_budget=16", "tree_topk=2", "speculation=on")))
    assert request.custom_params == {"ddtree_budget": 16, "ddtree_topk": 2, "speculative": True}
    assert request_body(request)["custom_params"] == request.custom_params


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (PromptOptions(), "there is no prompt"),
        (PromptOptions("  "), "there is no prompt"),
        (PromptOptions("hi", suite="chat"), "not both"),
        (PromptOptions("hi", raw=True, openai=True), "choose one"),
        (PromptOptions(suite="codign"), "coding, chat, long"),
        (PromptOptions("hi", copies=9_999_999), "9,999,999 prompts at once, at most 500"),
        (PromptOptions(suite="chat", copies=100), "800 prompts at once"),
        (PromptOptions("hi", depth=99_999_999_999), "at most 4,000,000 tokens"),
        (PromptOptions("hi", settings=("draft_window=512",)), "apply --set draft_window=512"),
        (PromptOptions("hi", settings=("tree_budget=auto",)), "cannot be set for one request"),
        (PromptOptions("hi", settings=("tree_budget",)), "NAME=VALUE"),
        (PromptOptions("hi", algorithm="DFLASH"), "apply --set algorithm=DFLASH --restart"),
    ],
)
def test_what_cannot_be_asked_is_said_with_the_way_to_do_it(options: PromptOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        build_requests(options)
    assert caught.value.code is ExitCode.USAGE


def test_figures_leave_out_what_is_not_known() -> None:
    assert figures(RequestRecord(0)) == ""
    assert figures(RequestRecord(0, chunks=4)) == "≈ 4 chunks, not tokens"


def test_figures_say_where_each_comes_from() -> None:
    record = RequestRecord(
        0,
        completion_tokens=48,
        prompt_tokens=30,
        cached_tokens=29,
        chunks=12,
        ttft_s=0.205,
        decode_tok_s=150.84,
        decode_source=SpeedSource.CLIENT,
        commit_length=4.27,
        commit_source=CommitSource.HISTOGRAM,
        verify_calls=11,
        finish_reason="length",
    )
    assert figures(record) == (
        "48 tokens · TTFT 205 ms · 150.8 tok/s (client clock) · commit length 4.27 (histogram) · 11 verifies · "
        "4.00 tokens per chunk · 29 of 30 prompt tokens cached · ended by length"
    )


def test_the_json_of_a_request_has_every_promised_key_and_null_for_the_unknown() -> None:
    document = json.loads(json.dumps(record_json(RequestRecord(0, text="hi"))))
    promised = (
        "text",
        "completion_tokens",
        "ttft_s",
        "decode_tok_s",
        "commit_length",
        "accept_histogram",
        "verify_calls",
        "finish_reason",
    )
    assert set(promised) <= set(document)
    assert document["completion_tokens"] is None
    assert document["commit_length"] is None
