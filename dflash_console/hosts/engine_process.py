"""The supervised engine: its process group, its pipe, and an end that leaves nobody behind. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from . import proc
from .supervisor_log import LineSplitter, LogWriter

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of the engine's orphans (prctl(2), PR_SET_CHILD_SUBREAPER): a worker that outlives the engine's main
    process can then still be found and ended."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    # If the supervisor itself is killed, an engine that nobody watches must not go on holding memory and the port.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class EngineProcess:
    """One run of the engine's command, with its output pumped into the log."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        invocation: str,
        log: LogWriter,
        inherits: Sequence[int] = (),
    ) -> None:
        """``inherits``: file descriptors that the engine gets, under their numbers.

        Raises:
            OSError, ValueError: the command cannot be run.
        """
        self._log = log
        self._invocation = invocation
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # One pipe for both, as journald has one stream: two would be read in an order that nobody wrote.
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            process_group=0,
            pass_fds=inherits,
            preexec_fn=_die_with_parent,
        )
        self.pid = self._process.pid
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ, LineSplitter())

    @property
    def selector(self) -> selectors.BaseSelector:
        """The caller may register what else should wake :meth:`pump`."""
        return self._selector

    def pump(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for output or another registered event, and store the lines that came."""
        for key, _ in self._selector.select(timeout):
            if not isinstance(key.data, LineSplitter):
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)
                continue
            try:
                data = os.read(key.fd, 65_536)
            except BlockingIOError:
                continue
            if data:
                lines = key.data.feed(data, time.monotonic())
            else:
                lines = key.data.rest()
                self._selector.unregister(key.fileobj)
            self._log.write(lines, invocation=self._invocation, pid=self.pid)

    def ended(self) -> int | None:
        """The exit status, a negative signal number, or ``None`` while the main process runs."""
        return self._process.poll()

    def signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def drain(self, seconds: float = 0.5) -> None:
        """Read what is still in the pipe; a child that keeps it open is not waited for."""
        until = time.monotonic() + seconds
        while self._open_pipe() and (left := until - time.monotonic()) > 0:
            self.pump(min(left, 0.05))
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, LineSplitter):
                self._log.write(key.data.rest(), invocation=self._invocation, pid=self.pid)
        self._selector.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def sweep(self, timeout: float) -> int:
        """End everything that the engine left: its group, adopted orphans, processes with its invocation id. Returns how many
        had to be killed."""
        self.signal_group(signal.SIGTERM)
        until = time.monotonic() + timeout
        while rest := self._left_behind():
            if time.monotonic() >= until:
                for process in rest:
                    kill(process, signal.SIGKILL)
                _reap()
                return len(rest)
            for process in rest:
                kill(process, signal.SIGTERM)
            if self._open_pipe():
                self.pump(0.05)
            else:
                time.sleep(0.05)
            _reap()
        return 0

    def _left_behind(self) -> list[proc.ProcessId]:
        found = {process for process in proc.descendants(os.getpid()) if process.pid != self.pid}
        found.update(process for process in proc.started_with("INVOCATION_ID", self._invocation) if process.pid != self.pid)
        return sorted(found, key=lambda process: process.pid)

    def _open_pipe(self) -> bool:
        return any(isinstance(key.data, LineSplitter) for key in self._selector.get_map().values())


def kill(process: proc.ProcessId, number: int) -> None:
    """Signal this very process; one that ended meanwhile, or whose pid now belongs to another, is left alone."""
    if proc.alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def _reap() -> None:
    """Collect ended orphans that were adopted."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
