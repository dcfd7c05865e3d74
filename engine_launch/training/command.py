"""How the training programs end: what their user can cause is one sentence, not a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable

from engine_launch.embedded.api import EngineError


def run(main: Callable[[], None]) -> None:
    """Run a program's ``main``. Ends the process with status 1 and a sentence on a file or a value that will not do, and with 130
    on Ctrl-C."""
    try:
        main()
    except (OSError, ValueError, EngineError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
