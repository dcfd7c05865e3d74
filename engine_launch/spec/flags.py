"""Every flag of ``ddtree-launch serve`` as data, and a reader of argument lists that behaves as SGLang's argparse does.

Pure: no torch, no I/O. The console reads this catalogue too, to know what the launcher would make of a command line.

Three kinds of flag (:class:`Use`): those that the embedded engine honours, those that only the launcher reads, and those
that SGLang knows and the embedded engine has no use for (``--tp-size``), which are one warning each. Anything else is an
error that names the nearest known flag.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from engine_launch.spec import sglang_flags

FlagValue = int | str | bool
"""A parsed value: switches are ``bool``, numbers ``int``, everything else the text as given."""


CONFIG_FILE = "--config"
"""More flags in a YAML file, which is not read here: with it, what is not among the words may be there all the same."""


class FlagError(ValueError):
    """A command line that cannot be served; the message is one sentence for the user."""


class Kind(Enum):
    """What a flag takes after its name."""

    SWITCH = "switch"
    INT = "int"
    INT_OR_WORD = "int or word"
    """A number, or one of the flag's ``choices``."""
    TEXT = "text"
    CHOICE = "choice"
    ANY = "any"
    """Any number of words, up to the next flag; the value is the words with a blank between."""


class Use(Enum):
    """Who reads a flag."""

    ENGINE = "engine"
    LAUNCHER = "launcher"
    NONE = "none"
    """Known to SGLang; the embedded engine has no use for it."""


@dataclass(frozen=True)
class Flag:
    """One flag under SGLang's spelling."""

    name: str
    """With the dashes: ``--port``."""
    kind: Kind
    use: Use
    help: str = ""
    default: FlagValue | None = None
    aliases: tuple[str, ...] = ()
    """Other spellings, with dashes; all of them are accepted for ever, because unit files keep them."""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    sglang: bool = True
    """False for the flags that this project adds."""
    secret: bool = False
    """The value must never be shown."""

    @property
    def key(self) -> str:
        """The name in ``/server_info`` and in the ``server_args=`` log line: ``speculative_draft_window_size``."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


HONOURED: tuple[Flag, ...] = (
    Flag(
        "--engine",
        Kind.CHOICE,
        Use.LAUNCHER,
        "which engine serves: auto takes SGLang where it and a GPU are found, else the embedded one",
        default="auto",
        choices=("auto", "sglang", "embedded"),
        sglang=False,
    ),
    Flag(
        "--model-path",
        Kind.TEXT,
        Use.ENGINE,
        "a GGUF file of a Llama-architecture model; without it SmolLM2-135M-Instruct from the cache",
        aliases=("--model",),
    ),
    Flag("--served-model-name", Kind.TEXT, Use.ENGINE, "the name that /v1/models and the metrics carry"),
    Flag("--host", Kind.TEXT, Use.ENGINE, "address to listen on", default="127.0.0.1"),
    Flag("--port", Kind.INT, Use.ENGINE, "port to listen on; 0 takes a free one", default=30000, minimum=0),
    Flag("--api-key", Kind.TEXT, Use.ENGINE, "key that clients send as Authorization: Bearer KEY", secret=True),
    Flag("--admin-api-key", Kind.TEXT, Use.ENGINE, "key that changes of the running engine need", secret=True),
    Flag(
        "--dtype",
        Kind.CHOICE,
        Use.ENGINE,
        "auto is bfloat16 where the CPU computes in it, else float32",
        default="auto",
        choices=("auto", "bfloat16", "float32"),
    ),
    Flag("--context-length", Kind.INT, Use.ENGINE, "tokens of prompt and answer together", minimum=1),
    Flag("--max-running-requests", Kind.INT, Use.ENGINE, "requests decoded at once; more are queued", minimum=1),
    Flag("--disable-radix-cache", Kind.SWITCH, Use.ENGINE, "keep nothing for requests that begin like an earlier one"),
    Flag("--random-seed", Kind.INT, Use.ENGINE, "seed of requests that bring none"),
    Flag(
        "--speculative-algorithm",
        Kind.TEXT,
        Use.ENGINE,
        "DFLASH (a chain) or DDTREE (a tree); without it, plain decoding",
    ),
    Flag(
        "--speculative-draft-model-path",
        Kind.TEXT,
        Use.ENGINE,
        "folder of a DFlash checkpoint; without it the packaged one",
        aliases=("--speculative-draft-model",),
    ),
    Flag(
        "--speculative-num-draft-tokens",
        Kind.INT,
        Use.ENGINE,
        "block size of the drafter; without it, as trained",
        minimum=2,
    ),
    Flag(
        "--speculative-dflash-block-size",
        Kind.INT,
        Use.ENGINE,
        "the same as --speculative-num-draft-tokens",
        minimum=2,
    ),
    Flag(
        "--speculative-ddtree-budget",
        Kind.INT_OR_WORD,
        Use.ENGINE,
        "nodes of the tree, root not counted; auto stops each tree where another node would cost more time than it brings",
        choices=("auto",),
        minimum=1,
        sglang=False,
    ),
    Flag(
        "--speculative-ddtree-topk",
        Kind.INT,
        Use.ENGINE,
        "candidates per position",
        minimum=1,
        sglang=False,
    ),
    Flag(
        "--speculative-draft-window-size",
        Kind.INT,
        Use.ENGINE,
        "compact draft cache: context tokens that the drafter keeps; without it, all",
        aliases=("--speculative-dflash-draft-window-size",),
        minimum=1,
    ),
    Flag(
        "--speculative-draft-layers-window",
        Kind.INT_OR_WORD,
        Use.ENGINE,
        "the drafter's sliding layers' own window: config is as trained, off lets them see everything",
        default="config",
        choices=("config", "off"),
        minimum=1,
        sglang=False,
    ),
    Flag("--enable-metrics", Kind.SWITCH, Use.ENGINE, "serve Prometheus text under /metrics"),
    Flag("--decode-log-interval", Kind.INT, Use.ENGINE, "rounds between two decode lines", default=40, minimum=1),
    Flag(
        "--log-level",
        Kind.CHOICE,
        Use.ENGINE,
        "lines below this level are not printed",
        default="info",
        choices=("debug", "info", "warning", "error", "critical"),
    ),
    Flag(
        "--uvicorn-access-log-exclude-prefixes",
        Kind.ANY,
        Use.ENGINE,
        "paths beginning so are served without an access line (for the requests of a console that polls)",
    ),
    Flag(
        "--stream-response-default-include-usage",
        Kind.SWITCH,
        Use.ENGINE,
        "streams end with their usage even when the client does not ask",
    ),
)
"""The flags that are read, in the order in which help shows them."""


def _unused(name: str) -> Flag:
    kind = Kind.SWITCH if name in sglang_flags.SWITCHES else Kind.ANY
    aliases = tuple(f"--{alias}" for alias, target in sglang_flags.ALIASES.items() if target == name)
    return Flag(f"--{name}", kind, Use.NONE, aliases=aliases, secret=name == "ssl-keyfile-password")


PLUGIN_ONLY: tuple[Flag, ...] = (
    Flag("--speculative-ddtree-max-budget", Kind.INT, Use.NONE, minimum=1, sglang=False),
    Flag("--speculative-ddtree-max-topk", Kind.INT, Use.NONE, minimum=1, sglang=False),
    Flag("--speculative-ddtree-verify-widths", Kind.ANY, Use.NONE, sglang=False),
    Flag("--speculative-ddtree-draft-pool", Kind.ANY, Use.NONE, sglang=False),
    Flag("--ddtree-self-test", Kind.SWITCH, Use.NONE, sglang=False),
)
"""Flags that DDTREE inside SGLang has and the embedded engine has no use for."""

CATALOGUE: tuple[Flag, ...] = (
    *HONOURED,
    *PLUGIN_ONLY,
    *(_unused(name) for name in sorted(sglang_flags.SWITCHES | sglang_flags.VALUED)),
)
"""Every flag that the launcher knows."""

_CONFIG = Flag(CONFIG_FILE, Kind.TEXT, Use.NONE)
BY_SPELLING: Mapping[str, Flag] = MappingProxyType({s: flag for flag in CATALOGUE for s in flag.spellings})
"""Any accepted full spelling → its flag."""


@dataclass(frozen=True)
class GivenFlag:
    """One flag as it stood on a command line."""

    flag: Flag
    spelling: str
    """As the user wrote it, prefix or alias included."""
    value: FlagValue
    words: tuple[str, ...] = ()
    """The value's words one by one, where a flag takes any number of them."""


@dataclass(frozen=True)
class ParsedFlags:
    """A command line that was understood."""

    given: tuple[GivenFlag, ...]
    """In order, repeats included."""
    warnings: tuple[str, ...]
    """One sentence each, for stderr."""

    def value(self, name: str) -> FlagValue | None:
        """The value in force for ``name`` (the last one given, else the default); ``None`` when there is neither."""
        for item in reversed(self.given):
            if item.flag.name == name:
                return item.value
        return BY_SPELLING[name].default

    def was_given(self, name: str) -> bool:
        return any(item.flag.name == name for item in self.given)


def resolve(spelling: str) -> Flag:
    """The flag that ``spelling`` names: exactly, or as a prefix of one flag only, as argparse allows.

    Raises:
        FlagError: no flag or several flags begin so.
    """
    exact = BY_SPELLING.get(spelling)
    if exact is not None:
        return exact
    matches = [full for full in BY_SPELLING if full.startswith(spelling)] if len(spelling) > 2 else []
    flags = {BY_SPELLING[full].name for full in matches}
    if len(flags) == 1:
        return BY_SPELLING[matches[0]]
    if flags:
        shown = ", ".join(sorted(matches)[:6]) + (", …" if len(matches) > 6 else "")
        raise FlagError(f"{spelling} could be any of {shown}: write it out.")
    if spelling == CONFIG_FILE:
        raise FlagError(f"{CONFIG_FILE} names a file of SGLang's, which the embedded engine does not read: write its flags out.")
    raise FlagError(
        f"{spelling} is not a flag that SGLang or this launcher knows. Did you mean {nearest(spelling)}? "
        "(ddtree-launch serve --help lists the flags.)"
    )


def nearest(spelling: str) -> str:
    """The known flag most like ``spelling``: by letters, or by its words (``--budget`` → ``--speculative-ddtree-budget``)."""
    close = difflib.get_close_matches(spelling, list(BY_SPELLING), n=1, cutoff=0.75)
    if close:
        return close[0]
    words = set(spelling.strip("-").split("-"))
    holding = [flag.name for flag in CATALOGUE if words <= set(flag.name.strip("-").split("-"))]
    return (holding or difflib.get_close_matches(spelling, list(BY_SPELLING), n=1, cutoff=0.0))[0]


def parse_flags(argv: Sequence[str], config_file: bool = False) -> ParsedFlags:
    """Read the words after ``serve``.

    ``--flag value`` and ``--flag=value`` are the same; a repeated flag counts with its last value; nothing is positional.

    Args:
        config_file: whether they are for an engine that reads a file of more flags.

    Raises:
        FlagError: an unknown or ambiguous flag, a missing or malformed value, or a word that belongs to no flag.
    """
    given: list[GivenFlag] = []
    warnings: list[str] = []
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if not word.startswith("--"):
            raise FlagError(f"{word!r} belongs to no flag: every argument is written --flag VALUE.")
        spelling, equals, attached = word.partition("=")
        flag = _CONFIG if config_file and spelling == CONFIG_FILE else resolve(spelling)
        words: list[str] = []
        if flag.kind is Kind.SWITCH:
            if equals:
                raise FlagError(f"{spelling} takes no value, but {attached!r} was given.")
            value: FlagValue = True
        elif flag.kind is Kind.ANY:
            words = [attached] if equals else words
            while not equals and position < len(argv) and not argv[position].startswith("--"):
                words.append(argv[position])
                position += 1
            value = " ".join(words)
        else:
            if not equals:
                if position >= len(argv) or argv[position].startswith("--"):
                    raise FlagError(f"{spelling} needs a value.")
                attached = argv[position]
                position += 1
            value = read_value(flag, spelling, attached)
        earlier = [item for item in given if item.flag is flag]
        if earlier and flag.use is not Use.NONE:
            shown = "the last one" if flag.secret or flag.kind is Kind.SWITCH else str(value)
            warnings.append(f"{flag.name} is given {len(earlier) + 1} times; {shown} is used.")
        if flag.use is Use.NONE and not earlier:
            whose = "SGLang" if flag.sglang else "DDTREE inside SGLang"
            warnings.append(f"{spelling} is a flag of {whose} that the embedded engine has no use for; it is ignored.")
        given.append(GivenFlag(flag, spelling, value, tuple(words)))
    return ParsedFlags(tuple(given), tuple(warnings))


def read_value(flag: Flag, spelling: str, text: str) -> FlagValue:
    """Turn the text after a flag into its value.

    Raises:
        FlagError: not a number where one is needed, below the flag's minimum, or none of its choices.
    """
    if flag.kind is Kind.TEXT:
        if not text:
            raise FlagError(f"{spelling} needs a value, but an empty one was given.")
        return text
    if flag.kind is Kind.CHOICE:
        if text not in flag.choices:
            raise FlagError(f"{spelling} takes {_either(flag.choices)}, not {text!r}.")
        return text
    if flag.kind is Kind.INT_OR_WORD and text in flag.choices:
        return text
    try:
        number = int(text)
    except ValueError:
        wanted = "a whole number" + (f" or {_either(flag.choices)}" if flag.choices else "")
        raise FlagError(f"{spelling} takes {wanted}, not {text!r}.") from None
    if flag.minimum is not None and number < flag.minimum:
        raise FlagError(f"{spelling} must be at least {flag.minimum}, but {number} was given.")
    return number


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
