"""Where the themes and the stylesheet are: packaged in a wheel, beside the package in a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

STYLESHEET = "app.tcss"


@cache
def themes_folder() -> Path:
    """The folder that holds ``*.toml`` themes and the stylesheet.

    A wheel carries it as ``dflash_console/themes``; an editable install finds it beside the package.

    Raises:
        FileNotFoundError: neither place has the stylesheet; the installation is broken.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "themes", package.parent / "themes"):
        if (folder / STYLESHEET).is_file():
            return folder
    raise FileNotFoundError(f"{STYLESHEET} is not in {package / 'themes'}: install ddtree-console again")
