"""Commit, date, device and versions of a run."""

from __future__ import annotations

import datetime
import importlib.metadata
import subprocess
from pathlib import Path

from tests.gpu.records import Provenance

PACKAGES = ("sglang", "torch", "triton", "transformers", "sglang-kernel", "ddtree-console")
COMMIT_FILE = Path(__file__).parents[2] / ".gpu" / "wheel" / "COMMIT"
"""Written by ``pack.sh wheel``: the machine that runs may have the tree without its history."""


def provenance(gpus: int = 1) -> Provenance:
    """What is run on now; ``gpus``: how many of the machine's are used."""
    device, driver = _device(gpus)
    versions = {name: version for name in PACKAGES if (version := _version(name))}
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return Provenance(_commit(), now.isoformat().replace("+00:00", "Z"), device, driver, versions)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    if COMMIT_FILE.is_file():
        return COMMIT_FILE.read_text(encoding="utf-8").strip()
    root = Path(__file__).parents[2]
    revision = _output("git", "-C", str(root), "rev-parse", "--short=10", "HEAD")
    changed = _output("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return f"{revision}{'+' if changed else ''}" if revision else "unknown"


def _device(gpus: int) -> tuple[str, str]:
    line = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    cells = [cell.strip() for cell in line.splitlines()[0].split(",")] if line else []
    if len(cells) != 2:
        return "no GPU", "none"
    return (f"{gpus} × {cells[0]}" if gpus > 1 else cells[0]), cells[1]


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
