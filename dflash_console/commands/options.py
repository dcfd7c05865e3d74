"""What each command was asked: the command line, checked, as records. Standard library only; the parser imports this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class CommonOptions:
    """Options of every command."""

    json: bool = False
    host: str | None = None
    """A configured host's name or an SSH destination; ``None`` = the configuration's default."""
    unit: str | None = None
    """The service; ``None`` = the host's configured or only one."""
    read_only: bool = False
    """Refuse everything that changes the host."""


class ApplyMode(Enum):
    """How a change is to reach the engine."""

    AUTO = "auto"
    """While it runs where it can, else by a restart."""
    HOT = "hot"
    RESTART = "restart"


@dataclass(frozen=True)
class ConsoleOptions:
    """No command: the screens."""


@dataclass(frozen=True)
class StatusOptions:
    """``status``."""


@dataclass(frozen=True)
class DriftOptions:
    """``drift``."""


@dataclass(frozen=True)
class PlanOptions:
    """``plan``: a change."""

    settings: tuple[str, ...] = ()
    """``NAME=VALUE`` as written."""
    profile: str | None = None
    mode: ApplyMode = ApplyMode.AUTO
    commit_confirm: bool = False
    """Let the host itself put the configuration back unless the change is confirmed in time."""


@dataclass(frozen=True)
class ApplyOptions(PlanOptions):
    """``apply``: a change and how to go about it."""

    yes: bool = False
    rollback_on_failure: bool = False
    drain: bool = False
    persist: bool = False
    """Write a hot change down too."""
    resume: bool = False
    """Go on with an operation that was cut off, instead of beginning one."""


@dataclass(frozen=True)
class LifecycleOptions:
    """``start``, ``stop``, ``restart`` and ``rollback``."""

    yes: bool = False
    rollback_on_failure: bool = False
    drain: bool = False


@dataclass(frozen=True)
class LogsOptions:
    """``logs``."""

    follow: bool = False
    this_start: bool = False
    lines: int = 200


@dataclass(frozen=True)
class PromptOptions:
    """``prompt``: what to send, and how often."""

    text: str | None = None
    """``-`` = read it from standard input."""
    copies: int = 1
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    raw: bool = False
    """Continue the text as it stands, without the chat template."""
    openai: bool = False
    """Ask the chat endpoint itself, as OpenAI's clients do."""
    algorithm: str | None = None
    settings: tuple[str, ...] = ()
    """Settings of these requests only, ``NAME=VALUE``."""
    suite: str | None = None
    depth: int = 0
    first_token_timeout: float = 300.0
    """Seconds."""


@dataclass(frozen=True)
class HostsOptions:
    """``hosts``."""


@dataclass(frozen=True)
class DoctorOptions:
    """``doctor``."""
