"""A real terminal for tests: a tmux server of its own, keys in, screen out."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class Terminal:
    """One tmux session with one program in it. Use as a context manager; leaving it ends the program."""

    def __init__(
        self,
        folder: Path,
        argv: Sequence[str],
        *,
        size: tuple[int, int] = (120, 40),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._socket = folder / "tmux.sock"
        self._argv = list(argv)
        self._size = size
        self._environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **(environment or {})}
        self._environment.pop("TMUX", None)

    def __enter__(self) -> Terminal:
        width, height = self._size
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), "--", *self._argv)
        return self

    def __exit__(self, *error: object) -> None:
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, check=False)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-u", "-S", str(self._socket), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=self._environment).stdout

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names (``Enter``, ``Escape``, ``b``)."""
        for key in keys:
            self._tmux("send-keys", key)
            # A program takes what comes right after Escape for one key with it (alt); on a busy machine "right after" is long.
            time.sleep(1.0 if key == "Escape" else 0.15)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """As a terminal pastes: in brackets where the program asked for them."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self) -> str:
        """What the terminal shows now, as text."""
        return self._tmux("capture-pane", "-p")

    def flags(self, *names: str) -> list[str]:
        """What tmux knows of the terminal's state, by the names of its formats (``alternate_on``)."""
        return self._tmux("display-message", "-p", " ".join(f"#{{{name}}}" for name in names)).split()

    def wait(self, condition: Callable[[str], bool], what: str, seconds: float = 60.0) -> str:
        """The first screen that fulfils the condition; fails with ``what`` and the last screen."""
        end = time.monotonic() + seconds
        shown = ""
        while time.monotonic() < end:
            shown = self.screen()
            if condition(shown):
                return shown
            time.sleep(0.1)
        raise AssertionError(f"expected on the screen: {what}\n{shown}")

    def wait_for(self, text: str, seconds: float = 60.0) -> str:
        return self.wait(lambda shown: text in shown, text, seconds)
