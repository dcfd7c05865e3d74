"""The two clocks of the screens, in one place, so that a test can stop them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """``wall``: seconds since the epoch, for time axes and uptimes. ``monotonic``: for ages."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
