"""A refusal at SGLang's start, said as the launcher says what is wrong: its sentence, and no traceback of Python's before it.

DDTREE refuses a start by an exception, which is all that SGLang gives a plugin to stop it with, and nothing there catches it. The
launcher has become SGLang by then (:mod:`engine_launch.commands.serve_sglang`), so it is this module, found by SGLang as a plugin
of its own, that has the last word. Every other error is shown as Python shows it. Nothing but the standard library is imported.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Callable
from types import TracebackType

from engine_launch.cli import TRACEBACK_VARIABLE
from engine_launch.commands.output import complain

LAUNCHED_VARIABLE = "DDTREE_LAUNCHED"
"""Process id of the launcher that became SGLang; the processes that inherit the variable have others."""

ExceptHook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def install() -> None:
    """Where the launcher has become this process, let it end on a refusal as the launcher does; elsewhere nothing."""
    if os.environ.get(LAUNCHED_VARIABLE) == str(os.getpid()) and not os.environ.get(TRACEBACK_VARIABLE):
        sys.excepthook = functools.partial(_end, sys.excepthook)


def _end(otherwise: ExceptHook, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if is_refusal(error, trace):
        complain(str(error), code=1)
    else:
        otherwise(kind, error, trace)


def is_refusal(error: BaseException, trace: TracebackType | None) -> bool:
    """Whether it is a sentence for the user: a ValueError that this package itself has raised, and not one that came over it."""
    if not isinstance(error, ValueError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    ours = str(trace.tb_frame.f_globals.get("__name__", "")).startswith("engine_launch.")
    return ours and dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
