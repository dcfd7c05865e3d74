"""What a running server says of itself: ``/server_info`` (``/get_server_info`` of old) and ``/v1/loads`` (``/get_load``).

Two kinds of statement are kept apart. Top-level fields are the flags at start: evidence of what was *asked*. Fields of
``internal_states`` are what each rank says now; they prove something only where the engine computes them, and stock SGLang
repeats its flags there too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..knobs import CONFIG, KNOBS, OFF, PLAIN, Knob, KnobError, KnobKind, Value, show_value
from .reading import Known, Reading, absent, unknown, valued
from .secrets import is_secret_name
from .values import read_json, whole_of

Scalar = str | int | float | bool | None
"""A JSON value that is neither a list nor an object."""


class Dialect(Enum):
    """Which engine answers, as far as settings are concerned."""

    EMBEDDED = "embedded engine"
    PLUGIN = "SGLang with the DDTREE plugin"
    STOCK = "SGLang"
    FORK = "SGLang fork with a tree of its own"
    UNKNOWN = "unknown"

    @property
    def hot(self) -> bool:
        """Takes settings while it runs, and reports what is in effect."""
        return self in (Dialect.EMBEDDED, Dialect.PLUGIN)


@dataclass(frozen=True)
class ServerInfo:
    """One answer of ``/server_info``. Secrets are dropped when it is read; nested objects are flattened to ``a.b``."""

    version: str = ""
    dialect: Dialect = Dialect.UNKNOWN
    fields: Mapping[str, Scalar] = field(default_factory=dict, repr=False)
    """Top-level values: flags as started."""
    startup: Mapping[str, Scalar] = field(default_factory=dict, repr=False)
    """What the engine computed at start (``startup_settings``; our engines only)."""
    ranks: tuple[Mapping[str, Scalar], ...] = field(default=(), repr=False)
    """``internal_states``, one per data-parallel rank."""
    accept_histogram: tuple[int, ...] = ()
    """Verifies since the start by accepted drafts, where the engine says so."""
    verify_curve: tuple[tuple[float, float], ...] = ()
    """(verify width, milliseconds), where the engine has measured it."""
    problem: str = ""
    """Why the answer could not be read; everything else is empty then."""

    @property
    def algorithm(self) -> str | None:
        reading = in_effect_reading(self, KNOBS["algorithm"])
        if reading.value is None:
            reading = server_reading(self, KNOBS["algorithm"])
        return str(reading.value) if reading.value is not None else None

    @property
    def engine_name(self) -> str:
        """For headers: ``SGLang 0.5.17``, ``ddtree-embedded 0.1.0``."""
        if self.dialect is Dialect.EMBEDDED:
            return self.version or self.dialect.value
        return f"SGLang {self.version}".strip() if self.dialect is not Dialect.UNKNOWN else self.version or "unknown engine"

    def number(self, name: str) -> float | None:
        """A figure that every rank has, added up over the ranks (``draft_kv_bytes``, ``last_gen_throughput``)."""
        values = [value for rank in self.ranks if isinstance(value := rank.get(name), (int, float))]
        return float(sum(values)) if values else None

    def most(self, knob: Knob) -> int | None:
        """How far ``knob`` can be raised while this server runs, where it says so (DDTREE inside SGLang)."""
        value = self.fields.get(knob.most_flag[2:].replace("-", "_"))
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def hot_knobs(self) -> frozenset[str]:
        """Settings that this server takes while running (they may still refuse a value)."""
        if not self.dialect.hot:
            return frozenset()
        known: set[str] = {key for rank in self.ranks for key in rank}
        drafting = self.algorithm not in (None, PLAIN)
        tree = self.algorithm == "DDTREE"
        return frozenset(
            knob.name
            for knob in KNOBS.values()
            if knob.hot_name is not None
            and known & {knob.hot_name, *knob.internal_fields}
            and (tree if knob.name in ("tree_budget", "tree_topk") else drafting)
        )


@dataclass(frozen=True)
class Loads:
    """One answer of ``/v1/loads``, added up over the ranks."""

    running: int | None = None
    queued: int | None = None
    used_tokens: int | None = None
    max_total_tokens: int | None = None
    token_usage: float | None = None
    """The fullest rank's, 0 … 1."""
    gen_throughput: float | None = None
    """tok/s, as reported: it is 0.0 on servers without metrics, whatever runs."""
    accept_length: float | None = None
    accept_rate: float | None = None
    accelerator: str = ""
    accelerators: int | None = None
    version: str = ""
    problem: str = ""


def parse_server_info(data: bytes | str) -> ServerInfo:
    """Read the body of ``/server_info``; a body that is not one gives a record with :attr:`ServerInfo.problem` set."""
    body, problem = _json_object(data)
    if body is None:
        return ServerInfo(problem=problem)
    states = body.get("internal_states")
    ranks = tuple(dict(_scalars(state)) for state in (states if isinstance(states, list) else []) if isinstance(state, dict))
    first = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    fields = {name: value for name, value in _scalars(body) if not name.startswith("internal_states")}
    # Some releases have the flags in an object of their own.
    flags = body.get("server_args")
    fields = {**dict(_scalars(flags)), **fields} if isinstance(flags, dict) else fields
    startup = body.get("startup_settings")
    version = str(body.get("version") or "")
    return ServerInfo(
        version=version,
        dialect=_dialect({**body, **fields}, ranks, version),
        fields=fields,
        startup=dict(_scalars(startup)) if isinstance(startup, dict) else {},
        ranks=ranks,
        accept_histogram=_histogram(first.get("spec_accept_histogram")),
        verify_curve=_curve(first.get("verify_curve")),
    )


def _dialect(body: Mapping[str, object], ranks: tuple[Mapping[str, Scalar], ...], version: str) -> Dialect:
    if body.get("engine") == "embedded" or version.startswith("ddtree-embedded"):
        return Dialect.EMBEDDED
    if any("speculation" in rank for rank in ranks):
        return Dialect.PLUGIN
    names = {*body, *(name for rank in ranks for name in rank)}
    if any("ddtree" in name or "tree_budget" in name or "tree_width" in name or "tree_verify" in name for name in names):
        return Dialect.FORK
    if "speculative_algorithm" in body or "model_path" in body:
        return Dialect.STOCK
    return Dialect.UNKNOWN


def server_reading(info: ServerInfo | None, knob: Knob) -> Reading:
    """What the server says ``knob`` was at start: its flags, under new and old field names."""
    if info is None or info.problem:
        return unknown(info.problem if info is not None else "the server has not been asked")
    for name in knob.internal_fields:
        if name in info.startup:
            return _value(knob, info.startup[name], f"/server_info startup_settings.{name}", "at start")
    present = [name for name in knob.server_fields if name in info.fields]
    # Two names of one setting (block size): the one that was given beats the one that is null.
    for name in sorted(present, key=lambda name: info.fields[name] is None):
        return _value(knob, info.fields[name], f"/server_info {name}", "the flag as started")
    return absent("this server does not report it", "/server_info")


def in_effect_reading(info: ServerInfo | None, knob: Knob) -> Reading:
    """What the engine says is in effect now, from every rank; *unknown* where it only repeats its flags.

    Ranks that disagree give a reading without a value whose ``why`` begins with ``ranks disagree``.
    """
    if info is None or info.problem:
        return unknown(info.problem if info is not None else "the server has not been asked")
    for name in knob.internal_fields:
        values = [rank[name] for rank in info.ranks if name in rank]
        if not values:
            continue
        where = f"/server_info internal_states.{name}"
        if not info.dialect.hot and name in info.fields:
            return unknown("this server repeats its flags there; it does not say what is in effect", where)
        readings = [_value(knob, value, where, "in effect now") for value in values]
        words = [reading.words for reading in readings]
        if len(set(words)) > 1:
            said = ", ".join(f"rank {rank}: {word}" for rank, word in enumerate(words))
            return Reading(Known.UNKNOWN, text=" / ".join(words), where=where, why=f"{DISAGREE}: {said}")
        return readings[0]
    return unknown("this server does not say what is in effect", "/server_info")


DISAGREE = "ranks disagree"
"""How the remark of :func:`in_effect_reading` begins when data-parallel ranks report different values."""


def compact_cache_in_effect(info: ServerInfo | None) -> Reading:
    """Whether the compact draft cache is on, as the engine says now."""
    if info is None or info.problem:
        return unknown(info.problem if info is not None else "the server has not been asked")
    values = {rank["compact_cache"] for rank in info.ranks if isinstance(rank.get("compact_cache"), bool)}
    if len(values) == 1:
        return valued(bool(values.pop()), "", "/server_info internal_states.compact_cache", "in effect now")
    if values:
        return unknown(f"{DISAGREE} on compact_cache", "/server_info internal_states.compact_cache")
    return unknown("this server does not say what is in effect", "/server_info")


def _value(knob: Knob, value: Scalar, where: str, why: str) -> Reading:
    """A field's value in canonical form. ``null`` means off for windows and plain for the algorithm, else not set."""
    if value is None:
        if knob.kind in (KnobKind.WINDOW, KnobKind.LAYERS_WINDOW):
            return valued(OFF, "null", where, why)
        if knob.kind is KnobKind.ALGORITHM:
            return valued(PLAIN, "null", where, why)
        return absent("null: not set", where)
    text = show_value(value) if not isinstance(value, str) else value
    try:
        parsed: Value = knob.parse(text)
    except KnobError as error:
        return Reading(Known.UNKNOWN, text=text, where=where, why=str(error))
    return valued(parsed, text, where, "as trained" if parsed == CONFIG else why)


def parse_loads(data: bytes | str) -> Loads:
    """Read the body of ``/v1/loads`` or of the older ``/get_load`` (a bare list)."""
    try:
        body = read_json(data)
    except ValueError:
        return Loads(problem="the answer is not JSON")
    rows = body.get("loads") if isinstance(body, dict) else body
    if not isinstance(rows, list):
        return Loads(problem="the answer has no list of loads")
    loads = [dict(_scalars(row)) for row in rows if isinstance(row, dict)]
    head = dict(_scalars(body)) if isinstance(body, dict) else {}
    old = any("num_reqs" in load for load in loads)
    queued = _sum(loads, "num_waiting_reqs")
    # The old endpoint counts waiting requests among num_reqs.
    total = _sum(loads, "num_reqs")
    running = _sum(loads, "num_running_reqs") if not old else max(0.0, total - (queued or 0.0)) if total is not None else None
    drafting = [load for load in loads if isinstance(load.get("speculative.accept_length"), (int, float))]
    usage = [value for load in loads if isinstance(value := load.get("token_usage"), (int, float))]
    accelerators = head.get("num_accelerators")
    return Loads(
        running=whole_of(running),
        queued=whole_of(queued),
        used_tokens=whole_of(_sum(loads, "num_used_tokens") if not old else _sum(loads, "num_tokens")),
        max_total_tokens=whole_of(_sum(loads, "max_total_num_tokens")),
        token_usage=max(usage, default=None),
        gen_throughput=_sum(loads, "gen_throughput"),
        accept_length=_mean(drafting, "speculative.accept_length"),
        accept_rate=_mean(drafting, "speculative.accept_rate"),
        accelerator=str(head.get("accelerator") or ""),
        accelerators=accelerators if isinstance(accelerators, int) else None,
        version=str(head.get("version") or ""),
    )


def _json_object(data: bytes | str) -> tuple[dict[str, object] | None, str]:
    try:
        body = read_json(data)
    except ValueError:
        return None, "the answer is not JSON"
    if not isinstance(body, dict):
        return None, "the answer is not a JSON object"
    return body, ""


def _scalars(body: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    """Scalar members by dotted path; lists and secrets are left out."""
    for name, value in body.items():
        if is_secret_name(name):
            continue
        if value is None or isinstance(value, (str, int, float, bool)):
            yield prefix + name, value
        elif isinstance(value, dict):
            yield from _scalars(value, f"{prefix}{name}.")


def _histogram(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(count, int) for count in value):
        return ()
    return tuple(value)


def _curve(value: object) -> tuple[tuple[float, float], ...]:
    if not isinstance(value, list):
        return ()
    points = [point for point in value if isinstance(point, list) and len(point) == 2]
    return tuple(
        (float(width), float(ms)) for width, ms in points if isinstance(width, (int, float)) and isinstance(ms, (int, float))
    )


def _sum(rows: list[dict[str, Scalar]], name: str) -> float | None:
    values = [float(value) for row in rows if isinstance(value := row.get(name), (int, float)) and value >= 0]
    return sum(values) if values else None


def _mean(rows: list[dict[str, Scalar]], name: str) -> float | None:
    total = _sum(rows, name)
    return total / len(rows) if total is not None and rows else None
