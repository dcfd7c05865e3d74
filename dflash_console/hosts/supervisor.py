"""The manager of one local unit: ``python -m dflash_console.hosts.supervisor VERB FOLDER``.

``start`` and ``restart`` leave a detached supervisor behind (``supervisor_run.py``) that runs the engine named in the folder's
``service.toml``, stores its output, notes its state and ends it on SIGTERM; ``stop`` asks it to. It outlives the console.
One lock in the folder, held for the supervisor's whole life, makes it the only one.
Standard library only: a start must not wait for imports.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

from . import proc
from .engine_process import adopt_orphans, kill
from .supervisor_log import LogWriter
from .supervisor_run import Supervisor, SupervisorError, load_unit, tell
from .supervisor_state import ANOTHER_PORT, RESTART_LOCK, RUNNING_LOCK, SupervisorState, read_state


def read_holder(folder: Path) -> proc.ProcessId | None:
    """The supervisor as it noted itself in the lock that it holds; the lock itself tells whether it still runs."""
    try:
        pid, ticks, boot = (folder / RUNNING_LOCK).read_text("ascii").split()
        return proc.ProcessId(int(pid), int(ticks)) if boot == proc.boot_id() else None
    except (OSError, ValueError):
        return None


def _note_holder(handle: int) -> None:
    own = proc.identify(os.getpid())
    if own is not None:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{own.pid} {own.ticks} {proc.boot_id()}".encode(), 0)


def hold(folder: Path, *, wait: float = 0.0) -> int | None:
    """Take the folder's running lock; ``None`` when another supervisor still holds it after ``wait`` seconds.

    While waiting, whoever runs is asked to stop again and again: with two restarts at once, the holder may change.
    """
    handle = os.open(folder / RUNNING_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begun = asked = time.monotonic()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            now = time.monotonic()
            if now - begun >= wait:
                os.close(handle)
                return None
            if now - asked >= 0.5:
                asked = now
                ask_to_stop(folder)
            time.sleep(0.02)


def be_the_restart(folder: Path) -> int | None:
    """Take the lock of the one restart that waits for the present engine's end; ``None`` when another one does.

    That one reads the unit file when it starts the engine, which is still to come: two restarts asked for at once are one, as
    systemd merges two jobs. One after the other they would look like an engine that died and was started again.
    """
    handle = os.open(folder / RESTART_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def ask_to_stop(folder: Path) -> SupervisorState | None:
    """Send SIGTERM to the supervisor that runs now; its state, or ``None`` when there is none."""
    state = read_state(folder)
    if state is None and (holder := read_holder(folder)) is not None:
        # A damaged state must not leave an engine that nothing can stop.
        kill(holder, signal.SIGTERM)
        return None
    if state is None or state.boot_id != proc.boot_id() or not proc.alive(state.supervisor):
        return None
    kill(state.supervisor, signal.SIGTERM)
    return state


def stop(folder: Path, timeout: float) -> None:
    """Stop the unit and wait until it is stopped.

    Raises:
        SupervisorError: it did not stop in time.
    """
    state = ask_to_stop(folder)
    handle = hold(folder, wait=timeout)
    if handle is None:
        pid = state.supervisor.pid if state else "unknown"
        raise SupervisorError(f"the supervisor (pid {pid}) did not stop the engine within {timeout:g} s")
    os.close(handle)


def detach(folder: Path, *, replace_running: bool, another_port: bool, timeout: float) -> None:
    """Fork the supervisor and wait for its word: for a start, that the engine's process was made; for a restart, that the job
    was taken. What becomes of it is seen from the invocation id.

    Raises:
        SupervisorError: it could not be started.
    """
    load_unit(folder)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    if os.fork() == 0:
        os.close(reader)
        try:
            _supervise(folder, writer, replace_running=replace_running, another_port=another_port, timeout=timeout)
        finally:
            os._exit(0)
    os.close(writer)
    answer = b""
    while chunk := os.read(reader, 4096):
        answer += chunk
    if answer != b"ok":
        raise SupervisorError(answer.decode("utf-8", "replace") or "the supervisor ended without a word; see the unit's log")


def _supervise(folder: Path, report: int, *, replace_running: bool, another_port: bool, timeout: float) -> None:
    os.setsid()
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    adopt_orphans()
    if replace_running:
        tell(report, "ok")
        report = null
        waiting = be_the_restart(folder)
        if waiting is None:
            return
        before = ask_to_stop(folder)
        handle = hold(folder, wait=timeout)
        os.close(waiting)
        if handle is None:
            log = LogWriter(folder)
            pid = before.supervisor.pid if before else "unknown"
            text = f"Restart failed: the supervisor (pid {pid}) did not stop the engine within {timeout:g} s"
            log.write([text], invocation=before.invocation_id if before else "", pid=os.getpid(), manager=True, priority=3)
            return
    else:
        handle = hold(folder)
        if handle is None:
            tell(report, f"{folder.name} runs already")
            return
    _note_holder(handle)
    Supervisor(folder, LogWriter(folder)).run(report, another_port=another_port)


def main(arguments: list[str]) -> int:
    """The command line: ``start|restart|stop FOLDER [TIMEOUT_S [--another-port]]``."""
    another_port = arguments[3:] == [ANOTHER_PORT]
    if not 2 <= len(arguments) <= 3 + another_port or arguments[0] not in ("start", "restart", "stop"):
        print(f"usage: supervisor start|restart|stop FOLDER [TIMEOUT_S [{ANOTHER_PORT}]]", file=sys.stderr)
        return 2
    verb, folder = arguments[0], Path(arguments[1]).absolute()
    timeout = float(arguments[2]) if len(arguments) > 2 else 60.0
    try:
        if verb == "stop":
            stop(folder, timeout)
        else:
            detach(folder, replace_running=verb == "restart", another_port=another_port, timeout=timeout)
    except SupervisorError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{folder}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
