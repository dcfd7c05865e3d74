"""The life of a supervisor: the unit's engine started, followed to its end, started again when the policy asks for it.

Runs in the detached process (see ``supervisor.py``). Each start has a fresh 128-bit invocation id, which the engine sees as
``INVOCATION_ID`` (as under systemd) and every log line carries. Standard library only: a start must not wait for imports.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

from engine_launch.spec.handover import LISTEN_FD_VARIABLE

from . import proc
from .chosen_port import take_port
from .engine_process import EngineProcess, kill
from .supervisor_log import LogWriter
from .supervisor_state import UNIT_NAME, SupervisorState, read_state, write_state
from .unit_file import Restart, UnitFile, UnitFileError, decode_unit_file, parse_unit_file

CRASH_WINDOW_S = 60.0


class SupervisorError(Exception):
    """One sentence for the user."""


class Supervisor:
    """Runs the unit's engine until it ends or a stop is asked for. Lives in the detached process."""

    def __init__(self, folder: Path, log: LogWriter) -> None:
        self._folder = folder
        self._log = log
        self._stop_asked = False
        self._restarts = 0
        self._crashes: list[float] = []
        self._state: SupervisorState | None = None
        self._unwritten = False
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = reader
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        # Handlers rather than SIG_IGN: an ignored signal would stay ignored in the engine.
        signal.signal(signal.SIGHUP, lambda number, frame: None)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def _on_stop(self, number: int, frame: object) -> None:
        self._stop_asked = True

    def run(self, report: int, *, another_port: bool) -> None:
        """Start the engine, say on the pipe ``report`` whether that worked, and stay until it is over.

        Args:
            another_port: take the next port where the one that the console chose is another program's.
        """
        try:
            unit = load_unit(self._folder)
            self._end_strays()
            chosen = unit.chosen_port
            unit, reserved = take_port(self._folder / UNIT_NAME, unit, move=another_port)
            engine: EngineProcess | None = self._start(unit, reserved, moved_from=chosen if unit.chosen_port != chosen else None)
        except SupervisorError as error:
            tell(report, str(error))
            return
        tell(report, "ok")
        while engine is not None:
            engine = self._follow(unit, engine)

    def _start(self, unit: UnitFile, reserved: socket.socket | None, moved_from: int | None = None) -> EngineProcess:
        """Run the engine once.

        Args:
            reserved: the bound socket that it gets; ``None`` = it binds its port itself.
            moved_from: the port that it had to leave to another program.

        Raises:
            SupervisorError: the command cannot be run.
        """
        invocation = secrets.token_hex(16)
        own = proc.identify(os.getpid())
        assert own is not None
        begun = time.time()
        state = SupervisorState(
            "starting",
            invocation,
            own,
            None,
            proc.boot_id(),
            unit.command,
            begun,
            restarts=self._restarts,
            log_cursor=self._log.cursor,
        )
        self._note(state)
        environment = {**os.environ, **unit.environment, "INVOCATION_ID": invocation, "PYTHONUNBUFFERED": "1"}
        if reserved is not None:
            environment[LISTEN_FD_VARIABLE] = str(reserved.fileno())
        if moved_from is not None:
            said = f"Port {moved_from} is another program's: the engine gets port {unit.chosen_port}, noted in {UNIT_NAME}"
            self._say(said, invocation)
        try:
            engine = EngineProcess(
                unit.command,
                environment=environment,
                folder=unit.folder or str(self._folder),
                invocation=invocation,
                log=self._log,
                inherits=() if reserved is None else (reserved.fileno(),),
            )
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            detail = f"{unit.command[0]} could not be started: {said}"
            self._say(detail, invocation, priority=3)
            self._note(replace(state, state="failed", ended_at=time.time(), result="resources", detail=detail))
            raise SupervisorError(detail) from None
        finally:
            # The engine has it now, and gives it up when it ends.
            if reserved is not None:
                reserved.close()
        engine.selector.register(self._wakeup, 1)
        self._note(replace(state, state="running", main=proc.identify(engine.pid)))
        self._say(f"Started {self._folder.name} (invocation {invocation}, pid {engine.pid})", invocation)
        return engine

    def _end_strays(self) -> None:
        """Processes of an earlier start whose supervisor was killed would hold the port and the memory."""
        before = read_state(self._folder)
        if before is None or before.boot_id != proc.boot_id():
            return
        strays = proc.started_with("INVOCATION_ID", before.invocation_id)
        for process in strays:
            self._say(f"Killing process {process.pid}, left over from invocation {before.invocation_id}", before.invocation_id)
            kill(process, signal.SIGKILL)
        until = time.monotonic() + 2.0
        while any(proc.alive(process) for process in strays) and time.monotonic() < until:
            time.sleep(0.02)

    def _follow(self, unit: UnitFile, engine: EngineProcess) -> EngineProcess | None:
        """Stay with one run to its end; the next run when the policy asks for one."""
        status = self._wait(unit, engine)
        state = self._state
        assert state is not None
        if (left := engine.sweep(unit.stop_timeout_s)) > 0:
            self._say(f"Killed {left} processes that the engine left behind", state.invocation_id, priority=4)
        engine.drain()
        state = replace(
            state,
            ended_at=time.time(),
            exit_status=status if status >= 0 else None,
            exit_signal=-status if status < 0 else None,
        )
        asked = self._stop_asked and (
            status == 0 or status in (-signal.SIGTERM, -signal.SIGKILL) or status == 128 + signal.SIGTERM
        )
        if asked or status == 0:
            self._say(f"Stopped {self._folder.name}", state.invocation_id)
            self._note(replace(state, state="stopped", result="timeout" if status == -signal.SIGKILL else "success"))
            return None
        result, words = _result(status)
        self._say(f"Main process exited, {words}", state.invocation_id, priority=5)
        self._say(f"Failed with result '{result}'.", state.invocation_id, priority=4)
        self._note(replace(state, state="failed", result=result, detail=f"the engine ended by itself: {words}"))
        if unit.restart is Restart.NO or self._stop_asked:
            return None
        return self._again(unit)

    def _wait(self, unit: UnitFile, engine: EngineProcess) -> int:
        deadline: float | None = None
        while (status := engine.ended()) is None:
            engine.pump(0.5 if deadline is None else 0.05)
            self._write_again()
            if self._stop_asked and deadline is None:
                assert self._state is not None
                self._note(replace(self._state, state="stopping"))
                engine.signal_group(signal.SIGTERM)
                deadline = time.monotonic() + unit.stop_timeout_s
            elif deadline is not None and time.monotonic() > deadline:
                assert self._state is not None
                self._say(f"Did not end within {unit.stop_timeout_s:g} s, killing", self._state.invocation_id, priority=4)
                engine.signal_group(signal.SIGKILL)
                deadline = time.monotonic() + 3600
        return status

    def _again(self, unit: UnitFile) -> EngineProcess | None:
        assert self._state is not None
        now = time.monotonic()
        self._crashes = [at for at in self._crashes if now - at < CRASH_WINDOW_S] + [now]
        if len(self._crashes) > unit.restart_limit:
            self._say("Start request repeated too quickly.", self._state.invocation_id, priority=4)
            self._note(replace(self._state, result="start-limit-hit"))
            return None
        until = now + unit.restart_delay_s
        while (left := until - time.monotonic()) > 0:
            if self._stop_asked:
                return None
            time.sleep(min(left, 0.1))
        self._restarts += 1
        self._say(f"Scheduled restart job, restart counter is at {self._restarts}.", self._state.invocation_id)
        self._end_strays()
        with contextlib.suppress(SupervisorError):
            return self._start(unit, None)
        return None

    def _note(self, state: SupervisorState) -> None:
        self._state = state
        self._unwritten = not write_state(self._folder, state)

    def _write_again(self) -> None:
        if self._unwritten and self._state is not None:
            self._unwritten = not write_state(self._folder, self._state)

    def _say(self, text: str, invocation: str, *, priority: int = 6) -> None:
        self._log.write([text], invocation=invocation, pid=os.getpid(), manager=True, priority=priority)


def _result(status: int) -> tuple[str, str]:
    if status < 0:
        return "signal", f"code=killed, status={-status}/{signal.Signals(-status).name.removeprefix('SIG')}"
    return "exit-code", f"code=exited, status={status}"


def load_unit(folder: Path) -> UnitFile:
    """Raises: SupervisorError."""
    path = folder / UNIT_NAME
    try:
        return parse_unit_file(decode_unit_file(path.read_bytes()))
    except FileNotFoundError:
        raise SupervisorError(f"there is no {path}") from None
    except OSError as error:
        raise SupervisorError(f"cannot read {path}: {error.strerror}") from None
    except UnitFileError as error:
        raise SupervisorError(f"{path}: {error}") from None


def tell(report: int, message: str) -> None:
    """Answer the waiting command once; it may have gone."""
    with contextlib.suppress(OSError):
        os.write(report, message.encode())
        os.close(report)
