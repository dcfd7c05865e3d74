"""Fixtures of the readers' tests: recorded outputs and field cases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = FIXTURES / "cases"
CAPTURES = FIXTURES / "captures"


def stored_lines(path: Path) -> list[str]:
    """The lines of a log as stored: a carriage return does not end a line."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return text.removesuffix("\n").split("\n")


def fold(lines: Iterable[str]) -> StartLog:
    return StartLog().add_all(LogLine(line) for line in lines)


def case_lines(*parts: str) -> list[str]:
    return stored_lines(CASES.joinpath(*parts))


def container_command() -> tuple[str, ...]:
    """The arguments that systemd makes of the unit with one long shell string (continued lines joined by a blank)."""
    text = (CASES / "01-unit-bash-docker" / "llm-gpu8.service").read_text()
    return ("/bin/bash", "-c", text.split("-c '")[1].split("'\n")[0].replace("\\\n", " "))


def spelled_command() -> tuple[str, ...]:
    text = (CASES / "13-unit-flag-spellings" / "spell.service").read_text()
    return tuple(text.split("ExecStart=")[1].split())
