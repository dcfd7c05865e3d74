"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    name: str
    status: Status
    message: str
    """What is there; where something is wrong, also what to do."""


def ok(name: str, message: str) -> Check:
    return Check(name, Status.OK, message)


def warn(name: str, message: str) -> Check:
    return Check(name, Status.WARN, message)


def fail(name: str, message: str) -> Check:
    return Check(name, Status.FAIL, message)
