"""A signal that ends the console leaves the terminal as it found it."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .tmux import Terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
]

CONSOLE = (sys.executable, "-m", "dflash_console", "--read-only")


def console_pid(file: Path) -> int:
    return int(file.read_text(encoding="utf-8"))


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
@pytest.mark.parametrize("at", ["at once", "later"])
def test_the_terminal_is_put_right_and_the_shell_sees_the_signal(tmp_path: Path, number: signal.Signals, at: str) -> None:
    file = tmp_path / "pid"
    console = f"sh -c 'echo $$ > {file}; exec {' '.join(CONSOLE)}'"
    shell = f"trap : INT QUIT; ulimit -c 0; echo before; {console}; echo ended with $?; stty -a; exec sleep 300"
    with Terminal(tmp_path, ("sh", "-c", shell), environment={"DDTREE_HOME": str(tmp_path)}) as terminal:
        if at == "later":
            terminal.wait_for("○ stopped")
        # What the console writes to open them may come in pieces.
        terminal.wait(lambda _: flags(terminal) == ("1", "1", "0"), "the screens, with reports of the mouse and no cursor")
        os.kill(console_pid(file), number)
        shown = terminal.wait_for(f"ended with {128 + number}")
        assert "before" in shown, "the shell's own screen"
        assert flags(terminal) == ("0", "0", "1"), "the shell's screen, no mouse reports, a cursor"
        assert " echo " in terminal.wait_for("icanon")
        assert " icanon" in terminal.screen()
        assert "Traceback" not in shown


def flags(terminal: Terminal) -> tuple[str, ...]:
    """Whether the terminal is on its alternate screen, reports the mouse, shows a cursor."""
    return tuple(terminal.flags("alternate_on", "mouse_all_flag", "cursor_flag"))


def test_a_console_whose_terminal_is_gone_ends(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "DDTREE_HOME": str(tmp_path)}
    # Tests that run under nohup ignore the signal, and so would what they start.
    command = ["setsid", "--ctty", "--wait", "env", "--default-signal=HUP", *CONSOLE]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    try:
        seen = b""
        end = time.monotonic() + 60
        while b"stopped" not in seen and time.monotonic() < end:
            seen += os.read(master, 65536)
        os.close(master)
        assert process.wait(30) != 0
    finally:
        process.kill()
        process.wait()


def test_a_console_that_cannot_leave_ends_at_the_second_signal_with_the_terminal_put_right() -> None:
    stuck = """
import asyncio, time
from dflash_console.tui.ended import SignalEnd
end = SignalEnd(lambda: None)
async def screens():
    print("\\x1b[?1049hopen", flush=True)
    while end.number is None:
        time.sleep(0.01)
    print("asked", flush=True)
    while True:
        time.sleep(0.1)
end.run(screens)
"""
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", stuck], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    try:
        seen = b""
        while b"open" not in seen:
            seen += os.read(master, 65536)
        process.terminate()
        # Two that come before the first is taken are one.
        while b"asked" not in seen:
            seen += os.read(master, 65536)
        assert process.poll() is None
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
        # One read may give a part: up to the end, which Linux tells by an error.
        with contextlib.suppress(OSError):
            while part := os.read(master, 65536):
                seen += part
        assert b"\x1b[?1049l" in seen
    finally:
        process.kill()
        process.wait()
        os.close(master)
