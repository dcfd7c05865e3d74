"""``python -m engine_launch`` and the command ``ddtree-launch``."""

from __future__ import annotations

import sys

from engine_launch.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
