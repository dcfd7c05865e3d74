"""The launcher's command line: chooses the subcommand and keeps tracebacks off the screen."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence

from engine_launch.commands.output import WRONG_USE, complain
from engine_launch.versions import version_of

USAGE = """\
usage: ddtree-launch COMMAND [arguments]

  serve        serve a model over SGLang's HTTP API, on this CPU or by SGLang
  model get    fetch the embedded engine's model into the cache
  doctor       check what this machine has for serving
  drafter PATH check a DFlash draft checkpoint
  unit         print a systemd unit that serves with the given flags

ddtree-launch COMMAND --help tells more; ddtree-launch --version the release."""

TRACEBACK_VARIABLE = "DDTREE_TRACEBACK"
"""When set, an unexpected error is shown with its traceback (for reports of bugs)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 fine, 1 failed, 2 wrong use)."""
    _settle_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        # What is written only at exit is out of reach by then.
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) has gone.
        return 1
    except OSError as error:
        # The machine's fault and no bug: rights, a full disk, a file that went away.
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        where = f"{error.filename}: " if error.filename else ""
        return complain(f"{where}{error.strerror or error}.", code=1)
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        return complain(f"unexpected {type(error).__name__}: {error}. This is a bug; {TRACEBACK_VARIABLE}=1 shows where.", code=1)
    finally:
        _drop_what_cannot_be_written()


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if words else WRONG_USE
    if words[0] == "--version":
        print(f"ddtree-launch {version_of('ddtree-console')}")
        return 0
    command = _commands().get(words[0])
    if command is None:
        return complain(f"{words[0]!r} is not a command; there are {', '.join(_commands())}.")
    return command(words[1:])


def _settle_streams() -> None:
    """Let there be an output and an error stream, and let the first show everything in some way."""
    if sys.stdout is None or sys.stderr is None:
        # Closed by whoever started this: Python leaves them out, and their numbers free for the first file that is opened.
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open as long as the process lives
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What this terminal's encoding has no character for, or a path holds that is no character, is shown as Python writes it.
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_what_cannot_be_written() -> None:
    """Python would try once more at exit, and complain in words of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _commands() -> dict[str, Callable[[Sequence[str]], int]]:
    return {"serve": _serve, "model": _model, "doctor": _doctor, "drafter": _drafter, "unit": _unit}


# Each command's module is imported when it runs: a wrong flag must be answered before anything heavy is loaded.


def _serve(argv: Sequence[str]) -> int:
    from engine_launch.commands.serve import serve

    return serve(argv)


def _model(argv: Sequence[str]) -> int:
    from engine_launch.commands.model import model

    return model(argv)


def _doctor(argv: Sequence[str]) -> int:
    from engine_launch.commands.doctor import doctor

    return doctor(argv)


def _drafter(argv: Sequence[str]) -> int:
    from engine_launch.commands.drafter import drafter

    return drafter(argv)


def _unit(argv: Sequence[str]) -> int:
    from engine_launch.commands.unit import unit

    return unit(argv)
