"""Checks of this machine and of a host: what would keep the console or the engine from working, and what to do about it.

Every check ends in one sentence; none raises, and none changes anything but a probe file that it removes again.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import locale
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from engine_launch.spec.installing import install_command

from .config import LoadedConfig
from .formats import counted
from .hosts.transport import HostError, Transport
from .paths import Paths


class CheckStatus(Enum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """It works, less well."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be looked at."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: CheckStatus
    message: str
    """One sentence: what was found and, when it is not fine, what to do."""


OLDEST_PYTHON = (3, 11)
SMALLEST_TERMINAL = (80, 24)
SMALLEST_FREE_MB = 200
LISTED = 8
"""Mistakes in theme and keys that one finding names."""
CONSOLE_PACKAGES = (
    *("textual", "plotext", "httpx", "httpx-sse", "prometheus-client", "pydantic", "platformdirs", "tomlkit", "asyncssh"),
)
ENGINE_MODULES = ("torch", "safetensors", "tokenizers", "gguf", "jinja2", "starlette", "uvicorn")


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """The interpreter that runs the console."""
    text = ".".join(str(part) for part in version)
    if version < OLDEST_PYTHON:
        wanted = ".".join(str(part) for part in OLDEST_PYTHON)
        return Check("python", CheckStatus.FAILED, f"Python {text} is too old; install {wanted} or newer")
    return Check("python", CheckStatus.OK, f"Python {text} at {sys.executable}")


def check_packages() -> Check:
    """What the console itself imports."""
    missing = [name for name in CONSOLE_PACKAGES if not _installed(name)]
    if missing:
        command = install_command("", importlib.metadata.distribution)
        return Check("packages", CheckStatus.FAILED, f"{', '.join(missing)} missing: {command}")
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in CONSOLE_PACKAGES[:2])
    return Check("packages", CheckStatus.OK, f"{found} and the rest are installed")


def check_engine_packages() -> Check:
    """What the embedded engine needs beside the console; looked for, not imported (torch takes seconds)."""
    missing = [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        command = install_command("embedded", importlib.metadata.distribution)
        advice = f"the console works, the embedded engine needs: {command}"
        return Check("engine packages", CheckStatus.WARNING, f"{', '.join(missing)} not installed; {advice}")
    return Check("engine packages", CheckStatus.OK, f"torch {importlib.metadata.version('torch')} and the rest are installed")


def check_terminal(environment: Mapping[str, str], size: tuple[int, int] | None) -> Check:
    """The terminal: size in columns × rows (``None`` = there is none), encoding and colours."""
    if size is None:
        return Check("terminal", CheckStatus.UNKNOWN, "no terminal here; the headless commands need none")
    encoding = locale.getpreferredencoding(False)
    if encoding.lower().replace("-", "") != "utf8":
        return Check("terminal", CheckStatus.WARNING, f"the locale's encoding is {encoding}: symbols need UTF-8 (LANG=C.UTF-8)")
    term = environment.get("TERM", "")
    if term in ("", "dumb"):
        return Check("terminal", CheckStatus.FAILED, f"TERM is {term or 'not set'}: the screens need a real one (xterm-256color)")
    shape = f"{size[0]}×{size[1]}"
    if size[0] < SMALLEST_TERMINAL[0] or size[1] < SMALLEST_TERMINAL[1]:
        return Check("terminal", CheckStatus.WARNING, f"{shape} is smaller than 80×24: parts of the screens are cut off")
    return Check("terminal", CheckStatus.OK, f"{term}, {shape}, {_colours(term, environment)}")


def _colours(term: str, environment: Mapping[str, str]) -> str:
    if environment.get("NO_COLOR"):
        return "no colours (NO_COLOR is set)"
    if environment.get("COLORTERM") in ("truecolor", "24bit"):
        return "true colour"
    return "256 colours" if "256color" in term else "16 colours"


async def check_tmux(transport: Transport, environment: Mapping[str, str]) -> Check:
    """tmux: nobody needs it, but an operation of minutes over SSH is better off in it."""
    inside = bool(environment.get("TMUX"))
    term = environment.get("TERM", "")
    if inside and not term.startswith(("tmux", "screen")):
        advice = "set -g default-terminal tmux-256color in tmux.conf"
        return Check("tmux", CheckStatus.WARNING, f"inside tmux TERM should be tmux-256color, not {term}: {advice}")
    try:
        done = await transport.run(["tmux", "-V"], timeout=5.0)
    except HostError:
        return Check("tmux", CheckStatus.OK, "not installed (it keeps a session over SSH alive; the console does not need it)")
    version = done.stdout.decode("utf-8", "replace").strip() or "tmux"
    return Check("tmux", CheckStatus.OK, f"{version}, {'inside it' if inside else 'not inside it'}")


def check_config(loaded: LoadedConfig, paths: Paths, looks: Sequence[str] = ()) -> Check:
    """The console's own configuration file.

    Args:
        looks: what the screens say of its theme and its keys, and of the user's own themes.
    """
    if loaded.problems:
        more = f" (and {len(loaded.problems) - 1} more)" if len(loaded.problems) > 1 else ""
        return Check("configuration", CheckStatus.FAILED, f"{loaded.problems[0]}{more}; the defaults are used until it is mended")
    if looks:
        more = f" (and {len(looks) - LISTED} more)" if len(looks) > LISTED else ""
        return Check("configuration", CheckStatus.WARNING, f"{paths.config}: {'; '.join(looks[:LISTED])}{more}")
    if not paths.config_file.exists():
        return Check("configuration", CheckStatus.OK, f"no file at {paths.config_file}: the defaults are used")
    return Check("configuration", CheckStatus.OK, f"{paths.config_file}, {counted(len(loaded.config.hosts), 'host')}")


async def check_state_folder(transport: Transport, paths: Paths) -> Check:
    """Where history and operations are kept: it must take a file, or nothing can be resumed after a crash."""
    name = "state folder"
    try:
        paths.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = str(paths.state / f".doctor-{os.getpid()}")
        await transport.write(probe, b"probe", mode=0o600)
        await transport.remove(probe)
        free_mb = shutil.disk_usage(paths.state).free // 1_000_000
    except (OSError, HostError) as problem:
        return Check(name, CheckStatus.FAILED, f"{paths.state} does not take a file: {problem}")
    if free_mb < SMALLEST_FREE_MB:
        return Check(name, CheckStatus.WARNING, f"{paths.state} has only {free_mb} MB left: history and logs need some")
    return Check(name, CheckStatus.OK, f"{paths.state} is writable")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


async def check_machine(
    transport: Transport,
    paths: Paths,
    loaded: LoadedConfig,
    environment: Mapping[str, str],
    size: tuple[int, int] | None,
    looks: Sequence[str] = (),
) -> tuple[Check, ...]:
    """All checks of the machine that the console runs on; ``looks``: as for :func:`check_config`."""
    return (
        check_python(),
        check_packages(),
        check_engine_packages(),
        check_terminal(environment, size),
        await check_tmux(transport, environment),
        check_config(loaded, paths, looks),
        await check_state_folder(transport, paths),
    )
