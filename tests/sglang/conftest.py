"""Tests of the SGLang plugin. Those that need SGLang's sources or Triton run where these are installed (``make sglang``)."""

from __future__ import annotations

import os
from importlib.util import find_spec

# Triton's interpreter runs the kernels on the CPU; it must be chosen before Triton is first imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

collect_ignore_glob: list[str] = []
if find_spec("triton") is None:
    collect_ignore_glob.append("test_kernels*.py")
if find_spec("sglang") is None:
    collect_ignore_glob.append("test_with_sglang_*.py")
