"""DDTREE for stock SGLang, as a plugin: found through the entry point group ``sglang.srt.plugins``.

SGLang calls :func:`register` in the process that reads the command line and again in every scheduler process. It adds the
flags and the algorithm's name and nothing else; SGLang's classes are touched only once DDTREE is asked for. Nothing is
imported here but the standard library: an installed plugin must cost a server without DDTREE nothing.
"""

from __future__ import annotations

import logging
import sys

_logger = logging.getLogger(__name__)


def register() -> None:
    """Make ``--speculative-algorithm DDTREE`` known. Never raises: a server without DDTREE must start whatever is wrong here."""
    from engine_launch.sglang_plugin import gate

    findings = gate.check(gate.REGISTRATION)
    if findings:
        _tell(gate.refusal(findings))
        return
    try:
        from engine_launch.sglang_plugin import algorithm, flags

        algorithm.register()
        flags.install()
    except Exception as error:  # whatever another SGLang does with names that look the same
        _tell(gate.refusal([gate.Finding("registration", f"failed ({type(error).__name__}: {error})")]))


def _tell(refusal: str) -> None:
    """Say why there is no DDTREE to those who asked for it; a server without it says nothing of it."""
    words = [word.upper() for word in sys.argv]
    asked = any(word == "DDTREE" or word.endswith("=DDTREE") for word in words)
    in_file = any(word.split("=")[0] == "--CONFIG" for word in words)
    _logger.log(logging.ERROR if asked else logging.WARNING if in_file else logging.DEBUG, "%s", refusal)
