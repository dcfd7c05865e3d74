"""``prompt``: fire one prompt, copies of it or a suite, show the answers as they come and what each one measured."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Mapping

from ..evidence.metrics_text import MetricsSample, parse_metrics
from ..evidence.server import Dialect, parse_server_info
from ..firing import fire, own_engine
from ..hosts.http import EngineHttp
from ..hosts.transport import HostError
from ..knobs import PLAIN, KnobError, Value, find_knob, parse_settings
from ..load.client import NOTICE_S
from ..load.records import Chunk, RequestRecord
from ..load.request import Endpoint, ParamValue, PromptRequest
from ..load.suite import SuiteError, filler, load_suite
from ..load.summary import LoadSummary, counted, summarise
from ..session import HostSession
from .context import Context
from .options import PromptOptions
from .outcome import ExitCode, UsageError
from .output import Cell, JsonValue, Output, Tone

MAX_REQUESTS = 500
"""Most prompts sent at once: each holds a connection, and a process may have 1,024 files open (``ulimit -n``)."""
MAX_DEPTH = 4_000_000
"""Tokens of text in front of a prompt: more than any model's context."""
COUNTERS_S = 1.0
"""Longest wait for the server's counters, before and after a run."""
MAX_INPUT_BYTES = 32 << 20
"""Longest prompt that is read from standard input."""


def run(context: Context, options: PromptOptions) -> ExitCode:
    requests = build_requests(options)
    return asyncio.run(_fire(context, requests, options.first_token_timeout))


def build_requests(options: PromptOptions) -> tuple[PromptRequest, ...]:
    """The requests that the command line asks for.

    Raises:
        UsageError: no prompt, an unknown suite, too many or too long ones, or a setting that is not one of a request.
    """
    if options.depth > MAX_DEPTH:
        raise UsageError(f"--depth is at most {MAX_DEPTH:,} tokens, which is more than any model takes")
    if options.openai and options.raw:
        raise UsageError("--openai asks the chat endpoint, --raw goes without a chat template: choose one")
    try:
        params = request_params(options)
        texts = _texts(options)
    except (KnobError, SuiteError) as problem:
        raise UsageError(str(problem)) from None
    return tuple(
        PromptRequest(
            PromptRequest.of(text).messages,
            Endpoint.GENERATE if options.raw else Endpoint.CHAT,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            # With one seed for all, copies would be the same answer n times.
            seed=None if options.seed is None else options.seed + number,
            ignore_eos=options.ignore_eos,
            custom_params=params,
            openai=options.openai,
        )
        for number, text in enumerate(texts)
    )


def request_params(options: PromptOptions) -> dict[str, ParamValue]:
    """``sampling_params.custom_params`` for these requests.

    Raises:
        KnobError: a setting that the engine does not take per request; the message says how to change it.
    """
    settings: Mapping[str, Value] = parse_settings(options.settings)
    params: dict[str, ParamValue] = {}
    for name, value in settings.items():
        knob = find_knob(name)
        if knob.request_param is None or isinstance(value, str):
            raise KnobError(f"{name}={value} cannot be set for one request; change the engine with: apply --set {name}={value}")
        params[knob.request_param] = value
    if options.algorithm is not None:
        algorithm = find_knob("algorithm").parse(options.algorithm)
        if algorithm != PLAIN:
            raise KnobError(
                f"--algorithm {algorithm} cannot be set for one request, only PLAIN (no speculation) can; "
                f"change the engine with: apply --set algorithm={algorithm} --restart"
            )
        params["speculative"] = False
    return params


def _texts(options: PromptOptions) -> list[str]:
    if options.suite is not None:
        if options.text is not None:
            raise UsageError("give a prompt or --suite, not both")
        prompts = [prompt.text for prompt in load_suite(options.suite, depth=options.depth).prompts]
        _check_number(len(prompts) * options.copies)
        return prompts * options.copies
    _check_number(options.copies)
    text = _standard_input() if options.text == "-" else options.text
    if text is None or not text.strip():
        raise UsageError('there is no prompt: ddtree-console prompt "Write a haiku about trees.", or --suite coding')
    if options.depth:
        text = f"{filler(options.depth)}\n\n{text}"
    return [text] * options.copies


def _check_number(requests: int) -> None:
    if requests > MAX_REQUESTS:
        raise UsageError(f"that would be {requests:,} prompts at once, at most {MAX_REQUESTS} are sent: lower --n")


def _standard_input() -> str:
    data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        raise UsageError(f"standard input is longer than {MAX_INPUT_BYTES >> 20} MiB: no model takes such a prompt")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text") from None


async def _fire(context: Context, requests: tuple[PromptRequest, ...], first_token_s: float) -> ExitCode:
    output = context.output
    show = _Live(output, alone=len(requests) == 1)
    ended: dict[int, RequestRecord] = {}

    def done(record: RequestRecord) -> None:
        ended[record.request] = record
        show.done(record)

    interrupted = False
    async with context.session() as session:
        engine = await own_engine(session)
        if requests and requests[0].custom_params:
            await check_settings_taken(engine)
        before = await _counters(session) if requests and requests[0].endpoint is Endpoint.CHAT else None
        started = time.perf_counter()
        try:
            async with show.silence_told():
                await fire(session, requests, show.chunk, done, first_token_s=first_token_s, engine=engine)
        except asyncio.CancelledError:
            interrupted = True
        wall_s = time.perf_counter() - started
        records = tuple(ended[number] for number in sorted(ended))
        summary = summarise(records, wall_s)
        if before is not None and not interrupted and summary.commit_length is None:
            after = await _counters(session)
            summary = summary if after is None else counted(summary, records, before, after)
    if output.json_wanted:
        output.document({"requests": [record_json(record) for record in records], "summary": summary_json(summary)})
    elif len(records) > 1:
        _print_summary(output, summary)
    if interrupted:
        output.note(
            f"ddtree-console: interrupted: {len(records)} of {len(requests)} answers had ended, the others were cancelled"
        )
        return ExitCode.FAILED
    failed = [record for record in records if not record.ok]
    if failed:
        rest = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
        output.note(f"ddtree-console: {failed[0].error}{rest}")
        return ExitCode.FAILED
    return ExitCode.FINE


async def check_settings_taken(engine: EngineHttp) -> None:
    """Stock SGLang takes any ``custom_params`` and ignores those that it does not know: what came of them would be mistaken for
    an answer with the settings asked for.

    Raises:
        HostError: the engine is such a server, or does not answer.
    """
    info = parse_server_info(await engine.server_info())
    if info.dialect is Dialect.STOCK:
        raise HostError(
            f"{info.engine_name} takes no settings for one request and would ignore them without a word: change the engine with "
            "apply --set …, or leave --set and --algorithm out"
        )


async def _counters(session: HostSession) -> MetricsSample | None:
    """The server's counters now; ``None`` when it does not show them at once."""
    try:
        async with asyncio.timeout(COUNTERS_S):
            sample = parse_metrics(await (await session.engine()).metrics())
    except (HostError, TimeoutError):
        return None
    return None if sample.problem else sample


class _Live:
    """Answers on the terminal: one alone streams, several are shown each when it has ended."""

    def __init__(self, output: Output, *, alone: bool) -> None:
        self._output = output
        self._alone = alone
        self._newest = time.monotonic()
        """When something came last."""

    @contextlib.asynccontextmanager
    async def silence_told(self) -> AsyncIterator[None]:
        """Say it on standard error, once each time, when nothing comes for :data:`NOTICE_S` seconds."""
        self._newest = time.monotonic()
        telling = asyncio.create_task(self._tell_silence())
        try:
            yield
        finally:
            telling.cancel()

    async def _tell_silence(self) -> None:
        begun, told = self._newest, None
        while True:
            await asyncio.sleep(max(0.5, self._newest + NOTICE_S - time.monotonic()))
            if time.monotonic() - self._newest < NOTICE_S or told == self._newest:
                continue
            told = self._newest
            since = "yet" if told == begun else "any more"
            self._output.note(
                f"ddtree-console: nothing has come {since} for {NOTICE_S:.0f} s; waiting on (Ctrl-C ends it). "
                "The engine may read a long prompt, have others to serve first, or be frozen: ddtree-console status"
            )

    def chunk(self, chunk: Chunk) -> None:
        self._newest = time.monotonic()
        if self._alone and not self._output.json_wanted:
            self._output.write(chunk.text, Tone.FAINT if chunk.reasoning else None)

    def done(self, record: RequestRecord) -> None:
        self._newest = time.monotonic()
        output = self._output
        if output.json_wanted:
            return
        if not self._alone:
            output.line(f"── {record.request + 1} " + "─" * 40, Tone.FAINT)
            output.write(record.text)
        if record.text and not record.text.endswith("\n"):
            output.line()
        if words := figures(record):
            output.line(words, Tone.FAINT)
        if record.error and not self._alone:
            output.line(f"failed: {record.error}", Tone.BAD)


def figures(record: RequestRecord) -> str:
    """One request's figures in one line; what is not known is left out, not shown as zero."""
    parts = [record.counted] if record.chunks else []
    if record.ttft_s is not None:
        parts.append(f"TTFT {record.ttft_s * 1000:.0f} ms")
    if record.decode_tok_s is not None:
        parts.append(f"{record.decode_tok_s:.1f} tok/s ({record.decode_source.value})")
    if record.commit_length is not None:
        parts.append(f"commit length {record.commit_length:.2f} ({record.commit_source.value})")
    if record.verify_calls is not None:
        parts.append(f"{record.verify_calls} verifies")
    if record.tokens_per_chunk is not None:
        parts.append(f"{record.tokens_per_chunk:.2f} tokens per chunk")
    if record.cached_tokens:
        parts.append(f"{record.cached_tokens} of {record.prompt_tokens} prompt tokens cached")
    if record.finish_reason:
        parts.append(f"ended by {record.finish_reason}")
    if record.note:
        parts.append(record.note)
    return " · ".join(parts)


def _print_summary(output: Output, summary: LoadSummary) -> None:
    def number(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    output.line()
    output.table(
        [
            ["requests", f"{summary.requests}" + (f", {summary.failed} failed" if summary.failed else "")],
            ["tokens", f"{number(summary.completion_tokens, 'd')} in {summary.wall_s:.2f} s"],
            ["throughput", Cell(f"{number(summary.tok_s, '.1f')} tok/s over all, prefill and waiting included", Tone.STRONG)],
            ["decode", f"{number(summary.decode_tok_s, '.1f')} tok/s per request (median)"],
            [
                "commit length",
                f"{number(summary.commit_length, '.2f')} over {number(summary.verify_calls, 'd')} verifies"
                f" ({summary.commit_source.value})",
            ],
            ["TTFT", f"{number(summary.ttft_p50_s, '.3f')} s median, {number(summary.ttft_p95_s, '.3f')} s p95"],
        ]
    )


def record_json(record: RequestRecord) -> dict[str, JsonValue]:
    """One request as JSON; ``null`` = not reported."""
    return {
        "text": record.text,
        "reasoning_text": record.reasoning_text or None,
        "token_ids": record.token_ids or None,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "cached_tokens": record.cached_tokens,
        "chunks": record.chunks,
        "tokens_per_chunk": record.tokens_per_chunk,
        "ttft_s": record.ttft_s,
        "total_s": record.total_s,
        "decode_tok_s": record.decode_tok_s,
        "decode_source": record.decode_source.value,
        "commit_length": record.commit_length,
        "commit_source": record.commit_source.value,
        "accept_histogram": record.accept_histogram,
        "verify_calls": record.verify_calls,
        "finish_reason": record.finish_reason,
        "endpoint": record.endpoint or None,
        "note": record.note or None,
        "error": record.error,
    }


def summary_json(summary: LoadSummary) -> dict[str, JsonValue]:
    """A batch as JSON."""
    return {
        "requests": summary.requests,
        "failed": summary.failed,
        "completion_tokens": summary.completion_tokens,
        "wall_s": summary.wall_s,
        "tok_s": summary.tok_s,
        "decode_tok_s": summary.decode_tok_s,
        "ttft_p50_s": summary.ttft_p50_s,
        "ttft_p95_s": summary.ttft_p95_s,
        "commit_length": summary.commit_length,
        "commit_source": summary.commit_source.value,
        "accept_histogram": summary.accept_histogram,
        "verify_calls": summary.verify_calls,
    }
