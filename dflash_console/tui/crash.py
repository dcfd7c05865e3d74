"""What happens when the console itself fails: a report in a file, one sentence on the terminal, and no traceback there."""

from __future__ import annotations

import time
import traceback
from pathlib import Path

from ..evidence.secrets import mask_text
from ..paths import private_folder

KEPT = 20
"""Reports kept; older ones are removed."""


def save_report(error: BaseException, folder: Path) -> Path | None:
    """Write the error with its traceback, secrets masked; ``None`` when it cannot be written.

    The file's name is the time to the second, so that the newest sorts last.
    """
    text = mask_text("".join(traceback.format_exception(error)))
    try:
        path = private_folder(folder) / f"{time.strftime('%Y%m%d-%H%M%S')}.txt"
        path.write_text(text, encoding="utf-8")
        for old in sorted(folder.glob("*.txt"))[:-KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        return None
    return path


def told(error: BaseException, doing: str, report: Path | None) -> str:
    """The same of an error that the console outlives; ``doing``: what it was about."""
    said = f"An error of the console's own while {doing} ({type(error).__name__}); everything else goes on"
    return f"{said}." if report is None else f"{said}. Report: {report}"


def sentence(error: BaseException, report: Path | None) -> str:
    """What, what of it, and what to do."""
    what = f"ddtree-console: an error of its own ended the console ({type(error).__name__})"
    rest = "the engine and any operation's journal are untouched; open the console again to go on"
    return f"{what}; {rest}" + (f". Report: {report}" if report is not None else "")
