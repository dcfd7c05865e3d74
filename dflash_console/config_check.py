"""What is wrong with a configuration file, and on which line. Imported when there is a file to check."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from .config import EMBEDDED, ApplyDefaults, Config, ConfigProblem, HostEntry, LoadedConfig, Sampling, word
from .knobs import KnobError, find_knob

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def check(text: str, path: str) -> LoadedConfig:
    """Check the settings in ``text``; ``path`` is used in messages only."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return broken(text, (_syntax_problem(str(error), path, text),))
    except RecursionError:
        return broken(text, (ConfigProblem(path, None, None, "is nested too deeply"),))
    if not data:
        return LoadedConfig(Config())
    # Unknown keys are errors: a mistyped key that is silently ignored is worse than a file that is refused.
    forbid = with_config(ConfigDict(extra="forbid"))
    for model in (HostEntry, Sampling, ApplyDefaults, Config):
        forbid(model)
    try:
        config = TypeAdapter(Config).validate_python(data)
    except ValidationError as error:
        return broken(text, _value_problems(error.errors(include_url=False), path, text), data)
    problems = tuple(_profile_problems(config, path, text))
    if EMBEDDED in config.hosts and config.hosts[EMBEDDED].address:
        line = _find_line(text, ("hosts", EMBEDDED, "address"))
        problems += (ConfigProblem(path, line, None, "the host embedded is this machine's own engine and has no address"),)
    return broken(text, problems, data) if problems else LoadedConfig(config)


_READ_ONLY = re.compile(r"""^[ \t]*["']?read_only["']?[ \t]*=(?![ \t]*false\b)""", re.MULTILINE)
_DEFAULT_HOST = re.compile(r"""^[ \t]*["']?default_host["']?[ \t]*=[ \t]*["']?([^"'\s#]+)""", re.MULTILINE)


def broken(text: str, problems: tuple[ConfigProblem, ...], data: Mapping[str, object] | None = None) -> LoadedConfig:
    """The defaults, in place of a file that is wrong, with what of it guards against changing a host by mistake.

    Args:
        data: the file's settings, when it is TOML at least.
    """
    if data is None:
        named = _DEFAULT_HOST.search(text)
        host, read_only = named[1] if named else "", _READ_ONLY.search(text) is not None
    else:
        host, read_only = str(data.get("default_host", "")), data.get("read_only", False) is not False
    return LoadedConfig(Config(read_only=read_only), problems, "" if host == EMBEDDED else host)


def _syntax_problem(message: str, path: str, text: str) -> ConfigProblem:
    match = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    words = message[: match.start()] if match else message
    if match and match[1]:
        return ConfigProblem(path, int(match[1]), int(match[2]), words)
    return ConfigProblem(path, text.count("\n") + 1, None, f"{words} (the file ends here)")


_WORDS = {
    "extra_forbidden": "is not a setting of the console",
    "unexpected_keyword_argument": "is not a setting of the console",
    "string_type": "must be text in quotes",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
}


_ANY_VALUE = "must be a number, text in quotes, or true or false"


def _value_problems(details: Iterable[ErrorDetails], path: str, text: str) -> tuple[ConfigProblem, ...]:
    """One problem for each wrong value; where several kinds would do, pydantic says of each that it is none."""
    said: dict[tuple[str, ...], list[str]] = {}
    for detail in details:
        # pydantic appends the branch of a union that it tried; those are no keys of the file.
        keys = tuple(str(part) for part in detail["loc"] if str(part) not in ("str", "int", "float", "bool", "[key]"))
        said.setdefault(keys, []).append(_WORDS.get(detail["type"], detail["msg"][:1].lower() + detail["msg"][1:]))
    return tuple(
        ConfigProblem(path, _find_line(text, keys), None, f"{'.'.join(keys)} {words[0] if len(words) == 1 else _ANY_VALUE}")
        for keys, words in said.items()
    )


def _profile_problems(config: Config, path: str, text: str) -> list[ConfigProblem]:
    problems = []
    for name, settings in config.profiles.items():
        for knob, value in settings.items():
            try:
                find_knob(knob).parse(word(value))
            except KnobError as error:
                line = _find_line(text, ("profiles", name, knob))
                problems.append(ConfigProblem(path, line, None, f"profiles.{name}: {error}"))
    return problems


_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _find_line(text: str, keys: tuple[str, ...]) -> int | None:
    """The line that sets ``keys``, or the header of the innermost table on the way to it; ``None`` = not found."""
    table: tuple[str, ...] = ()
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            table = here = _parts(header[1])
        elif key := _KEY.match(line):
            here = (*table, *_parts(key[1]))
        else:
            continue
        if here == keys[: len(here)] and (best is None or len(here) > best[0]):
            best = (len(here), number)
    return None if best is None else best[1]
