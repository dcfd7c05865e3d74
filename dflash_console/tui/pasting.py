"""A paste is text and never keys, whatever is in it.

Textual (8.2.8) replays up to 32 characters after an escape character inside of a bracketed paste as keys that were pressed: a
coloured line of a log, pasted into the prompt, could restart the server. Terminals leave escape characters out of what they
paste, as a rule; tmux does not. They are left out here, before the parser sees them.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

START, END = "\x1b[200~", "\x1b[201~"
"""What a terminal puts around a paste (DEC private mode 2004)."""
_ESC = "\x1b"
_READ_BYTES = 4096
_TICK_S = 0.1


class PasteFilter:
    """Takes escape characters out of pastes, in input that comes in pieces of any size."""

    def __init__(self) -> None:
        self._pasting = False
        self._held = ""
        """The end of a paste's piece that may begin its closing mark."""
        self._before = ""
        """The end of what came before, which may begin the opening mark."""

    def clean(self, data: str) -> str:
        """The piece as the parser is to see it; the beginning of a closing mark is held back until the next one."""
        kept = []
        data, self._held = self._held + data, ""
        while data:
            if not self._pasting:
                seen = self._before + data
                at = seen.find(START)
                end = len(data) if at < 0 else at + len(START) - len(self._before)
                self._pasting = at >= 0
                self._before = "" if self._pasting else seen[-(len(START) - 1) :]
                kept.append(data[:end])
                data = data[end:]
                continue
            text, mark, data = data.partition(END)
            if mark:
                self._pasting = False
            else:
                cut = next((size for size in range(len(END) - 1, 0, -1) if text.endswith(END[:size])), 0)
                text, self._held = text[: len(text) - cut], text[len(text) - cut :]
            kept.append(text.replace(_ESC, "") + mark)
        return "".join(kept)


class _Parser(XTermParser):
    def __init__(self, debug: bool) -> None:
        super().__init__(debug)
        self._pastes = PasteFilter()

    def feed(self, data: str) -> Iterable[Message]:
        # An empty piece is the end of the input to the parser.
        if not data or (cleaned := self._pastes.clean(data)):
            yield from super().feed(cleaned if data else data)


class PasteDriver(LinuxDriver):
    """Textual's driver, with pastes that press no keys."""

    def run_input_thread(self) -> None:
        """As the original's, whose parser cannot be chosen."""
        parser = _Parser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                for _ in selector.select(_TICK_S):
                    text = decode(os.read(self.fileno, _READ_BYTES))
                    for event in parser.feed(text) if text else ():
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
