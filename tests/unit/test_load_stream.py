"""Reading streamed answers: tokens are counted by the server or not at all, and chunks are never called tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.load.records import Chunk, CommitSource, RequestRecord, SpeedSource
from dflash_console.load.request import Endpoint
from dflash_console.load.stream import StreamReader, reader_for

STREAMS = Path(__file__).parent.parent / "fixtures" / "streams"


def replay(name: str, endpoint: Endpoint, *, step_s: float = 0.1) -> tuple[list[Chunk], RequestRecord]:
    """Feed a recorded stream, one event each ``step_s`` seconds."""
    reader = reader_for(endpoint, 0)
    events = [line[6:] for line in (STREAMS / name).read_text("utf-8").splitlines() if line.startswith("data: ")]
    chunks = [reader.feed(event, (number + 1) * step_s) for number, event in enumerate(events)]
    return [chunk for chunk in chunks if chunk is not None], reader.record(len(events) * step_s)


class TestGenerate:
    def test_the_figures_are_those_of_the_last_events_meta_info(self) -> None:
        _, record = replay("generate-dflash.sse", Endpoint.GENERATE)
        assert record.completion_tokens == 200
        assert record.prompt_tokens == 2
        assert record.cached_tokens == 0
        assert record.verify_calls == 199
        assert record.accept_histogram == (199,)
        assert record.finish_reason == "length"
        assert len(record.token_ids) == 200
        assert record.error is None

    def test_the_commit_length_comes_from_the_histogram_not_from_sglangs_ratio(self) -> None:
        _, record = replay("generate-dflash.sse", Endpoint.GENERATE)
        assert (record.commit_length, record.commit_source) == (1.0, CommitSource.HISTOGRAM)
        assert record.reported_accept_length == pytest.approx(1.00503, abs=1e-5)

    def test_cumulative_events_become_increments(self) -> None:
        chunks, record = replay("generate-dflash.sse", Endpoint.GENERATE)
        assert [chunk.text for chunk in chunks[:4]] == ["work", "length", "line", " AN"]
        assert [chunk.token_ids for chunk in chunks[:3]] == [(1540,), (1700,), (521,)]
        assert [chunk.tokens for chunk in chunks[:3]] == [1, 1, 1]
        assert "".join(chunk.text for chunk in chunks) == record.text
        assert sum(chunk.tokens or 0 for chunk in chunks) == 200

    def test_only_the_first_chunk_is_marked_as_prefills(self) -> None:
        chunks, _ = replay("generate-dflash.sse", Endpoint.GENERATE)
        assert [chunk.first for chunk in chunks] == [True] + [False] * (len(chunks) - 1)

    def test_increments_of_a_server_with_incremental_output_are_not_cut(self) -> None:
        reader = reader_for(Endpoint.GENERATE, 0)
        chunks = []
        # The second increment begins with the whole text so far, which must not be taken for a cumulative event.
        for total, (text, ids) in zip((1, 3, 4), (("a", [5]), ("a b", [5, 6]), ("!", [7])), strict=True):
            event = {"text": text, "output_ids": ids, "meta_info": {"completion_tokens": total, "finish_reason": None}}
            chunks.append(reader.feed(json.dumps(event), 0.1 * total))
        assert [chunk.text for chunk in chunks if chunk] == ["a", "a b", "!"]
        assert reader.record(1.0).text == "aa b!"
        assert reader.record(1.0).token_ids == (5, 5, 6, 7)

    def test_a_half_character_is_held_back_until_it_is_whole(self) -> None:
        reader = reader_for(Endpoint.GENERATE, 0)
        texts = []
        for total, text in ((1, "caf"), (2, "caf\ufffd"), (3, "café"), (4, "café\ufffd")):
            event = {"text": text, "output_ids": list(range(total)), "meta_info": {"completion_tokens": total}}
            chunk = reader.feed(json.dumps(event), 0.1)
            texts.append(chunk.text if chunk else None)
        assert texts == ["caf", "", "é", ""]

    def test_a_server_without_a_histogram_gives_tokens_after_prefills_per_verify(self) -> None:
        reader = reader_for(Endpoint.GENERATE, 0)
        meta = {"completion_tokens": 41, "spec_verify_ct": 10, "spec_accept_length": 4.1, "finish_reason": {"type": "stop"}}
        reader.feed(json.dumps({"text": "x", "meta_info": meta}), 0.1)
        record = reader.record(1.0)
        assert (record.commit_length, record.commit_source) == (4.0, CommitSource.VERIFY_CALLS)


class TestChat:
    def test_tokens_are_the_usages_not_the_number_of_chunks(self) -> None:
        chunks, record = replay("chat-last-usage.sse", Endpoint.CHAT)
        assert record.completion_tokens == 14
        assert record.chunks == len(chunks) == 4
        assert record.tokens_per_chunk == 3.5
        assert record.counted == "14 tokens"

    def test_a_running_count_gives_each_chunk_its_tokens_even_without_text(self) -> None:
        chunks, record = replay("chat-continuous-usage.sse", Endpoint.CHAT)
        assert [chunk.tokens for chunk in chunks] == [3, 1, 2, 3]
        assert [chunk.text for chunk in chunks][2] == ""
        assert record.completion_tokens == 9
        assert (record.commit_length, record.commit_source) == (3.0, CommitSource.REPORTED)

    def test_without_usage_chunks_are_called_chunks_and_no_rate_is_made_of_them(self) -> None:
        chunks, record = replay("chat-no-usage.sse", Endpoint.CHAT)
        assert record.completion_tokens is None
        assert record.counted == "≈ 4 chunks, not tokens"
        assert record.decode_tok_s is None
        assert record.tokens_per_chunk is None
        assert all(chunk.tokens is None for chunk in chunks)

    @pytest.mark.parametrize("name", ["chat-no-usage.sse", "chat-last-usage.sse", "chat-continuous-usage.sse", "chat-plain.sse"])
    def test_the_event_that_names_the_role_only_does_not_set_ttft(self, name: str) -> None:
        _, record = replay(name, Endpoint.CHAT, step_s=0.1)
        assert record.ttft_s == pytest.approx(0.2)

    def test_stock_sglangs_chat_gives_counts_and_no_commit_length(self) -> None:
        _, record = replay("chat-plain.sse", Endpoint.CHAT)
        assert record.completion_tokens == 48
        assert record.prompt_tokens == 33
        assert record.finish_reason == "length"
        assert (record.commit_length, record.commit_source) == (None, CommitSource.NONE)
        assert record.text.startswith("\"Hi there, I'm here to assist you.")

    def test_meta_info_beside_the_last_choice_gives_all_figures(self) -> None:
        reader = reader_for(Endpoint.CHAT, 0)
        reader.feed(json.dumps({"choices": [{"delta": {"content": "hi"}}], "usage": {"completion_tokens": 1}}), 0.2)
        meta = {
            "completion_tokens": 7,
            "spec_verify_ct": 2,
            "spec_correct_drafts_histogram": [0, 0, 2],
            "finish_reason": {"type": "stop"},
        }
        reader.feed(json.dumps({"choices": [{"delta": {}, "finish_reason": "stop", "meta_info": meta}]}), 0.4)
        record = reader.record(0.5)
        assert record.commit_length == 3.0
        assert record.verify_calls == 2
        assert record.completion_tokens == 7

    def test_reasoning_is_kept_apart_from_the_answer(self) -> None:
        reader = reader_for(Endpoint.CHAT, 0)
        thought = reader.feed('{"choices":[{"delta":{"reasoning_content":"hm"}}]}', 0.1)
        answer = reader.feed('{"choices":[{"delta":{"content":"yes"}}]}', 0.2)
        assert thought is not None
        assert answer is not None
        assert (thought.reasoning, answer.reasoning) == (True, False)
        record = reader.record(0.3)
        assert (record.reasoning_text, record.text, record.ttft_s) == ("hm", "yes", 0.1)


class TestSpeed:
    def test_decode_speed_leaves_prefills_token_and_its_time_out(self) -> None:
        _, record = replay("chat-continuous-usage.sse", Endpoint.CHAT, step_s=0.5)
        # Chunks at 1.0 (3 tokens), 1.5, 2.0 and 2.5 s: six tokens in the 1.5 s after the first.
        assert record.decode_tok_s == pytest.approx(4.0)
        assert record.decode_source is SpeedSource.CLIENT

    def test_an_answer_in_one_piece_has_no_speed_of_its_own(self) -> None:
        reader = reader_for(Endpoint.GENERATE, 0)
        meta = {"completion_tokens": 64, "decode_throughput": 120.5, "finish_reason": {"type": "length", "length": 64}}
        reader.feed(json.dumps({"text": "x", "output_ids": list(range(64)), "meta_info": meta}), 0.5)
        record = reader.record(0.5)
        assert (record.decode_tok_s, record.decode_source) == (120.5, SpeedSource.ENGINE)

    def test_chunks_that_arrive_together_make_no_impossible_speed(self) -> None:
        _, record = replay("chat-last-usage.sse", Endpoint.CHAT, step_s=1e-7)
        assert (record.decode_tok_s, record.decode_source) == (None, SpeedSource.NONE)


class TestErrors:
    @pytest.mark.parametrize(
        "event",
        [
            '{"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}}',
            '{"object": "error", "message": "out of memory", "code": 500}',
            '{"error": "out of memory"}',
        ],
    )
    @pytest.mark.parametrize("endpoint", list(Endpoint))
    def test_an_error_in_the_stream_is_told_and_what_came_before_is_kept(self, endpoint: Endpoint, event: str) -> None:
        reader = reader_for(endpoint, 0)
        reader.feed(
            '{"text": "so far", "choices": [{"delta": {"content": "so far"}}], "meta_info": {"completion_tokens": 2}}', 0.1
        )
        assert reader.feed(event, 0.2) is None
        record = reader.record(0.3)
        assert record.error is not None
        assert "out of memory" in record.error
        assert record.text == "so far"

    def test_an_aborted_request_says_why(self) -> None:
        reader = reader_for(Endpoint.GENERATE, 0)
        reader.feed('{"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": "KV cache is full"}}}', 0.1)
        record = reader.record(0.2)
        assert record.finish_reason == "abort"
        assert record.error is not None
        assert "KV cache is full" in record.error

    @given(
        st.lists(
            st.text() | st.from_regex(r'\{"(text|choices|usage|meta_info|error)": ?(\{\}|\[\]|null|1|"x")\}', fullmatch=True)
        )
    )
    def test_no_event_can_raise(self, events: list[str]) -> None:
        for endpoint in Endpoint:
            reader: StreamReader = reader_for(endpoint, 0)
            for event in events:
                reader.feed(event, 0.1)
            reader.record(1.0)

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "text",
                        "choices",
                        "delta",
                        "content",
                        "usage",
                        "meta_info",
                        "output_ids",
                        "completion_tokens",
                        "finish_reason",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )

    @given(json_values)
    def test_no_json_of_any_shape_can_raise(self, value: object) -> None:
        for endpoint in Endpoint:
            reader = reader_for(endpoint, 0)
            reader.feed(json.dumps(value), 0.1)
            reader.record(1.0)


def folded(endpoint: Endpoint, *events: object) -> tuple[list[Chunk], RequestRecord]:
    reader = reader_for(endpoint, 0)
    chunks = [reader.feed(json.dumps(event), 0.1 * (number + 1)) for number, event in enumerate(events)]
    return [chunk for chunk in chunks if chunk is not None], reader.record(1.0)


def delta(usage: int | None = None, **fields: object) -> dict[str, object]:
    counted = {"usage": {"completion_tokens": usage}} if usage is not None else {}
    return {"choices": [{"index": 0, "delta": fields}], **counted}


class TestOtherDialects:
    def test_a_count_that_begins_late_is_the_answers_and_no_one_chunks(self) -> None:
        chunks, record = folded(Endpoint.CHAT, delta(content="a"), delta(content=" b"), delta(9, content="!"), delta(9))
        assert [chunk.tokens for chunk in chunks] == [None, None, None]
        assert (record.completion_tokens, record.chunks) == (9, 3)

    def test_an_event_of_the_role_alone_sets_no_ttft_and_its_count_comes_with_the_next(self) -> None:
        chunks, record = folded(Endpoint.CHAT, delta(1, role="assistant", content=""), delta(4, content="a b c d"))
        assert [(chunk.tokens, chunk.first) for chunk in chunks] == [(4, True)]
        assert record.ttft_s == pytest.approx(0.2)

    def test_only_the_first_of_several_answers_is_read(self) -> None:
        other = {"choices": [{"index": 1, "delta": {"content": "other"}}, {"index": 0, "delta": {"content": "mine"}}]}
        assert folded(Endpoint.CHAT, {"choices": other["choices"][:1]}, other)[1].text == "mine"

    def test_reasoning_under_its_other_name_and_content_in_parts_are_read(self) -> None:
        parts = [{"type": "text", "text": "an"}, {"type": "text", "text": "swer"}]
        chunks, record = folded(Endpoint.CHAT, delta(role="assistant", reasoning="think"), delta(content=parts))
        assert (record.reasoning_text, record.text, chunks[0].reasoning) == ("think", "answer", True)

    def test_increments_without_ids_are_put_together(self) -> None:
        texts = ("The qu", "ick fox", " jumps", "")
        events = [{"text": text, "meta_info": {"completion_tokens": number + 1}} for number, text in enumerate(texts)]
        chunks, record = folded(Endpoint.GENERATE, *events)
        assert record.text == "".join(chunk.text for chunk in chunks) == "The quick fox jumps"

    def test_a_text_that_is_cut_at_a_stop_word_is_not_given_twice(self) -> None:
        events = [{"text": text, "meta_info": {"completion_tokens": 3}} for text in ("yes", "yes EN", "yes")]
        assert folded(Endpoint.GENERATE, *events)[1].text == "yes"

    def test_counts_below_zero_and_those_that_go_back_bring_nothing(self) -> None:
        _, record = folded(Endpoint.CHAT, delta(5, content="a"), delta(3, content="b"), delta(-4, content="c"))
        assert record.completion_tokens == 3
        retracted = [{"text": "a" * n, "meta_info": {"completion_tokens": n, "spec_accept_histogram": [1, -3]}} for n in (5, 4)]
        chunks, record = folded(Endpoint.GENERATE, *retracted)
        assert [chunk.tokens for chunk in chunks] == [5]
        assert record.accept_histogram == ()
