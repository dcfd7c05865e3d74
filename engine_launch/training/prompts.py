"""What the training conversations begin with.

Most user turns are written by the target itself: it is given the beginning of a turn (sometimes only its header) and
goes on at temperature 1. So the prompts are endless, need no data set, and are close to what the target was tuned on.
Functions of Python's standard library, by signature and docstring, and parts of its source add prompts with facts in
them. None of it overlaps the held-out prompts on purpose; :mod:`engine_launch.training.dataset` drops what does anyway.

``python -m engine_launch.training.prompts MODEL.gguf pool.jsonl`` writes the pool that ``generate`` reads.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

from engine_launch.embedded.gguf_reader import GgufModel
from engine_launch.embedded.tokenizer import Tokenizer
from engine_launch.training.command import run

DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
SYSTEMS = (
    *[DEFAULT_SYSTEM] * 7,
    "",
    "You are a helpful assistant.",
    "You are an expert programmer. Answer with code and short explanations.",
)
"""System turns and how often each is used; an empty one means none at all."""

CHAT_OPENERS = (
    *[""] * 12,
    *("What is", "What are", "Why do", "How do", "How can I", "How does", "Who", "When", "Where", "Can you"),
    *("Explain", "Describe", "Compare", "List", "Give me", "Tell me about", "Summarise", "Help me", "Suggest"),
    *("Write a short story about", "Write a poem about", "Write an email", "Write an essay", "Write a letter"),
    *("I", "I want to", "I am writing", "My", "You are", "Imagine", "Create", "Design a", "Plan a", "Translate"),
    *("Which", "Is it", "Do you", "Please", "Rewrite the following text", "What happens when", "Solve", "Calculate"),
)
CODE_OPENERS = (
    *("Write a Python function", "Write a Python function that", "Write a Python program", "Write a Python script"),
    *("Write a function that takes", "Write a function to", "Write a class", "Write a Python class for"),
    *("Implement", "Implement a function", "Implement the following", "Create a Python function", "Write a program"),
    *("How do I", "How can I use Python to", "In Python, how", "Explain this code:\n\n```python\n", "Write a unit test"),
    *("Write a JavaScript function", "Write an SQL query", "Write a bash script", "Write a Java program", "Write HTML"),
    *("Write a C program", "Fix the bug in this code:\n\n```python\n", "Refactor this function:\n\n```python\ndef "),
    *("Complete the following Python function:\n\n```python\ndef ", "Complete this function.\n\ndef "),
    *("from typing import List\n\n\ndef ", "def ", "Finish this code:\n\n```python\nimport "),
    "Complete the following Python function:\n\n```python\nfrom typing import List\n\n\ndef ",
)
RAW_OPENERS = (
    *("def ", "from typing import List\n\n\ndef ", "import math\n\n\ndef ", "import re\n\n\ndef ", "class "),
    *("#!/usr/bin/env python3\n", "import os\nimport sys\n", "from typing import List, Dict\n\n\ndef ", "\n\ndef "),
    *("# ", "The ", "In ", "Once upon a time", "A ", "import numpy as np\n", "function ", "<!DOCTYPE html>\n", "SELECT "),
)
FUNCTION_ASKS = (
    "Complete the following Python function.\n\n```python\n{code}\n```",
    "Implement this function:\n\n{code}",
    "Write the body of this Python function:\n\n```python\n{code}\n```",
    "{code}",
    "What does the function `{name}` do? Its documentation says:\n\n{doc}",
    "Write a Python function `{name}`. {doc}",
    "Write tests for this function.\n\n```python\n{code}\n```",
)
LONG_ASKS = (
    "Explain what this code does.\n\n```python\n{text}\n```",
    "{text}\n\nSummarise the code above.",
    "Here is a module:\n\n```python\n{text}\n```\n\nWrite an example of how to use it.",
    "Find possible bugs in this code:\n\n{text}",
)


DOCUMENT_ASKS = (
    *LONG_ASKS,
    "Here is a file:\n\n{text}\n\nWhich functions and classes does it define? Describe each in a sentence.",
    "What is the purpose of this module?\n\n```python\n{text}\n```",
    "{text}\n\nWrite unit tests for the code above.",
    "{text}\n\nWrite another function that would fit in this file.",
    "Rewrite the last function of this file so that it is easier to read.\n\n{text}",
)
DOCUMENT_TOKENS = (1200, 5400)
"""Fewest and most tokens of a prompt that holds a long piece of source."""


class Kind(IntEnum):
    """Where a prompt comes from."""

    CHAT = 0
    CODE = 1
    FUNCTION = 2
    RAW = 3
    LONG = 4
    SECOND_TURN = 5
    DOCUMENT = 6
    CONVERSATION = 7


@dataclass(frozen=True)
class Opening:
    """One beginning: token ids, and whether the user's turn is still open (the target writes the rest)."""

    kind: Kind
    tokens: tuple[int, ...]
    open_turn: bool


def chat_prefix(system: str) -> str:
    """The chat template's text up to the user's first word."""
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return f"{head}<|im_start|>user\n"


@dataclass(frozen=True)
class Function:
    """A documented function of the standard library."""

    name: str
    signature: str
    doc: str

    @property
    def code(self) -> str:
        indented = self.doc.replace("\n", "\n    ")
        return f'{self.signature}\n    """{indented}\n    """'


def library_files() -> list[Path]:
    """Source files of the standard library, without tests and generated tables."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data"}
    return sorted(p for p in root.rglob("*.py") if not skipped & set(p.relative_to(root).parts))


def functions_in(source: str) -> Iterator[Function]:
    """Every function of ``source`` that has a docstring of a useful length."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            doc = ast.get_docstring(node)
            if doc and 20 <= len(doc) <= 900 and not node.name.startswith("_"):
                yield Function(node.name, f"def {node.name}({ast.unparse(node.args)}):", doc)


def build_pool(tokenizer: Tokenizer, rng: random.Random) -> list[Opening]:
    """All beginnings, each tokenised once."""

    def closed(text: str) -> tuple[int, ...]:
        return tokenizer.encode(chat_prefix(rng.choice(SYSTEMS)) + text + "<|im_end|>\n<|im_start|>assistant\n")

    pool = []
    for kind, openers in ((Kind.CHAT, CHAT_OPENERS), (Kind.CODE, CODE_OPENERS)):
        for opener in openers:
            pool += [Opening(kind, tokenizer.encode(chat_prefix(s) + opener.rstrip(" ")), True) for s in SYSTEMS]
    pool += [Opening(Kind.RAW, tokenizer.encode(o.rstrip(" ")), False) for o in RAW_OPENERS]
    for path in library_files():
        source = path.read_text(encoding="utf-8", errors="replace")
        for f in functions_in(source):
            text = rng.choice(FUNCTION_ASKS).format(code=f.code, name=f.name, doc=f.doc)
            pool.append(Opening(Kind.FUNCTION, closed(text), False))
        lines = source.splitlines()
        for first in range(0, max(len(lines) - 40, 0), 90):
            text = "\n".join(lines[first : first + rng.randint(40, 90)])
            tokens = closed(rng.choice(LONG_ASKS).format(text=text))
            if 300 <= len(tokens) <= 1400:
                pool.append(Opening(Kind.LONG, tokens, False))
        for first in range(0, max(len(lines) - 120, 0), 300):
            text = "\n".join(lines[first : first + rng.randint(120, 560)])
            raw = rng.random() < 0.2
            tokens = tokenizer.encode(text) if raw else closed(rng.choice(DOCUMENT_ASKS).format(text=text))
            if DOCUMENT_TOKENS[0] <= len(tokens) <= DOCUMENT_TOKENS[1]:
                pool.append(Opening(Kind.DOCUMENT, tokens, False))
    rng.shuffle(pool)
    return pool


def write_pool(pool: list[Opening], path: Path) -> None:
    """Write openings as JSON lines."""
    with path.open("w", encoding="utf-8") as file:
        for opening in pool:
            file.write(json.dumps(asdict(opening)) + "\n")


def read_pool(path: Path) -> list[Opening]:
    """Read what :func:`write_pool` wrote."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Opening(Kind(r["kind"]), tuple(r["tokens"]), bool(r["open_turn"])) for r in rows]


def open_tokenizer(gguf: Path) -> Tokenizer:
    """The target's tokenizer from its GGUF file."""
    return Tokenizer.build(GgufModel(gguf).tokenizer_data())


def main() -> None:
    """Write the pool."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    pool = build_pool(open_tokenizer(args.model), random.Random(1))
    write_pool(pool, args.out)
    print(", ".join(f"{k.name.lower()} {sum(o.kind is k for o in pool)}" for k in Kind))


if __name__ == "__main__":
    run(main)
