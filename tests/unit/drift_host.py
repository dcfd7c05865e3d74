"""A host as the tests of drift need it: what each source says, and the snapshot of it all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dflash_console.drift import TruthRow, truth_table
from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.server import ServerInfo, parse_server_info
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.state import Aged, HostState
from engine_launch.spec.drafter_config import DrafterConfig, parse_drafter_config

COMMAND = (
    *("python", "-m", "engine_launch", "serve", "--engine", "embedded", "--speculative-algorithm", "DDTREE"),
    *("--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4", "--port", "30000"),
)
STOCK = ("python", "-m", "sglang.launch_server", "--model-path", "/w/t", "--speculative-algorithm", "DFLASH")
READY = "The server is fired up and ready to roll!"
DRAFTER = json.dumps(
    {
        "architectures": ["DFlashDraftModel"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 6,
        "vocab_size": 100,
        "block_size": 8,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "sliding_window": 2048,
        "use_sliding_window": True,
    }
)


TRAINED = parse_drafter_config(DRAFTER)


def confirmation(algorithm: str = "DDTREE", budget: int = 8, window: object = None, layers: object = 2048, block: int = 8) -> str:
    return (
        f"Initialized {algorithm} draft runner. attention_backend=torch_native, model=DFlashDraftModel, block_size={block}, "
        f"tree_budget={budget}, tree_topk=4, layers_window={layers}, draft_window_size={window}, "
        f"compact_cache={window is not None}"
    )


def hot(name: str, old: object, new: object) -> str:
    return f"Hot change applied. {name}: {old} -> {new} (from /set_internal_state)"


@dataclass(frozen=True)
class Host:
    """What a test's host has; ``None`` = that source was not read."""

    written: Sequence[str] | None = COMMAND
    loaded: Sequence[str] | None = COMMAND
    process: Sequence[str] | None = COMMAND
    log: Sequence[str] | None = (confirmation(), READY)
    server: ServerInfo | None = None
    drafter: DrafterConfig | None = TRAINED
    state: RunState = RunState.RUNNING
    started: float = 2000.0
    edited: float = 1000.0
    report_after: int = 0
    """Lines of the log that had been read when the server was asked."""

    def snapshot(self) -> HostState:
        config = None
        if self.written is not None:
            source = ConfigSource("/etc/systemd/system/sgl.service", "", self.edited)
            loaded = tuple(self.loaded) if self.loaded is not None else None
            config = Aged(ServiceConfig((source,), tuple(self.written), loaded), 0.0)
        return HostState(
            host="h",
            unit="u",
            service=Aged(ServiceState("u", self.state, "ab", 7, started_at=self.started), 0.0),
            config=config,
            process=Aged(ProcessEvidence(7, tuple(self.process)), 0.0) if self.process is not None else None,
            server=Aged(self.server, 0.0) if self.server is not None else None,
            report_after=self.report_after,
            log=Aged(StartLog().add_all(LogLine(line) for line in self.log), 0.0) if self.log is not None else None,
            drafter=Aged(self.drafter, 0.0) if self.drafter is not None else None,
        )

    def without(self, missing: set[str]) -> Host:
        """The same host with some sources not read."""
        return replace(
            self,
            written=None if "written" in missing else self.written,
            loaded=None if "loaded" in missing else self.loaded,
            process=None if "process" in missing else self.process,
            log=None if "log" in missing else self.log,
            server=None if "server" in missing else self.server,
            drafter=None if "drafter" in missing else self.drafter,
        )

    def row(self, knob: str) -> TruthRow:
        row = truth_table(self.snapshot()).row(knob)
        assert row is not None, knob
        return row


def with_flags(command: Sequence[str], *words: str) -> tuple[str, ...]:
    return (*command, *words)


def reported(**now: object) -> ServerInfo:
    """Our engine's report after a start with budget 8."""
    started: dict[str, object] = {
        "algorithm": "DDTREE",
        "speculation": True,
        "block_size": 8,
        "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4,
        "speculative_draft_window_size": None,
        "layers_window": 2048,
        "compact_cache": False,
    }
    return parse_server_info(
        json.dumps({"startup_settings": started, "internal_states": [{**started, **now}], "engine": "embedded", "version": "x"})
    )
