"""DDTREE for stock SGLang, as a plugin: found through the entry point group ``sglang.srt.plugins``.

SGLang calls :func:`register` in the process that reads the command line and again in every scheduler process. It adds the
flags and the algorithm's name and nothing else; SGLang's classes are touched only once DDTREE is asked for. Nothing is
imported here but the standard library: an installed plugin must cost a server without DDTREE nothing.
"""

from __future__ import annotations

import logging

_logger = logging.getLogger(__name__)


def register() -> None:
    """Make ``--speculative-algorithm DDTREE`` known. Never raises: a server without DDTREE must start whatever is wrong here."""
    from engine_launch.sglang_plugin import gate

    findings = gate.check(gate.REGISTRATION)
    if findings:
        _logger.error("%s", gate.refusal(findings))
        return
    from engine_launch.sglang_plugin import algorithm, flags

    algorithm.register()
    flags.install()
