"""The catalogue of engine settings: each one once, as data.

Everything that names a flag, a server field or a log key reads it from here: the command editor, the drift table, the
plan, confirmation, the screens and the help text. A setting's value has one canonical form whatever its source wrote:

=============== ============================== =====================================
setting         canonical value                what sources write
=============== ============================== =====================================
draft_window    tokens, or ``"off"``           ``2048``, ``None``, ``null``, ``0``, no flag
layers_window   tokens, ``"off"``, ``"config"``  ``config``, ``2048``, ``None``
algorithm       ``"DDTREE"``, ``"DFLASH"``, ``"PLAIN"`` …  any case; ``None``/no flag = ``PLAIN``
speculation     ``True`` / ``False``           ``1``, ``0``, ``on``, ``off``
tree_budget     nodes (root not counted), ``"auto"``  ``16``, ``auto``, ``auto(max 64)``
=============== ============================== =====================================
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from .evidence.secrets import MASK, is_secret_name

Value = int | float | str | bool
"""A setting's canonical value."""

OFF = "off"
CONFIG = "config"
AUTO = "auto"
PLAIN = "PLAIN"

_NOTHING = frozenset({"", "none", "null", "off", "false", "no", "disabled"})
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class KnobError(ValueError):
    """A value that the setting cannot take; the message says what it takes."""


class KnobKind(Enum):
    """How a setting's text is read and shown."""

    COUNT = "count"
    WINDOW = "window"
    LAYERS_WINDOW = "layers window"
    BUDGET = "budget"
    ALGORITHM = "algorithm"
    SWITCH = "switch"
    FRACTION = "fraction"
    TEXT = "text"


class Source(Enum):
    """Where a value was read. The order is that of the truth table's columns."""

    TRAINED = "trained"
    UNIT = "unit"
    LOADED = "loaded"
    PROCESS = "process"
    SERVER = "server"
    LOG = "log"


@dataclass(frozen=True)
class Knob:
    """One engine setting and every name it goes by."""

    name: str
    title: str
    kind: KnobKind
    unit: str
    help: str
    flags: tuple[str, ...]
    """Command-line spellings, the one to write first, older ones after it."""
    server_fields: tuple[str, ...] = ()
    """Top-level fields of ``/server_info``: what was *asked* at start (a foreign server echoes its flags)."""
    internal_fields: tuple[str, ...] = ()
    """Fields of ``/server_info`` → ``internal_states[i]``: what the engine says is in effect now."""
    log_keys: tuple[str, ...] = ()
    """Keys of the confirmation lines of a start."""
    hot_name: str | None = None
    """Name in ``POST /set_internal_state`` when the engine takes it while running."""
    request_param: str | None = None
    """Name in ``sampling_params.custom_params``."""
    minimum: float | None = None
    maximum: float | None = None
    steps: tuple[Value, ...] = ()
    """Values that the step keys walk through."""
    evidence: tuple[Source, ...] = (Source.LOG, Source.SERVER)
    """Which sources prove the value *in effect*: a key of this start's log, a field that the engine computed, or, for
    flags with neither, this process's own command line."""
    default_text: str = ""
    """What the engine does when the flag is not given, in words."""
    default: Value | None = None
    """The same as a canonical value; ``None`` when the engine chooses (by model, memory or drafter)."""

    @property
    def secret(self) -> bool:
        """The value is a key, a token or a password: it is set, and never shown, stored or compared in the open."""
        return any(is_secret_name(flag) for flag in self.flags)

    def shown(self, value: Value | None) -> Value | None:
        """``value`` as records and screens may hold it."""
        return MASK if self.secret and value is not None else value

    def parse(self, text: str) -> Value:
        """The canonical value of ``text`` as a user or a source wrote it.

        Raises:
            KnobError: the setting cannot take it.
        """
        raw = text.strip().strip("'\"")
        if self.secret and raw == MASK:
            raise KnobError(f"{self.name}: {MASK} stands for the value that is not shown; give the new one itself")
        value = _PARSERS[self.kind](self, raw)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise KnobError(f"{self.name} must be at least {_number(self.minimum)}, not {raw}")
            if self.maximum is not None and value > self.maximum:
                raise KnobError(f"{self.name} must be at most {_number(self.maximum)}, not {raw}")
        return value

    def flag_arguments(self, value: Value) -> tuple[str, ...]:
        """The words to put on a command line; empty when the value is what the engine does without the flag."""
        if self.kind is KnobKind.SWITCH:
            return self.flags[:1] if value is True else ()
        if not self.flags or (value in (OFF, PLAIN) and self.kind in (KnobKind.WINDOW, KnobKind.ALGORITHM)):
            return ()
        return (self.flags[0], show_value(value))

    def hot_value(self, value: Value) -> float:
        """The number that ``/set_internal_state`` takes for ``value``.

        Raises:
            KnobError: the engine takes this value at start only.
        """
        if value == OFF or value is False:
            return 0
        if value is True:
            return 1
        if isinstance(value, (int, float)):
            return value
        raise KnobError(f"{self.name}={value} can only be set at start")


def show_value(value: Value | None) -> str:
    """A value as the screens and the command line write it."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def same_value(left: Value | None, right: Value | None) -> bool:
    """Whether two canonical values mean the same. Unknown (``None``) equals nothing."""
    if left is None or right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left.casefold() == right.casefold()
    return left == right and isinstance(left, str) == isinstance(right, str)


def _number(value: float) -> str:
    return f"{value:g}"


_WHOLE = re.compile(r"[0-9]{1,18}")
"""Digits of a number that every engine can hold; Python itself refuses to read several thousand of them."""


def _count(knob: Knob, raw: str) -> Value:
    sign, digits = (raw[:1], raw[1:]) if raw[:1] in ("+", "-") else ("", raw)
    if not _WHOLE.fullmatch(digits):
        raise KnobError(f"{knob.name} takes a whole number, not {_quoted(raw)}")
    return int(sign + digits)


def _quoted(raw: str) -> str:
    """What was written, short enough for a message."""
    return f"{raw[:40]}…" if len(raw) > 40 else raw or "nothing"


def _window(knob: Knob, raw: str) -> Value:
    if raw.casefold() in _NOTHING or raw == "0":
        return OFF
    if not _WHOLE.fullmatch(raw):
        raise KnobError(f"{knob.name} takes a number of tokens or 'off', not {_quoted(raw)}")
    return int(raw)


def _layers_window(knob: Knob, raw: str) -> Value:
    if raw.casefold() in (CONFIG, "trained"):
        return CONFIG
    if raw.casefold() in _NOTHING or raw == "0":
        return OFF
    if not _WHOLE.fullmatch(raw):
        raise KnobError(f"{knob.name} takes 'config', 'off' or a number of tokens, not {_quoted(raw)}")
    return int(raw)


def _budget(knob: Knob, raw: str) -> Value:
    if raw.casefold() == AUTO or re.fullmatch(r"auto\(max \d+\)", raw):
        return AUTO
    return _count(knob, raw)


def _algorithm(knob: Knob, raw: str) -> Value:
    name = raw.upper()
    if name.casefold() in _NOTHING or name == PLAIN:
        return PLAIN
    if not re.fullmatch(r"[A-Z][A-Z0-9_-]*", name):
        raise KnobError(f"{knob.name} takes an algorithm's name (DDTREE, DFLASH, PLAIN …), not {_quoted(raw)}")
    return name


def _switch(knob: Knob, raw: str) -> Value:
    word = raw.casefold()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise KnobError(f"{knob.name} takes on or off, not {_quoted(raw)}")


def _fraction(knob: Knob, raw: str) -> Value:
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise KnobError(f"{knob.name} takes a number, not {_quoted(raw)}")
    return value


_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line ends, and bytes of a command line that were no UTF-8."""


def _text(knob: Knob, raw: str) -> Value:
    if not raw:
        raise KnobError(f"{knob.name} needs a value")
    if raw.startswith("--"):
        raise KnobError(f"{knob.name} cannot begin with --: the engine would take that for another flag")
    if _UNWRITABLE.search(raw):
        raise KnobError(f"{knob.name} takes one line of plain text, without control characters")
    return raw


_PARSERS = {
    KnobKind.COUNT: _count,
    KnobKind.WINDOW: _window,
    KnobKind.LAYERS_WINDOW: _layers_window,
    KnobKind.BUDGET: _budget,
    KnobKind.ALGORITHM: _algorithm,
    KnobKind.SWITCH: _switch,
    KnobKind.FRACTION: _fraction,
    KnobKind.TEXT: _text,
}

_CATALOGUE = (
    Knob(
        "algorithm",
        "Algorithm",
        KnobKind.ALGORITHM,
        "",
        "How drafts are proposed and verified. DFLASH verifies one chain of drafts, DDTREE a tree of them; PLAIN decodes "
        "one token per step.",
        ("--speculative-algorithm",),
        server_fields=("speculative_algorithm",),
        internal_fields=("algorithm",),
        log_keys=("algorithm",),
        default_text="plain decoding",
        default=PLAIN,
    ),
    Knob(
        "speculation",
        "Speculation",
        KnobKind.SWITCH,
        "",
        "Whether the running engine drafts at all. Off goes on feeding the drafter, so that it can be switched on again; "
        "its speed is 'plain, in place', not the plain baseline.",
        (),
        internal_fields=("speculation",),
        hot_name="speculation",
        request_param="speculative",
        evidence=(Source.SERVER,),
        default_text="on when an algorithm is set",
    ),
    Knob(
        "draft_window",
        "Compact draft cache",
        KnobKind.WINDOW,
        "tokens",
        "The worker shows the drafter only the last so many committed tokens. Bounds draft attention (and, in the embedded "
        "engine, draft KV memory); the target and therefore the output are untouched.",
        ("--speculative-draft-window-size", "--speculative-dflash-draft-window-size"),
        server_fields=("speculative_draft_window_size", "speculative_dflash_draft_window_size"),
        internal_fields=("speculative_draft_window_size",),
        log_keys=("draft_window_size",),
        hot_name="speculative_draft_window_size",
        minimum=1,
        steps=(OFF, 512, 1024, 2048, 4096),
        default_text="off",
        default=OFF,
    ),
    Knob(
        "layers_window",
        "Drafter layers' window",
        KnobKind.LAYERS_WINDOW,
        "tokens",
        "The drafter's own sliding attention layers. 'config' runs them as trained; 'off' lets them attend to everything.",
        ("--speculative-draft-layers-window",),
        server_fields=("speculative_draft_layers_window",),
        internal_fields=("layers_window",),
        log_keys=("layers_window",),
        minimum=1,
        steps=(CONFIG, OFF),
        default_text="as trained (config)",
        default=CONFIG,
    ),
    Knob(
        "tree_budget",
        "Tree budget",
        KnobKind.BUDGET,
        "nodes",
        "Drafts in the tree, root not counted; the verify pass is budget + 1 rows wide. More nodes commit more tokens per "
        "verify, and each verify costs more.",
        ("--speculative-ddtree-budget",),
        server_fields=("speculative_ddtree_budget",),
        internal_fields=("speculative_ddtree_budget",),
        log_keys=("tree_budget",),
        hot_name="speculative_ddtree_budget",
        request_param="ddtree_budget",
        minimum=1,
        maximum=1024,
        steps=(1, 2, 4, 7, 8, 12, 16, 24, 32, 48, 64),
        default_text="chosen by the engine",
    ),
    Knob(
        "tree_topk",
        "Top-k per position",
        KnobKind.COUNT,
        "candidates",
        "How many of the drafter's candidates per position may enter the tree.",
        ("--speculative-ddtree-topk",),
        server_fields=("speculative_ddtree_topk",),
        internal_fields=("speculative_ddtree_topk",),
        log_keys=("tree_topk",),
        hot_name="speculative_ddtree_topk",
        request_param="ddtree_topk",
        minimum=1,
        maximum=64,
        steps=(1, 2, 3, 4, 6, 8, 16),
        default_text="chosen by the engine",
    ),
    Knob(
        "block_size",
        "Block size",
        KnobKind.COUNT,
        "tokens",
        "Anchor and mask slots of the drafter's one pass: it proposes block size − 1 positions. A drafter trained on one "
        "block is a different drafter on another.",
        ("--speculative-num-draft-tokens", "--speculative-dflash-block-size"),
        server_fields=("speculative_dflash_block_size", "speculative_num_draft_tokens"),
        internal_fields=("block_size",),
        log_keys=("block_size",),
        minimum=2,
        maximum=64,
        default_text="the drafter's own",
    ),
    Knob(
        "drafter",
        "Drafter",
        KnobKind.TEXT,
        "path",
        "The DFlash draft model's folder.",
        ("--speculative-draft-model-path", "--speculative-draft-model"),
        server_fields=("speculative_draft_model_path",),
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="the engine's own",
    ),
    Knob(
        "max_running_requests",
        "Max running requests",
        KnobKind.COUNT,
        "requests",
        "Requests decoded at once; the rest wait in the queue.",
        ("--max-running-requests",),
        server_fields=("max_running_requests",),
        internal_fields=("effective_max_running_requests_per_dp",),
        log_keys=("max_running_requests",),
        minimum=1,
        default_text="chosen by the engine",
    ),
    Knob(
        "context_length",
        "Context length",
        KnobKind.COUNT,
        "tokens",
        "Longest prompt with its answer.",
        ("--context-length",),
        server_fields=("context_length",),
        log_keys=("context_len",),
        minimum=16,
        default_text="the model's own",
    ),
    Knob(
        "attention_backend",
        "Attention backend",
        KnobKind.TEXT,
        "",
        "Kernels of the target's attention; trees need one that takes a mask (Triton, FlashInfer).",
        ("--attention-backend",),
        server_fields=("attention_backend",),
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="chosen by the engine",
    ),
    Knob(
        "tp_size",
        "Tensor parallel",
        KnobKind.COUNT,
        "GPUs",
        "GPUs that share the target.",
        ("--tensor-parallel-size", "--tp-size", "--tp"),
        server_fields=("tp_size",),
        minimum=1,
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="1",
        default=1,
    ),
    Knob(
        "mem_fraction",
        "Static memory fraction",
        KnobKind.FRACTION,
        "",
        "Share of GPU memory for weights and KV pools.",
        ("--mem-fraction-static",),
        server_fields=("mem_fraction_static",),
        minimum=0.05,
        maximum=0.99,
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="chosen by the engine",
    ),
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in _CATALOGUE}
"""All settings by name, in the order in which screens list them."""

TRUTH_KNOBS = ("algorithm", "draft_window", "layers_window", "tree_budget", "tree_topk", "block_size", "drafter")
"""Rows of the truth table that are always there, in order."""

FLAG_PREFIX = "flag:"

_BY_FLAG = {flag: knob for knob in _CATALOGUE for flag in knob.flags}


def find_knob(name: str) -> Knob:
    """The setting called ``name``; ``flag:--its-name`` makes one for any other flag.

    A flag of the catalogue is the catalogue's setting under whichever spelling it is named: it has the same bounds, and above all
    needs the same evidence.

    Raises:
        KnobError: there is no such setting; the message lists the names.
    """
    knob = KNOBS.get(name)
    if knob is not None:
        return knob
    if name.startswith(FLAG_PREFIX) and re.fullmatch(r"--[a-z0-9][a-z0-9-]*", name[len(FLAG_PREFIX) :]):
        flag = name[len(FLAG_PREFIX) :]
        return _BY_FLAG.get(flag) or _other_flag(name, flag)
    raise KnobError(f"there is no setting called {name}; known: {', '.join(KNOBS)}, and flag:--any-other-flag")


def _other_flag(name: str, flag: str) -> Knob:
    # The flags' list is long and hardly ever needed here.
    from engine_launch.spec.flags import BY_SPELLING, Kind

    known = BY_SPELLING.get(flag)
    if known is None and (longer := sorted(full for full in BY_SPELLING if full.startswith(flag))):
        # argparse would take it for the longer flag, whose evidence it would then escape.
        raise KnobError(f"{flag} is short for {' or '.join(longer[:3])}: write the flag whole")
    switch = known is not None and known.kind is Kind.SWITCH
    return Knob(
        name,
        flag,
        KnobKind.SWITCH if switch else KnobKind.TEXT,
        "",
        f"The engine's flag {flag}.",
        known.spellings if known is not None else (flag,),
        server_fields=((known.key if known is not None else flag[2:].replace("-", "_")),),
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="not given",
        default=False if switch else None,
    )


def parse_settings(items: Sequence[str]) -> dict[str, Value]:
    """``["draft_window=512", …]`` → values by setting; a later item wins.

    Raises:
        KnobError: an item without ``=``, an unknown setting or a bad value.
    """
    values: dict[str, Value] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise KnobError(f"write KNOB=VALUE, not {item}")
        knob = find_knob(name.strip())
        values[knob.name] = knob.parse(text)
    return values
