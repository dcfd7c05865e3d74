"""Recordings of hosts with eight GPUs (``tests/fixtures/gpus``), as rows, holders and snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dflash_console.evidence.gpu import GpuProcess, GpuRow, parse_compute_apps, parse_gpus
from dflash_console.evidence.gpu_holders import GpuHolder, Owner
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.server import ServerInfo
from dflash_console.hosts.service import ConfigSource, ServiceConfig
from dflash_console.state import Aged, HostState

GPUS = Path(__file__).parent / "fixtures" / "gpus"
UNIT = "sglang-k26-ddtree.service"
COMMAND = (
    *("/opt/venv/bin/python", "-m", "sglang.launch_server", "--model-path", "/models/k26", "--tp-size", "8"),
    *(
        "--speculative-algorithm",
        "DDTREE",
        "--speculative-ddtree-budget",
        "8",
        "--speculative-ddtree-topk",
        "4",
        "--port",
        "30000",
    ),
)


def text(name: str) -> str:
    return (GPUS / name).read_text(encoding="utf-8")


def gpus(name: str) -> tuple[GpuRow, ...]:
    return parse_gpus(text(f"{name}.csv"))


def holders(name: str) -> tuple[GpuHolder, ...]:
    """The processes of a recording: SGLang's are the unit's, others are not."""
    return tuple(_holder(process) for process in parse_compute_apps(text(f"{name}.csv")))


def on_eight(
    found: HostState, rows: str | None, apps: str | None = "apps-eight-ranks", *, problems: Iterable[tuple[str, str]] = ()
) -> HostState:
    """``found`` as the snapshot of a host whose unit runs SGLang with eight ranks."""
    at = found.service.at if found.service is not None else 0.0
    config = ServiceConfig((ConfigSource(f"/etc/systemd/system/{UNIT}", ""),), COMMAND, COMMAND)
    return replace(
        found,
        host="ct200",
        unit=UNIT,
        embedded=False,
        config=Aged(config, at),
        process=Aged(ProcessEvidence(4242, COMMAND), at) if found.process is not None else None,
        server=Aged(ServerInfo(version="0.5.17", fields={"tp_size": 8}), at) if found.server is not None else None,
        gpus=Aged(gpus(rows), at) if rows is not None else None,
        gpu_holders=Aged(holders(apps), at) if apps is not None else None,
        problems=dict(problems),
    )


def _holder(process: GpuProcess) -> GpuHolder:
    ours = process.name.startswith("sglang::")
    words = f"pid {process.pid} ({process.name}, {UNIT if ours else 'train.service'}), {process.memory or 0:.0f} MiB"
    return GpuHolder(process, Owner.OURS if ours else Owner.OTHER, words, process.name)
