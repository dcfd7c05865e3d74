"""``status``: what runs, with which settings in effect, how fast, and whether the sources agree."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..config import EMBEDDED
from ..drift import TruthTable, Verdict, drift_items, port_verdict, truth_table
from ..effective import configured, running_with
from ..evidence.metrics import MetricsSample, Rates, rates_between
from ..evidence.reading import Known, Reading
from ..hosts.service import RunState
from ..knobs import KNOBS, OFF, Value, show_value
from ..state import HostState
from .context import Context
from .gpu_output import gpus_json, print_gpus
from .options import StatusOptions
from .outcome import ExitCode
from .output import Cell, JsonValue, Output, Tone

SINCE_START = "since the start"

SHOWN = (
    "algorithm",
    "speculation",
    "tree_budget",
    "tree_topk",
    "block_size",
    "draft_window",
    "layers_window",
    "drafter",
    "max_running_requests",
    "context_length",
    "attention_backend",
)
"""Settings in the order in which they are listed."""

_TONES = {
    RunState.RUNNING: ("●", Tone.GOOD),
    RunState.STARTING: ("◐", Tone.CAUTION),
    RunState.STOPPING: ("◑", Tone.CAUTION),
    RunState.FAILED: ("✗", Tone.BAD),
    RunState.STOPPED: ("○", Tone.FAINT),
    RunState.MISSING: ("∅", Tone.CAUTION),
    RunState.UNKNOWN: ("?", Tone.CAUTION),
}


def run(context: Context, options: StatusOptions) -> ExitCode:
    return asyncio.run(_status(context))


async def _status(context: Context) -> ExitCode:
    async with context.session() as session:
        state = await session.watcher.settled()
        if state.ready and state.rates.decode_tok_s is None and state.metrics is not None:
            # Throughput is the growth of a counter, so it takes a second look.
            await asyncio.sleep(0.5)
            await session.watcher.refresh()
        state = await session.watcher.gpus_settled()
    figures = live_figures(state)
    table = truth_table(state)
    if context.output.json_wanted:
        context.output.document(status_json(state, figures, table))
    else:
        print_status(context.output, state, figures, table)
    return ExitCode.FINE


@dataclass(frozen=True)
class Figures:
    """Live figures, each from the best source there is."""

    rates: Rates
    commit_length: float | None
    commit_source: str
    """Which verifies are counted."""


def live_figures(state: HostState) -> Figures:
    """The newest rates; where nothing finished just now, the commit length of everything since the start."""
    rates = state.rates
    if rates.commit_length is not None or state.metrics is None:
        return Figures(rates, rates.commit_length, rates.commit_source)
    nothing = MetricsSample(generation_tokens=0, num_requests=0, verify_calls=0)
    whole = rates_between(nothing, state.metrics.value, 1.0).commit_length
    return Figures(rates, whole, SINCE_START if whole is not None else "")


def _value(reading: Reading) -> Value | None:
    return reading.value if reading.known is Known.VALUE else None


def compact_cache(window: Value | None) -> bool | None:
    """The compact draft cache is on exactly when it has a size."""
    return None if window is None else window != OFF


def status_json(state: HostState, figures: Figures, table: TruthTable) -> dict[str, JsonValue]:
    """The whole status; ``null`` = not known or not in effect."""
    service = state.service.value if state.service else None
    server = state.server.value if state.server and state.ready else None
    effective = {name: running_with(state, name) for name in SHOWN}
    rates = figures.rates
    return {
        "host": state.host,
        "unit": state.unit,
        "embedded_engine": state.embedded,
        "service": {
            "state": service.state.value if service else RunState.UNKNOWN.value,
            "invocation_id": service.invocation_id if service else None,
            "main_pid": service.main_pid if service else None,
            "restarts": service.restarts if service else None,
            "started_at": service.started_at if service else None,
            "result": (service.result or None) if service else None,
            "detail": (service.detail or None) if service else None,
        },
        "engine": {
            "version": server.version if server else None,
            "algorithm": _value(effective["algorithm"]),
            "ready": state.ready,
        },
        "stranger": _stranger_json(state),
        "config": {
            **{name: _value(reading) for name, reading in effective.items()},
            "compact_cache": compact_cache(_value(effective["draft_window"])),
        },
        "config_sources": {name: reading.where for name, reading in effective.items() if reading.known is Known.VALUE},
        "configured": {name: _value(configured(state, name)) for name in SHOWN},
        "metrics": {
            "decode_tok_s": rates.decode_tok_s,
            "decode_source": rates.decode_source or None,
            "commit_length": figures.commit_length,
            "commit_source": figures.commit_source or None,
            "running": rates.running if rates.running is not None else (state.loads.value.running if state.loads else None),
            "queued": rates.queued if rates.queued is not None else (state.loads.value.queued if state.loads else None),
            "kv_usage": rates.kv_usage,
            "draft_kv_bytes": rates.draft_kv_bytes,
        },
        "drift": {
            "count": len(drift_items(table)),
            "items": [{"knob": row.knob, "verdict": row.verdict.value, "message": row.message} for row in drift_items(table)],
        },
        **gpus_json(state),
        "problems": dict(state.all_problems),
        "remarks": list(state.config.value.remarks) if state.config is not None else [],
    }


def _stranger_json(state: HostState) -> JsonValue:
    """Another program on the engine's port; ``null`` = none is seen."""
    if state.stranger is None:
        return None
    found = state.stranger.value
    return {"port": found.port, "pids": list(found.pids), "holder": found.holder or None, "command": found.command or None}


def print_status(output: Output, state: HostState, figures: Figures, table: TruthTable) -> None:
    """The same for people."""
    service = state.service.value if state.service else None
    rows: list[list[str | Cell]] = [
        ["host", state.host + _where(state)],
        ["unit", state.unit],
    ]
    if service is None:
        output.table(rows)
        output.line(f"service  ? {state.problems.get('service', 'not read')}", Tone.BAD)
        return
    symbol, tone = _TONES[service.state]
    words = [service.state.value]
    if service.state is RunState.RUNNING and not state.ready:
        words = [_unready_words(state)]
        symbol, tone = "◐", Tone.CAUTION
        if state.stranger is not None:
            words, symbol, tone = ["running, but another program answers"], "✗", Tone.BAD
    if service.main_pid:
        words.append(f"pid {service.main_pid}")
    if service.restarts:
        words.append(f"{service.restarts} restarts")
    if service.state is RunState.FAILED:
        words += [word for word in (service.result, service.detail) if word not in ("", "success")]
    rows.append(["service", Cell(f"{symbol} {', '.join(words)}", tone)])
    if state.stranger is not None:
        port = port_verdict(state)
        said = f"{port.symbol} {state.stranger.value.port} is another program's: {state.stranger.value.words}"
        rows.append(["port", Cell(said, Tone.BAD if port is Verdict.DRIFT else Tone.CAUTION)])
    if service.invocation_id:
        rows.append(["start", service.invocation_id])
    if state.server and state.ready:
        rows.append(["engine", state.server.value.engine_name])
    output.table(rows)
    output.line()
    _print_settings(output, state)
    if state.ready:
        output.line()
        _print_figures(output, state, figures)
    print_gpus(output, state)
    items = drift_items(table)
    output.line()
    if items:
        output.line(f"drift: {len(items)}", Tone.BAD)
        output.table([[Cell("✗", Tone.BAD), row.knob, row.message] for row in items], indent=2, wrap=True)
    elif state.unread_config:
        output.line("? drift is not known: the unit file cannot be read", Tone.CAUTION)
    elif state.ready:
        unknown = [row.knob for row in table.rows if row.verdict is Verdict.UNKNOWN]
        if unknown:
            output.line(f"? no drift is seen, and not known: {', '.join(unknown)} (ddtree-console drift says why)", Tone.CAUTION)
        else:
            output.line("✓ no drift: all sources agree", Tone.GOOD)
    for source, problem in state.all_problems.items():
        output.line(f"{source}: {problem}", Tone.CAUTION)
    for remark in state.config.value.remarks if state.config is not None else ():
        output.line(f"! {remark}", Tone.CAUTION)


def _unready_words(state: HostState) -> str:
    if state.silent:
        return "running, but does not answer"
    return "running, has not answered yet" if state.said_ready else "running, not ready yet"


def _where(state: HostState) -> str:
    """What the name of this machine's host stands for: it may run another engine than the embedded one."""
    if state.embedded:
        return " (a small model on this CPU)"
    return " (this machine)" if state.host == EMBEDDED else ""


def _print_settings(output: Output, state: HostState) -> None:
    rows: list[list[str | Cell]] = []
    for name in SHOWN:
        now, asked = running_with(state, name), configured(state, name)
        if now.known is not Known.VALUE and asked.known is not Known.VALUE:
            continue
        missing = "not given" if asked.known is Known.ABSENT else "?"
        wanted = show_value(asked.value) if asked.known is Known.VALUE else Cell(missing, Tone.FAINT)
        rows.append(
            [
                KNOBS[name].title,
                show_value(now.value) if now.known is Known.VALUE else Cell("?", Tone.FAINT),
                wanted,
                _source(now),
            ]
        )
    if rows:
        output.table(rows, header=["setting", "in effect", "configured", "by"])


def _source(reading: Reading) -> str:
    """Where a value in effect was read, short enough for a column; the JSON has it whole."""
    return "the engine's report" if reading.where.startswith("/server_info") else reading.where


def _print_figures(output: Output, state: HostState, figures: Figures) -> None:
    rates = figures.rates
    decode = "–" if rates.decode_tok_s is None else f"{rates.decode_tok_s:.1f} tok/s ({rates.decode_source})"
    commit = "–" if figures.commit_length is None else f"{figures.commit_length:.2f} ({figures.commit_source})"
    running = "–" if rates.running is None else f"{rates.running} running, {rates.queued or 0} queued"
    output.table([["decode", Cell(decode, Tone.STRONG)], ["commit length", Cell(commit, Tone.STRONG)], ["requests", running]])
    if "metrics" in state.problems:
        output.line("no live figures without --enable-metrics", Tone.CAUTION)
