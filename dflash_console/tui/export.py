"""Texts from the screen into files."""

from __future__ import annotations

import time
from pathlib import Path


def save_text(folder: Path, text: str, kind: str) -> Path:
    """Write ``text`` to a new file in ``folder`` and answer its path. Raises: OSError."""
    from ..paths import private_folder

    private_folder(folder)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        path = folder / f"{kind}-{stamp}{f'-{number}' if number else ''}.txt"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text + "\n")
        except FileExistsError:
            continue
        return path
    raise OSError(17, "too many files of this second", str(folder))
