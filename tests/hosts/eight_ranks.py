"""A host with eight GPUs for tests: a unit whose server has a process for each rank, and an ``nvidia-smi`` that sees them.

The rows are the derived ones of ``tests/fixtures/gpus``; the processes are real, in the unit's control group, and call themselves
what SGLang's ranks do. The server is the stand-in engine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.gpu_recordings import GPUS
from tests.testhost import TestHost

STAND_IN = Path(__file__).with_name("stand_in_engine.py")
UNIT = "sglang-k26-ddtree.service"
TOOL = "/usr/local/bin/nvidia-smi"
_RANKS = "for i in 0 1 2 3 4 5 6 7; do (exec -a sglang::scheduler_TP$$i sleep 100000) & done"


def install_server(host: TestHost, port: int) -> None:
    """The unit, not yet started. Under ``sh -c``, as many a real one."""
    host.exec("sh", "-c", f"mkdir -p /opt/engine && ln -sf {STAND_IN} /opt/engine/ddtree-launch")
    flags = (
        "--speculative-algorithm DDTREE --speculative-ddtree-budget 8 --speculative-ddtree-topk 4 --tp-size 8 --enable-metrics"
    )
    server = f"exec {sys.executable} -I /opt/engine/ddtree-launch serve {flags} --host 127.0.0.1 --port {port}"
    host.install_unit(UNIT, f"[Service]\nExecStart=/bin/bash -c '{_RANKS}; {server}'\nTimeoutStopSec=5\n")


def install_tool(host: TestHost, rows: str, *, hidden: tuple[int, ...] = ()) -> None:
    """An ``nvidia-smi`` that prints a recording, and the ranks that run, each on its GPU.

    Args:
        rows: name of the recording.
        hidden: GPUs whose process it does not list.
    """
    indices = " ".join(str(index) for index in range(8) if index not in hidden)
    script = f"""#!/bin/sh
case "$1" in
*compute-apps*)
  echo 'pid, process_name, gpu_uuid, used_gpu_memory [MiB]'
  for i in {indices}; do
    for pid in $(pgrep -f "^sglang::scheduler_TP$i "); do
      echo "$pid, sglang::scheduler_TP$i, GPU-aaaaaaaa-0000-0000-0000-00000000000$i, 131834 MiB"
    done
  done
  for pid in $(pgrep -f "^python3-train "); do
    echo "$pid, python3, GPU-aaaaaaaa-0000-0000-0000-000000000007, 11058 MiB"
  done;;
*) cat {GPUS / f"{rows}.csv"}; grep -q '^Unable' {GPUS / f"{rows}.csv"} && exit 15; exit 0;;
esac
"""
    path = host.path(TOOL)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
