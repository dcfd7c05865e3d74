"""Prompt suites: named sets of prompts, from the console's own files or from a file of the user's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ..evidence.values import read_json

SUITES = ("coding", "chat", "long")
"""The suites that come with the console."""

CHARACTERS_PER_TOKEN = 4
"""For English prose with common tokenizers, roughly; the record's ``prompt_tokens`` says what it really was."""

MAX_FILE_BYTES = 32 << 20
"""Largest file that is read: a device or a mistyped name must not fill the memory."""


class SuiteError(ValueError):
    """A suite that cannot be read; the message says what, where and what to do."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of a suite."""

    name: str
    text: str


@dataclass(frozen=True)
class Suite:
    """A named set of prompts."""

    name: str
    title: str
    about: str
    prompts: tuple[Prompt, ...]

    def find(self, name: str) -> Prompt:
        """Raises: SuiteError: the suite has no prompt of that name."""
        for prompt in self.prompts:
            if prompt.name == name:
                return prompt
        raise SuiteError(f"the suite {self.name} has no prompt called {name}; it has: {', '.join(p.name for p in self.prompts)}")


def load_suite(name: str, *, depth: int = 0) -> Suite:
    """A suite by name (``coding``, ``chat``, ``long``), or from a file.

    A file is one of the console's TOML form, JSON lines (``{"prompt": …}``, or SGLang's and OpenAI's ``text`` or
    ``messages`` with one user's turn), or plain text: one prompt.

    Args:
        depth: tokens (approximately) of text to put in front of each prompt; only ``long`` has a depth of its own (2,048).

    Raises:
        SuiteError: there is no such suite or file, or it cannot be read.
    """
    if name in SUITES:
        text = (resources.files(__package__) / "suites" / f"{name}.toml").read_text("utf-8")
        suite = parse_suite(name, text)
        depth = depth or (2_048 if name == "long" else 0)
    else:
        suite = _from_file(Path(name).expanduser())
    if depth <= 0:
        return suite
    before = filler(depth)
    prompts = tuple(Prompt(prompt.name, f"{before}\n\n{prompt.text}") for prompt in suite.prompts)
    return Suite(suite.name, suite.title, suite.about, prompts)


def parse_suite(name: str, text: str) -> Suite:
    """Read the console's TOML form. Raises: SuiteError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise SuiteError(f"the suite {name} is not valid TOML: {problem}") from None
    except RecursionError:
        raise SuiteError(f"the suite {name} is not valid TOML: nested too deeply") from None
    entries = table.get("prompt")
    if not isinstance(entries, list) or not entries:
        raise SuiteError(f"the suite {name} has no prompts: write a [[prompt]] table with a text for each")
    prompts = []
    for number, entry in enumerate(entries, 1):
        body = entry.get("text") if isinstance(entry, dict) else None
        if not isinstance(body, str) or not body.strip():
            raise SuiteError(f'prompt {number} of the suite {name} has no text: write text = "…" under its [[prompt]]')
        prompts.append(Prompt(str(entry.get("name", f"prompt {number}")), body.strip()))
    return Suite(name, str(table.get("title", name)), str(table.get("about", "")), tuple(prompts))


def _from_file(path: Path) -> Suite:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise SuiteError(f"there is no suite or file called {path}; the suites are {', '.join(SUITES)}") from None
    except OSError as problem:
        raise SuiteError(f"{path} cannot be read: {problem.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise SuiteError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB: split it")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise SuiteError(f"{path} is not UTF-8 text") from None
    if path.suffix == ".toml":
        return parse_suite(str(path), text)
    if path.suffix == ".jsonl":
        prompts = tuple(
            Prompt(f"line {number}", _json_prompt(path, number, line))
            # Not splitlines: a string in JSON may hold U+2028 and other characters that it would break at.
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        )
    else:
        prompts = (Prompt(path.name, text.strip()),) if text.strip() else ()
    if not prompts:
        raise SuiteError(f"{path} holds no prompt")
    return Suite(str(path), path.name, "", prompts)


def _json_prompt(path: Path, number: int, line: str) -> str:
    try:
        entry = read_json(line)
    except ValueError as problem:
        raise SuiteError(f"line {number} of {path} is not JSON: {problem}") from None
    if isinstance(entry, str) and entry.strip():
        return entry
    if isinstance(entry, dict):
        for key in ("prompt", "text"):
            value = entry.get(key)
            if isinstance(value, str) and value.strip():
                return value
        turns = entry.get("messages")
        if isinstance(turns, list):
            texts = [turn.get("content") for turn in turns if isinstance(turn, dict) and turn.get("role") == "user"]
            if texts and isinstance(texts[0], str) and texts[0].strip():
                return texts[0]
    raise SuiteError(f'line {number} of {path} holds no prompt: write {{"prompt": "…"}}')


_PLACES = ("pump house", "north tank", "intake", "control room", "generator shed", "filter bed", "south gate")
_EVENTS = (
    "pressure {a} kPa, steady",
    "inlet temperature {b} degrees, valve {c} opened a quarter turn",
    "pump {c} stopped for {a} seconds and started by itself",
    "level {b} centimetres below the mark, crew informed",
    "valve {c} replaced, the old one kept for parts",
    "nothing to report",
    "filter {c} rinsed, {a} litres used",
    "visitor from the county signed in, read meter {c} and left",
    "spare valve found behind cabinet {c}",
)


def filler(tokens: int) -> str:
    """A station's log of about ``tokens`` tokens: always the same for the same length, and no two entries alike.

    Varied on purpose: a repeated paragraph would be drafted almost perfectly, and the commit length would mean nothing.
    """
    lines = ["Log of the water station."]
    length = len(lines[0])
    number = 0
    while length < tokens * CHARACTERS_PER_TOKEN:
        number += 1
        # A fixed multiplicative sequence: it looks irregular and needs no random generator's state.
        noise = number * 2_654_435_761 % 2**32 >> 8
        event = _EVENTS[noise % len(_EVENTS)].format(a=noise % 811 + 20, b=noise % 67 + 4, c=noise % 13 + 1)
        line = (
            f"{number:05d} day {number // 24 + 1}, {number % 24:02d}:{noise % 60:02d}, {_PLACES[noise % len(_PLACES)]}: {event}."
        )
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)
