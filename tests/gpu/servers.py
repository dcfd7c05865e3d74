"""Starting SGLang servers, several at once on one GPU, and ending exactly those that were started.

A start takes a minute and a half, nearly all of it on the CPU, so the servers of a run start together; measurements of speed
have the others idle beside them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tests.gpu.client import Client

READY = b"The server is fired up and ready to roll!"
FIRST_PORT = 31000
NCCL_PORT_AFTER = 50
"""How far above its HTTP port a server's ranks meet; servers' HTTP ports are 100 apart."""
PR_SET_PDEATHSIG = 1
COMMON_FLAGS: tuple[str, ...] = (
    "--host=127.0.0.1",
    "--attention-backend=triton",
    "--sampling-backend=pytorch",
    "--grammar-backend=none",
    "--page-size=1",
    "--disable-prefill-cuda-graph",
    "--enable-metrics",
    "--random-seed=1",
    "--sleep-on-idle",
)
"""Prefill graphs take a minute of compiling; flash-attention kernels and grammars are left out of the bundle. An idle server
sleeps, because many of them stand beside the one that is measured, and each would otherwise keep a core busy."""


class StartFailed(Exception):
    """A server ended or did not become ready; the message has the end of its log."""


@dataclass(frozen=True)
class ServerSpec:
    """One server to start."""

    name: str
    model: Path
    flags: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ranks: int = 1
    """GPUs that it is spread over."""
    module: str = "sglang.launch_server"

    def command(self, port: int) -> list[str]:
        head = [sys.executable, "-m", self.module, "--model-path", str(self.model), "--port", str(port)]
        # SGLang asks for a free port and takes it half a minute later: servers that start together may get the same one.
        return [*head, f"--nccl-port={port + NCCL_PORT_AFTER}", *COMMON_FLAGS, *self.flags]


@dataclass(frozen=True)
class Server:
    """A server that is up."""

    name: str
    client: Client
    log: Path | None
    """Its output; ``None`` for a server that was running before."""

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log else ""


def _log_end(path: Path, lines: int = 25) -> str:
    text = path.read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
    return "\n".join(line[:300] for line in text.splitlines()[-lines:])


@contextlib.contextmanager
def running(
    specs: Sequence[ServerSpec],
    folder: Path,
    *,
    seconds: float = 330.0,
    command: Callable[[ServerSpec, int], list[str]] = ServerSpec.command,
    first_port: int = FIRST_PORT,
    devices: Sequence[int] = (0,),
    tolerant: bool = False,
) -> Iterator[dict[str, Server]]:
    """Start all of ``specs`` together; when the block ends, end them and whatever they started.

    Args:
        folder: gets ``server-NAME.log``.
        seconds: how long all of them together may take to be ready.
        command: what starts one; SGLang, unless a test says otherwise.
        first_port: of the first server; the others' are 100 apart.
        devices: GPUs that may be used; a server of one rank gets the first.
        tolerant: go on with those that are ready, as long as there is one; what is wrong with the others is printed.

    Raises:
        StartFailed: one of them ended or was not ready in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        servers: dict[str, Server] = {}
        for number, spec in enumerate(specs):
            # Ports 100 apart: SGLang takes more of them near the one it is given.
            port, log = first_port + 100 * number, folder / f"server-{spec.name}.log"
            visible = ",".join(str(device) for device in devices[: spec.ranks])
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "PYTHONUNBUFFERED": "1", **spec.environment}
            with log.open("wb") as out:
                process = subprocess.Popen(
                    command(spec, port),
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
            processes.append(process)
            servers[spec.name] = Server(spec.name, Client(f"http://127.0.0.1:{port}"), log)
        failures = _wait_ready(specs, processes, servers, seconds, tolerant)
        for name, problem in failures.items():
            print(f"  start failed: {problem}", flush=True)
            del servers[name]
        if failures and not servers:
            raise StartFailed("no server is ready")
        yield servers
    finally:
        _end(processes)


def _end_with_parent() -> None:
    """In the child: be ended when the runner is killed, as SGLang's own processes are when their parent is (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_ready(
    specs: Sequence[ServerSpec],
    processes: Sequence[subprocess.Popen[bytes]],
    servers: Mapping[str, Server],
    seconds: float,
    tolerant: bool,
) -> dict[str, str]:
    """Wait for all; when ``tolerant``, name → what is wrong with those that did not get ready."""
    begun = time.monotonic()
    waiting = dict(zip((spec.name for spec in specs), processes, strict=True))
    failures: dict[str, str] = {}
    while waiting:
        for name, process in list(waiting.items()):
            log = servers[name].log
            assert log is not None
            problem = None
            if READY in log.read_bytes():
                del waiting[name]
                print(f"  {name} ready after {time.monotonic() - begun:.0f} s", flush=True)
            elif process.poll() is not None:
                problem = f"server {name} ended with code {process.returncode}:\n{_log_end(log)}"
            elif time.monotonic() - begun > seconds:
                problem = f"server {name} was not ready after {seconds:.0f} s:\n{_log_end(log)}"
            if problem is not None and not tolerant:
                raise StartFailed(problem)
            if problem is not None:
                del waiting[name]
                failures[name] = problem
        time.sleep(0.5)
    return failures


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Each was made the leader of a process group of its own, so its children are reached and nothing else is."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
        until = time.monotonic() + (8 if sign is signal.SIGTERM else 5)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
