"""Who holds GPU memory: processes told apart by their unit, and the ranks among them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from engine_launch.spec.ranks import ranks_on_a_host

from ..knobs import FLAG_PREFIX, KNOBS, find_knob
from .command import find_engine, flag_value
from .gpu import GpuProcess

_TITLE = re.compile(r"scheduler(?P<ranks>(?:_(?:[A-Z]+_)*[A-Z]+\d+)*)$")
_PART = re.compile(r"_((?:[A-Z]+_)*[A-Z]+)(\d+)")
_TOLD = ("PP", "DP", "TP")
"""Kinds of ranks that are shown; SGLang has more (``ATTN_CP0``, ``MOE_DP1``, ``EP3``), which follow from these."""
_SIZES = {
    "pp_size": ("--pp-size", "--pipeline-parallel-size", "--pp"),
    "dp_size": ("--dp-size", "--data-parallel-size", "--dp"),
    "nnodes": ("--nnodes",),
}
_ATTENTION = FLAG_PREFIX + "--enable-dp-attention"


class Owner(Enum):
    """Whose process holds GPU memory."""

    OURS = "this unit's"
    CONTAINED = "this unit's, it seems"
    """In a container, as this unit's engine is; which unit a container belongs to cannot be seen."""
    OTHER = "another's"
    UNKNOWN = "unknown"
    """It cannot be seen: it has ended and left its memory behind, is in another container, or hidden from this user."""


@dataclass(frozen=True)
class GpuHolder:
    """A process that holds GPU memory, and whose it is."""

    process: GpuProcess
    owner: Owner
    words: str
    """For a sentence: ``pid 4021 (sglang::scheduler, prod-sgl.service), 100998 MiB``."""
    title: str = ""
    """How it calls itself (``sglang::scheduler_TP3``), else its program."""

    @property
    def ours(self) -> bool:
        """The unit's, for all that can be seen."""
        return self.owner in (Owner.OURS, Owner.CONTAINED)

    @property
    def rank(self) -> str | None:
        """``TP3``, ``DP1 TP1``; empty for the one rank of a server that has no other; ``None`` for what is no rank.

        SGLang calls its rank processes ``sglang::scheduler`` with what it starts their log lines with (``[… DP1 TP1 EP1]``).
        """
        for name in (self.title, self.process.name):
            if (found := _TITLE.search(name)) is not None:
                return " ".join(kind + number for kind, number in _PART.findall(found["ranks"]) if kind in _TOLD)
        return None


@dataclass(frozen=True)
class RankCount:
    """How many rank processes a server has on this host, beside how many it was started with."""

    asked: int
    seen: int | None
    """``None``: none of the unit's processes can be seen, as from inside a container."""
    missing: tuple[str, ...] = ()
    """Names of those that are not there, where names tell (``TP5``)."""

    @property
    def short(self) -> bool:
        return self.seen is not None and self.seen < self.asked

    @property
    def words(self) -> str:
        """``7 of 8 ranks``."""
        return f"{self.asked if self.seen is None else self.seen} {'' if self.seen is None else f'of {self.asked} '}ranks"


def ranks_asked(fields: Mapping[str, object], argv: Sequence[str]) -> int | None:
    """Rank processes that an engine starts on one host; ``None`` where no engine is named, or its flags hide how many.

    Args:
        fields: the server's own report, which has the value that counts of every flag; empty when there is none.
        argv: the command line, for what the report does not have.
    """
    if find_engine(argv) is None and "tp_size" not in fields:
        return None
    flags = {"tp_size": KNOBS["tp_size"].flags, **_SIZES}
    sizes = {name: _size(fields, name, argv, spellings) for name, spellings in flags.items()}
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(known) < len(sizes):
        return None
    attention = fields.get("enable_dp_attention")
    if attention is None:
        attention = flag_value(argv, find_knob(_ATTENTION)).value
    return ranks_on_a_host(
        known["tp_size"], known["pp_size"], known["dp_size"], data_attention=bool(attention), hosts=known["nnodes"]
    )


def count_ranks(holders: Sequence[GpuHolder], asked: int) -> RankCount:
    """How many of ``asked`` rank processes hold GPU memory. Where none calls itself a rank, GPUs in use by the unit count."""
    ours = [holder for holder in holders if holder.ours]
    if not ours:
        return RankCount(asked, None)
    names = {holder.process.pid: holder.rank for holder in ours if holder.rank is not None}
    if not names:
        return RankCount(asked, min(asked, len({holder.process.gpu_uuid for holder in ours})))
    expected = {f"TP{number}" for number in range(asked)}
    found = set(names.values())
    missing = sorted(expected - found, key=lambda name: int(name[2:])) if found <= expected else []
    return RankCount(asked, len(names), tuple(missing) if asked > 1 else ())


def _size(fields: Mapping[str, object], name: str, argv: Sequence[str], flags: tuple[str, ...]) -> int | None:
    """``None``: only the command knows, when it runs (``--nnodes $NODES``)."""
    reported = fields.get(name)
    if isinstance(reported, int) and not isinstance(reported, bool):
        return max(1, reported)
    given = flag_value(argv, replace(KNOBS["tp_size"], flags=flags))
    if given.given and not isinstance(given.value, int):
        return None
    return max(1, given.value) if isinstance(given.value, int) else 1
