"""In which floating-point format an engine computes: whether two right answers must be equal to the last token."""

from __future__ import annotations

import re

from .server import ServerInfo
from .start_log import Phase, StartLog

FP32 = "fp32"
_NAMES = {
    "float32": FP32,
    "float": FP32,
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
}
"""SGLang's ``--dtype`` and torch's names → the short ones."""
_SAID = {
    Phase.TARGET_WEIGHTS: re.compile(r"\bdtype=torch\.(\w+)"),
    Phase.KV_POOL: re.compile(r"\bdtype: torch\.(\w+)"),
}
"""Lines of a start that name the format that ``--dtype auto`` came to: the embedded engine's, then SGLang's."""


def model_precision(info: ServerInfo | None, log: StartLog | None) -> str:
    """``fp32``, ``bf16`` or ``fp16``; empty when nothing says it.

    A flag that names a format counts. ``auto`` is what this start's log says it is: of the weights, or of the KV pool where the
    pool has no format of its own (``--kv-cache-dtype``).
    """
    fields = {} if info is None else info.fields
    if named := _NAMES.get(str(fields.get("dtype", ""))):
        return named
    for phase, pattern in _SAID.items():
        if phase is Phase.KV_POOL and fields.get("kv_cache_dtype", "auto") != "auto":
            continue
        mark = None if log is None else log.phases.get(phase)
        found = None if mark is None else pattern.search(mark.text)
        if found is not None:
            return _NAMES.get(found[1], "")
    return ""
