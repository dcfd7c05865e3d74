"""The command that adds an extra to this installation: from where it came, be that a clone, a wheel or a package index."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from collections.abc import Callable
from typing import Protocol
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "ddtree-console"
ORIGIN = "direct_url.json"
"""Where pip notes what it installed from; absent for what came from an index (PEP 610)."""


class Installation(Protocol):
    """What is known of an installed distribution (``importlib.metadata.Distribution``)."""

    def read_text(self, filename: str) -> str | None: ...


def install_command(extra: str, find: Callable[[str], Installation]) -> str:
    """``pip install …`` with this extra, to be typed as it stands.

    Args:
        find: ``importlib.metadata.distribution``; handed in, so that nothing is read here.
    """
    wanted = f"[{extra}]" if extra else ""
    try:
        origin = find(DISTRIBUTION).read_text(ORIGIN)
    except importlib.metadata.PackageNotFoundError:
        # Python finds the packages by PYTHONPATH alone, in a clone.
        return f"pip install {shlex.quote(f'.{wanted}')} in the project's folder"
    return f"pip install {_source(origin or '', wanted)}"


def _source(origin: str, wanted: str) -> str:
    try:
        record = json.loads(origin)
        # A name or password in an address is nothing to show.
        address = urlsplit(record["url"])
        url = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        folder, control = record.get("dir_info"), record.get("vcs_info")
        if folder is not None:
            flag = "--editable " if folder.get("editable") else ""
            return flag + shlex.quote(unquote(address.path) + wanted)
        if control is not None:
            url = f"{control['vcs']}+{url}@{control['commit_id']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return shlex.quote(DISTRIBUTION + wanted)
    return shlex.quote(f"{DISTRIBUTION}{wanted} @ {url}")
