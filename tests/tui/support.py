"""Snapshots, plans and a link for the screens' tests: recorded values, no host, no clock but the test's."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dflash_console.apply.asked import asked_changes
from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.file_edits import FileEdit
from dflash_console.evidence.gpu import GpuRow
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.metrics import Rates
from dflash_console.evidence.metrics_text import MetricsSample
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.server import Dialect, parse_server_info
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.hosts.transport import CommandRecord, Link
from dflash_console.load.records import Chunk, CommitSource, RequestRecord, SpeedSource
from dflash_console.plan import Change, Finding, Mode, Plan, PlanError, Predictions, Survey, make_plan
from dflash_console.plan.maker import diff_of
from dflash_console.state import Aged, HostState
from dflash_console.tui.clock import Clock
from dflash_console.tui.link import ApplyChoices, Control, LinkError, OnStage, Past
from dflash_console.tui.series import Mark, Point
from engine_launch.spec.drafter_config import parse_drafter_config

if TYPE_CHECKING:
    from dflash_console.apply.records import ApplyResult, StageEvent
    from dflash_console.knobs import Value
    from dflash_console.load.client import OnChunk, OnDone
    from dflash_console.load.request import PromptRequest
    from dflash_console.tui.tree import VerifyPicture

T0 = 1_764_430_000.0
"""The moment at which recorded things happen, seconds since the epoch."""

NOW = 5_000.0
"""The monotonic clock's moment."""

STOPPED_CLOCK = Clock(wall=lambda: T0 + 134.5, monotonic=lambda: NOW + 0.4)
"""Two minutes and a little after the start."""

COMMAND = (
    "/opt/venv/bin/python",
    "-m",
    "engine_launch",
    "serve",
    "--engine",
    "embedded",
    "--speculative-algorithm",
    "DDTREE",
    "--speculative-ddtree-budget",
    "8",
    "--speculative-ddtree-topk",
    "4",
    "--port",
    "30000",
    "--enable-metrics",
)

START_LINES = (
    "[2026-11-29 16:00:00] server_args=ServerArgs(speculative_algorithm='DDTREE', speculative_ddtree_budget=8)",
    "[2026-11-29 16:00:00] Load weight begin. avail mem=12.10 GB",
    "[2026-11-29 16:00:02] Load weight end. elapsed=1.62 s, type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=11.80 GB",
    "[2026-11-29 16:00:02] Load weight begin. avail mem=11.80 GB",
    "[2026-11-29 16:00:03] Load weight end. elapsed=0.31 s, type=DFlashDraftModel, dtype=torch.bfloat16, avail mem=11.70 GB",
    "[2026-11-29 16:00:03] Initialized DDTREE draft runner. attention_backend=torch_native, model=DFlashDraftModel, "
    "block_size=8, tree_budget=8, tree_topk=4, layers_window=512, draft_window_size=None, compact_cache=False",
    "[2026-11-29 16:00:03] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8192, K size: 0.05 GB, V size: 0.05 GB",
    "[2026-11-29 16:00:04] The server is fired up and ready to roll!",
)


DRAFTER = parse_drafter_config(
    json.dumps(
        {
            "architectures": ["DFlashDraftModel"],
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "num_hidden_layers": 4,
            "vocab_size": 49152,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100000.0,
            "max_position_embeddings": 8192,
            "block_size": 8,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "sliding_window": 512,
            "use_sliding_window": True,
            "dflash_config": {"mask_token_id": 16, "target_layer_ids": [1, 10, 19, 28]},
            "num_target_layers": 30,
        }
    )
)
"""A drafter with three sliding layers of four, trained with a window of 512."""

TARGET = "/home/me/.local/state/ddtree-console/services/ddtree-embedded/service.toml"


def _edits(command: Sequence[str]) -> tuple[FileEdit, ...]:
    return (FileEdit(TARGET, unit_text(COMMAND), unit_text(command)),)


def unit_text(command: Sequence[str]) -> str:
    """A unit file that holds the command, a word a line."""
    return "command = [\n" + "".join(f"  {json.dumps(word)},\n" for word in command) + "]\n"


def lines(texts: Sequence[str], *, start: float = T0, invocation: str = "aa" * 16, first: int = 1) -> tuple[LogLine, ...]:
    """Log lines of one start, a second apart, each stamped when it was stored."""
    return tuple(
        LogLine(
            _stamped(text, start + number - first),
            cursor=str(number),
            at=start + number - first,
            invocation_id=invocation,
            pid=4242,
            number=number,
        )
        for number, text in enumerate(texts, start=first)
    )


def _stamped(text: str, at: float) -> str:
    return re.sub(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]", time.strftime("[%Y-%m-%d %H:%M:%S]", time.gmtime(at)), text)


def server_info(**internal: object) -> bytes:
    """``/server_info`` of the embedded engine with the given values in effect."""
    state: dict[str, object] = {
        "algorithm": "DDTREE",
        "speculation": True,
        "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4,
        "speculative_draft_window_size": None,
        "layers_window": 512,
        "block_size": 8,
    }
    state.update(internal)
    body = {
        "engine": "embedded",
        "version": "ddtree-embedded 0.1.0",
        "speculative_algorithm": "DDTREE",
        "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4,
        "internal_states": [state],
    }
    return json.dumps(body).encode()


def state(
    *,
    run: RunState = RunState.RUNNING,
    ready: bool = True,
    rates: Rates | None = None,
    gpus: tuple[GpuRow, ...] = (),
    revision: int = 1,
    texts: Sequence[str] = START_LINES,
    invocation: str = "aa" * 16,
    at: float | None = None,
    **internal: object,
) -> HostState:
    """A snapshot of the embedded host with budget 8, top-k 4 and the compact cache off, unless told otherwise."""
    now = NOW if at is None else at
    service = ServiceState("ddtree-embedded", run, invocation_id=invocation, main_pid=4242, started_at=T0)
    running = run is RunState.RUNNING
    return HostState(
        host="embedded",
        unit="ddtree-embedded",
        embedded=True,
        service=Aged(service, now),
        config=Aged(ServiceConfig((ConfigSource(TARGET, unit_text(COMMAND)),), COMMAND, COMMAND), now),
        process=Aged(ProcessEvidence(4242, COMMAND), now) if running else None,
        drafter=Aged(DRAFTER, now),
        server=Aged(parse_server_info(server_info(**internal)), now) if running and ready else None,
        metrics=Aged(MetricsSample(), now + revision * 1e-6) if running and ready else None,
        rates=rates if rates is not None else BUSY,
        log=Aged(StartLog().add_all(lines(texts, invocation=invocation)), now) if running else None,
        gpus=Aged(gpus, now),
        ready=ready and running,
        revision=revision,
    )


BUSY = Rates(
    decode_tok_s=61.4,
    decode_source="counters",
    decode_gauge_tok_s=60.9,
    commit_length=3.42,
    commit_source="every verify",
    running=3,
    queued=1,
    ttft_p50_s=0.212,
    ttft_p95_s=0.39,
    kv_usage=0.11,
    kv_tokens=912,
    draft_kv_bytes=4_300_000,
    cached_share=0.38,
    accept_histogram=(9, 12, 15, 19, 20, 13, 8, 4),
)
"""Figures of an engine that works."""

IDLE = Rates(
    decode_tok_s=0.0, decode_source="counters", commit_length=3.42, commit_source="every verify", commit_stale=True, running=0
)
"""Figures of one that waits."""

EIGHT_GPUS = tuple(
    GpuRow(index, "RTX PRO 6000", 90.0 - index, 90_000.0 - 100 * index, 98_304.0, 412.0 - index, 64.0 + index % 3)
    for index in range(8)
)


def way_back(*, at: int) -> Plan:
    """The plan that goes back from a tree budget of ``at``, as it is written, to the unit file of the recorded host."""
    now = tuple(str(at) if word == "8" else word for word in COMMAND)
    edits = (FileEdit(TARGET, unit_text(now), unit_text(COMMAND)),)
    return Plan(
        host="embedded",
        unit="ddtree-embedded",
        mode=Mode.RESTART,
        target=TARGET,
        edits=edits,
        diff=diff_of(edits),
        command=COMMAND,
        old_command=now,
        shown_command=COMMAND,
        changes=asked_changes(COMMAND, now, Dialect.EMBEDDED),
        predictions=Predictions(restart_s=3.6),
        findings=(Finding.info("goes_back_to", "goes back to the configuration that was confirmed on 2026-11-29 at 16:00:07"),),
    )


class RecordedLink:
    """A host whose snapshots, plans and answers are given beforehand."""

    def __init__(self, *states: HostState, past: Past | None = None, read_only: bool = False) -> None:
        self.read_only = read_only
        self._queue: asyncio.Queue[HostState] = asyncio.Queue()
        for snapshot in states:
            self._queue.put_nowait(snapshot)
        self._past = past or Past()
        self.log: list[LogLine] = list(lines(START_LINES))
        self.log_batches: asyncio.Queue[tuple[LogLine, ...]] = asyncio.Queue()
        self.asked: list[tuple[Mapping[str, Value], Mode]] = []
        self.applied: list[tuple[Plan, ApplyChoices]] = []
        self.controls: list[Control] = []
        self.sent: list[tuple[PromptRequest, ...]] = []
        self.answer: tuple[str, ...] = ("Here is", " a function", " that merges", " two sorted", " lists.")
        self.survey = Survey(stage_seconds={"restart": 0.4, "process up": 0.2, "weights": 2.1, "ready": 0.9})
        self.stages: Sequence[StageEvent] = ()
        self.result: ApplyResult | None = None
        self.hold = asyncio.Event()
        self.hold.set()
        self.pictures: tuple[VerifyPicture, ...] = ()
        self.saved: dict[str, Mapping[str, Value]] = {}
        self.closed = False
        self.left_over = ""
        self.connection: Link | None = None
        self.records: tuple[CommandRecord, ...] = ()
        self.reconnected = 0
        self.drop_in: Plan | None = None
        self.released: bool | None = None
        self.earlier: Plan | None = None
        self.rolled_back: list[tuple[Plan, ApplyChoices]] = []

    def push(self, snapshot: HostState) -> None:
        """The host has a new snapshot."""
        self._queue.put_nowait(snapshot)

    def commands(self) -> tuple[CommandRecord, ...]:
        return self.records

    async def reconnect(self) -> None:
        self.reconnected += 1

    async def states(self) -> AsyncIterator[HostState]:
        while True:
            yield await self._queue.get()

    async def past(self, seconds: float) -> Past:
        return self._past

    def measure_baseline(self, tok_s: float) -> None:
        """Plain decoding has been measured since."""
        self._past = replace(self._past, baseline=tok_s)

    async def follow(self, *, this_start: bool) -> AsyncIterator[tuple[LogLine, ...]]:
        yield tuple(self.log)
        while True:
            yield await self.log_batches.get()

    async def plan(
        self,
        state: HostState,
        settings: Mapping[str, Value],
        mode: Mode,
        *,
        persist: bool = False,
        commit_confirm: bool = False,
    ) -> Plan:
        await self.while_planning()
        self.asked.append((settings, mode))
        change = Change(dict(settings), mode, persist, commit_confirm)
        try:
            return make_plan(state, change, self.survey, target=TARGET, render=_edits)
        except PlanError as error:
            raise LinkError(str(error)) from None

    async def while_planning(self) -> None:
        """What happens while a plan is made: nothing, and it is there at once."""

    async def plan_drop_in(self, *, release: bool) -> Plan:
        await self.while_planning()
        if self.drop_in is None:
            raise LinkError("there is no drop-in of the console's")
        self.released = release
        return self.drop_in

    async def plan_roll_back(self) -> Plan:
        await self.while_planning()
        if self.earlier is None:
            raise LinkError("there is no earlier configuration to go back to")
        return self.earlier

    async def apply(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        self.applied.append((plan, choices))
        return await self._operate(on_stage)

    async def roll_back(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        self.rolled_back.append((plan, choices))
        return await self._operate(on_stage)

    async def control(self, control: Control, on_stage: OnStage) -> ApplyResult:
        self.controls.append(control)
        return await self._operate(on_stage)

    async def pending(self) -> str:
        return self.left_over

    async def _operate(self, on_stage: OnStage) -> ApplyResult:
        for event in self.stages:
            on_stage(event)
        await self.hold.wait()
        if self.result is None:
            raise LinkError("the operation has no result here")
        return self.result

    async def send(self, requests: Sequence[PromptRequest], on_chunk: OnChunk, on_done: OnDone) -> tuple[RequestRecord, ...]:
        self.sent.append(tuple(requests))
        records = []
        for number, _ in enumerate(requests):
            for index, text in enumerate(self.answer):
                on_chunk(Chunk(number, text, 0.2 + 0.1 * index, tokens=3 if index else 1, first=index == 0))
            await self.hold.wait()
            record = answer_record(number, "".join(self.answer), token_ids=())  # chat answers name no ids
            on_done(record)
            records.append(record)
        return tuple(records)

    async def verifies(self, limit: int) -> tuple[VerifyPicture, ...]:
        return self.pictures[-limit:]

    async def save_profile(self, name: str, settings: Mapping[str, Value]) -> None:
        self.saved[name] = dict(settings)

    async def profiles(self) -> Mapping[str, Mapping[str, Value]]:
        return dict(self.saved)

    async def close(self) -> None:
        self.closed = True


def answer_record(number: int, text: str, **changes: object) -> RequestRecord:
    """The figures of a finished answer."""
    record = RequestRecord(
        request=number,
        text=text,
        token_ids=tuple(range(13)),
        prompt_tokens=20,
        completion_tokens=13,
        cached_tokens=4,
        chunks=5,
        ttft_s=0.205,
        total_s=0.7,
        decode_tok_s=30.0,
        decode_source=SpeedSource.CLIENT,
        commit_length=3.0,
        commit_source=CommitSource.HISTOGRAM,
        accept_histogram=(1, 0, 2, 1),
        verify_calls=4,
        finish_reason="stop",
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def wavy_past(end: float, seconds: int = 840) -> Past:
    """A quarter of an hour with a restart and a hot change in it."""
    decode = []
    commit = []
    for second in range(seconds):
        at = end - seconds + second
        if second < 300:
            decode.append(Point(at, 38.0 + second % 7 * 0.3))
            commit.append(Point(at, 2.1 + second % 5 * 0.02))
        elif second < 360:
            decode.append(Point(at, None))
        else:
            decode.append(Point(at, 60.0 + second % 9 * 0.5))
            commit.append(Point(at, 3.4 + second % 7 * 0.03))
    marks = (Mark(end - seconds + 300, "restart"), Mark(end - seconds + 600, "budget 16"))
    return Past(decode, commit, marks, baseline=29.0)
