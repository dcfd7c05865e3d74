"""argparse as the launcher speaks: one line of complaint, whole sentences, help that fits the terminal."""

from __future__ import annotations

import argparse
from typing import NoReturn

from engine_launch.commands.output import complain

LAST_PORT = 65535


class LineParser(argparse.ArgumentParser):
    """One command's arguments. Its complaints are like every other of the launcher's."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(complain(f"{self.prog.partition(' ')[2]}: {message} ({self.prog} --help tells more)."))


def port_number(text: str) -> int:
    """A TCP port; 0 stands for a free one."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a whole number, not {text!r}") from None
    if not 0 <= value <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"must be from 0 to {LAST_PORT}, not {value}")
    return value
