"""Plans as tests need them: a service with a command, what its engine reports, and the plan of a change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.file_edits import FileEdit
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.metrics import Rates
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.server import parse_server_info
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.hosts.unit_file import new_unit_file, replace_command
from dflash_console.knobs import Value
from dflash_console.plan import Change, Mode, Plan, Severity, Survey, make_plan
from dflash_console.state import Aged, HostState
from engine_launch.spec.drafter_config import DrafterConfig, parse_drafter_config

TARGET = "/units/engine/service.toml"
BASE = (
    "python", "-m", "engine_launch", "serve", "--engine", "embedded", "--speculative-algorithm", "DDTREE",
    "--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4", "--port", "30000",
)  # fmt: skip
INVOCATION = "a" * 32

DRAFTER_JSON = {
    "architectures": ["DFlashDraftModel"], "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
    "num_key_value_heads": 3, "head_dim": 64, "num_hidden_layers": 4, "vocab_size": 49152, "block_size": 8,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 512, "use_sliding_window": True,
    "num_target_layers": 30, "dflash_config": {"mask_token_id": 16, "target_layer_ids": [1, 10, 19, 27]},
}  # fmt: skip


def drafter() -> DrafterConfig:
    return parse_drafter_config(json.dumps(DRAFTER_JSON))


def settings(**now: object) -> dict[str, object]:
    return {
        "algorithm": "DDTREE", "speculation": True, "block_size": 8, "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4, "speculative_draft_window_size": None, "layers_window": 512, **now,
    }  # fmt: skip


def state(
    command: tuple[str, ...] = BASE,
    *,
    running: bool = True,
    loaded: tuple[str, ...] | None = None,
    now: Mapping[str, object] | None = None,
    foreign: bool = False,
    requests: int = 0,
    lines: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> HostState:
    """A service with this command, running ready with what it was started with unless told otherwise."""
    text = new_unit_file(command, description="test", environment=environment)
    config = ServiceConfig((ConfigSource(TARGET, text, 1.0),), command, loaded or command, environment or {})
    service = ServiceState(
        "engine", RunState.RUNNING if running else RunState.STOPPED, INVOCATION if running else None, 7 if running else None
    )
    found = HostState("here", "engine", embedded=not foreign, service=Aged(service, 0.0), config=Aged(config, 0.0))
    if not running:
        return found
    if foreign:
        body: dict[str, object] = {
            "model_path": "/m", "version": "0.5.17", "speculative_algorithm": "DFLASH", "speculative_draft_window_size": None,
            "internal_states": [{"model_path": "/m", "speculative_draft_window_size": None}],
        }  # fmt: skip
    else:
        start = settings()
        body = {
            "engine": "embedded", "version": "ddtree-embedded 1", "context_length": 8192, "max_running_requests": 8,
            "dtype": "float32", "startup_settings": start, "internal_states": [settings(**(now or {}))],
        }  # fmt: skip
    log = StartLog().add_all(
        LogLine(line, invocation_id=INVOCATION, number=number) for number, line in enumerate(lines or ("hello",), 1)
    )
    return replace(
        found,
        process=Aged(ProcessEvidence(7, loaded or command), 0.0),
        server=Aged(parse_server_info(json.dumps(body)), 0.0),
        log=Aged(log, 0.0),
        rates=Rates(running=requests),
        ready=True,
    )


def plan(
    known: HostState,
    wanted: Mapping[str, Value | None],
    mode: Mode = Mode.AUTO,
    survey: Survey | None = None,
    *,
    persist: bool = False,
) -> Plan:
    def render(command: tuple[str, ...]) -> tuple[FileEdit, ...]:
        assert known.config is not None
        old = known.config.value.sources[0].text
        return (FileEdit(TARGET, old, replace_command(old, command)),)

    return make_plan(known, Change(wanted, mode, persist), survey or Survey(drafter=drafter()), target=TARGET, render=render)


def new_text(made: Plan) -> str:
    """The unit file after the plan."""
    text = made.edits[0].new if made.edits else replace_command(new_unit_file(BASE, description="test"), made.command)
    assert text is not None
    return text


def codes(made: Plan, severity: Severity | None = None) -> set[str]:
    return {finding.code for finding in made.findings if severity in (None, finding.severity)}
