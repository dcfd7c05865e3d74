"""systemd's properties of a service → the console's state, in words. Pure.

Properties are those of ``systemctl show`` (org.freedesktop.systemd1(5)); times are asked for in UTC with microseconds.
"""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Mapping
from datetime import UTC, datetime

from ..evidence.values import whole
from .service import RunState, ServiceState

PROPERTIES = (
    "Id,Names,LoadState,LoadError,ActiveState,SubState,Type,Restart,RestartUSec,Result,InvocationID,MainPID,NRestarts,"
    "ExecMainCode,ExecMainStatus,ExecMainStartTimestamp,ActiveEnterTimestamp,NeedDaemonReload,FragmentPath,DropInPaths,"
    "ConditionResult,ConditionTimestampMonotonic,AssertResult,AssertTimestampMonotonic,Job"
)
_EXITED = frozenset({"1", "exited"})
"""ExecMainCode of a process that ended by itself (CLD_EXITED of sigaction(2), and its name); 2 = killed, 3 = dumped core."""
_MEANT = {
    200: "its working directory cannot be entered",
    203: "its program is missing or cannot be executed",
    209: "its output cannot be opened",
    216: "its group does not exist",
    217: "its user does not exist",
    226: "what it may see of the host cannot be set up",
}
"""Statuses that systemd itself gives a process which it could not start (systemd.exec(5), "Process exit codes")."""
_RESULTS = {
    "oom-kill": "memory ran out, the host's or what MemoryMax= allows",
    "protocol": "it was not what its Type= expects, or ended before it was ready",
    "resources": "systemd could not prepare its start, as without an EnvironmentFile= that is named",
    "timeout": "TimeoutStartSec= or TimeoutStopSec= ran out",
    "watchdog": "it told nothing for longer than WatchdogSec= allows",
}
"""What a Result of systemd's says (org.freedesktop.systemd1(5)), where its name does not."""
_OF_SIGNALS = range(129, 193)
"""Statuses of shells and of containers' clients for a command that a signal ended: 128 and the signal."""
_RUNNING = {"active": RunState.RUNNING, "reloading": RunState.RUNNING, "refreshing": RunState.RUNNING}
_STATES = {
    **_RUNNING,
    "inactive": RunState.STOPPED,
    "failed": RunState.FAILED,
    "activating": RunState.STARTING,
    "deactivating": RunState.STOPPING,
}
_QUOTED = re.compile(r'"(.*)"$')


def parse_show(data: bytes) -> dict[str, str]:
    """``Key=Value`` lines."""
    lines = data.decode("utf-8", "replace").split("\n")
    return {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of ``Sun 2026-11-29 21:55:04.187789 UTC``; ``None`` when it is empty or no time."""
    parts = text.split()
    if len(parts) != 4 or parts[3] != "UTC":
        return None
    for pattern in ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S"):
        try:
            return datetime.strptime(" ".join(parts[1:3]), pattern).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def service_state(unit: str, shown: Mapping[str, str]) -> ServiceState:
    """The state with everything that is wrong in one sentence."""
    pid = _number(shown.get("MainPID", "")) or None
    state = _run_state(shown, pid)
    ended = pid is None and shown.get("ExecMainCode") in _EXITED
    started = shown.get("ExecMainStartTimestamp") or shown.get("ActiveEnterTimestamp", "")
    return ServiceState(
        unit=unit,
        state=state,
        invocation_id=shown.get("InvocationID") or None,
        main_pid=pid,
        restarts=_number(shown.get("NRestarts", "")) or 0,
        started_at=parse_time(started),
        exit_status=_number(shown.get("ExecMainStatus", "")) if ended else None,
        result=_result(shown),
        detail="; ".join(_details(unit, shown, state)),
        unloaded=_load_problem(unit, shown),
        config_mark=config_mark(shown),
    )


def config_mark(shown: Mapping[str, str]) -> str:
    """A text that changes whenever what the manager knows of the unit's files does."""
    known = "\0".join(shown.get(key, "") for key in ("LoadState", "NeedDaemonReload", "FragmentPath", "DropInPaths"))
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def _run_state(shown: Mapping[str, str], pid: int | None) -> RunState:
    active, sub = shown.get("ActiveState", ""), shown.get("SubState", "")
    if not active:
        return RunState.UNKNOWN
    if shown.get("LoadState") == "not-found" and active in ("inactive", "failed"):
        return RunState.MISSING
    if sub.startswith("auto-restart"):
        # The process has ended and systemd waits before it tries again: nothing runs, whatever the manager calls it.
        return RunState.FAILED
    if active == "activating" and pid is not None and sub == "start":
        # A Type=notify service counts as starting until it says that it is ready; its process is what is looked at here.
        return RunState.RUNNING
    if active == "inactive" and shown.get("LoadState") in ("bad-setting", "error"):
        return RunState.FAILED
    if active == "inactive" and shown.get("Job", "0") not in ("", "0"):
        # Between the two halves of a restart, or waiting for what it needs: what is queued for a unit that is down is its start.
        return RunState.STARTING
    return _STATES.get(active, RunState.UNKNOWN)


def _result(shown: Mapping[str, str]) -> str:
    load = shown.get("LoadState", "")
    return load if load in ("masked", "bad-setting", "error", "not-found") else shown.get("Result", "")


def _details(unit: str, shown: Mapping[str, str], state: RunState) -> list[str]:
    found = [_load_problem(unit, shown)]
    sub, result, restarts = shown.get("SubState", ""), shown.get("Result", ""), _number(shown.get("NRestarts", "")) or 0
    if sub.startswith("auto-restart"):
        found.append(_auto_restart(shown, restarts))
    elif result == "start-limit-hit":
        found.append(
            f"it was started too often in a short time, so systemd starts it no more (it {_how_it_ended(shown)}, "
            f"restarted {restarts} times); find out why, then start it anew"
        )
    elif state is RunState.FAILED and result not in ("", "success"):
        said = f"{result}: {_RESULTS[result]}" if result in _RESULTS else result
        found.append(f"it {_how_it_ended(shown)} ({said})")
    elif state is RunState.STOPPED and result == "exec-condition":
        found.append("its last start was skipped: its ExecCondition= said no")
    elif state in (RunState.RUNNING, RunState.STARTING, RunState.STOPPING) and restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        found.append(f"systemd restarted it {times} by itself")
    if shown.get("ActiveState") == "active" and sub == "exited":
        found.append("its command has ended, and the unit counts as active nevertheless (RemainAfterExit=)")
    if shown.get("ActiveState") == "activating" and state is RunState.RUNNING:
        found.append("its process runs and has not yet told systemd that it is ready")
    if shown.get("NeedDaemonReload") == "yes":
        found.append("its files were changed and systemd has not read them: a restart runs the old command until daemon-reload")
    if "/systemd/transient/" in shown.get("FragmentPath", ""):
        found.append("it was made by systemd-run: once it stops it is gone, and its configuration with it")
    # Both are "no" before they were looked at for the first time.
    if _looked_at(shown, "Condition") and state is RunState.STOPPED:
        found.append("its last start was skipped: a Condition…= of the unit is not met")
    if _looked_at(shown, "Assert") and state in (RunState.STOPPED, RunState.FAILED):
        found.append("its last start was refused: an Assert…= of the unit is not met")
    return [text for text in found if text]


def _auto_restart(shown: Mapping[str, str], restarts: int) -> str:
    """A unit that has ended and is started again by systemd: once is no loop yet."""
    pause = shown.get("RestartUSec", "")
    if not restarts:
        return f"it {_how_it_ended(shown)}, and systemd restarts it" + (f" after a pause of {pause}" if pause else "")
    again = f"; the next try comes after a pause of {pause}" if pause else ""
    return f"crash loop: it {_how_it_ended(shown)}, restarted {restarts} times so far{again}"


def _looked_at(shown: Mapping[str, str], what: str) -> bool:
    return shown.get(f"{what}Result") == "no" and shown.get(f"{what}TimestampMonotonic", "0") != "0"


def _load_problem(unit: str, shown: Mapping[str, str]) -> str:
    load = shown.get("LoadState", "")
    match = _QUOTED.search(shown.get("LoadError", ""))
    said = f": {match[1]}" if match else ""
    if load == "not-found":
        runs = shown.get("ActiveState") not in ("inactive", "failed", "")
        return f"its unit file is gone, and it runs on{said}" if runs else f"there is no unit {unit}"
    if load == "masked":
        return "it is masked, so nothing can start it: systemctl unmask it first"
    if load == "bad-setting":
        return f"systemd refuses the unit{said}; systemd-analyze verify tells the line"
    if load == "error":
        return f"systemd cannot load the unit{said}"
    return ""


def _how_it_ended(shown: Mapping[str, str]) -> str:
    code, status = shown.get("ExecMainCode", ""), _number(shown.get("ExecMainStatus", ""))
    if status is None or code in ("", "0"):
        return "failed"
    if code in _EXITED:
        meant = f"a signal ended it, {_signal(status - 128)}" if status in _OF_SIGNALS else _MEANT.get(status, "")
        return f"ended with status {status}{f': {meant}' if meant else ''}"
    return f"was killed by {_signal(status)}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _number(text: str) -> int | None:
    return whole(text)
