"""``ddtree-console`` and ``python -m dflash_console``."""

from __future__ import annotations

import sys

from .cli import main as run


def main() -> None:
    """The installed command."""
    sys.exit(run())


if __name__ == "__main__":
    main()
