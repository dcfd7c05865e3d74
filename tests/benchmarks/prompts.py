"""Prompts for benchmarks, none of which a training set of this project contains: the held-out suites, and tasks of our own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.engines import Bench

HELD_OUT = Path(__file__).parent.parent.parent / "engine_launch" / "training" / "heldout"
"""A file for each suite: ``code.jsonl``, ``chat.jsonl``, ``long.jsonl``."""
LONG_TOKENS = 1024
"""Tokens of a document that are given with a question about it."""


def held_out(loaded: Bench, suite: str, count: int) -> list[tuple[int, ...]]:
    """The first prompts of a held-out suite, as token ids in the chat template."""
    lines = [json.loads(line) for line in (HELD_OUT / f"{suite}.jsonl").read_text(encoding="utf-8").splitlines()]
    if suite != "long":
        return [loaded.chat(str(line["prompt"])) for line in lines[:count]]
    found = []
    for line in lines:
        text = loaded.tokenizer.decode(list(loaded.tokenizer.encode(str(line["document"]))[:LONG_TOKENS]))
        for question in line["questions"]:
            found.append(loaded.chat(f"{text}\n\n{question}"))
    return found[:count]


CODE_PROMPTS = (
    "Write a Python function `run_lengths(text)` that returns (character, count) pairs for consecutive equal characters.",
    "Write a Python class `RingBuffer` with `push`, `pop` and `__len__`, with a fixed capacity and the oldest item overwritten.",
    "Write a Python function that reads a CSV file with the csv module and returns the mean of a named column as a float.",
    "Write a Python function `topological_order(graph)` for a dict of lists, raising ValueError when there is a cycle.",
    "Write a Python function that checks whether the brackets (), [] and {} in a string are balanced, and explain it briefly.",
    "Write a Python generator that yields the prime numbers in increasing order, and show how to print the first ten.",
    "Write a Python function `merge_intervals(intervals)` that merges overlapping closed intervals, with an example.",
    "Write a Python decorator `retry(times)` that calls a function again when it raises an exception, and an example of its use.",
    "Write a Python function that counts the words of a text file and prints the twenty most frequent ones, using collections.",
    "Write a Python dataclass `Money` with an amount in cents and a currency, with addition that refuses different currencies.",
    "Write a Python function that transposes a matrix given as a list of lists, and a unit test for it with unittest.",
    "Write a Python function `binary_search(items, wanted)` that returns an index or -1, and explain its time complexity.",
)
"""One user turn each; the model's chat template is put around them."""

MIXED_PROMPTS = (
    *CODE_PROMPTS[:8],
    "Explain in simple words why the sky is blue.",
    "Write a short letter to a neighbour about a noisy dog.",
    "List five things to take along on a hike in the mountains, one line each.",
    "What is the difference between weather and climate?",
    "Summarise the story of Cinderella in five sentences.",
    "Give me a recipe for pancakes with the amounts for four people.",
    "Who was Marie Curie and what is she known for?",
    "Write a poem of eight lines about autumn.",
    "How does a bicycle stay upright when it moves?",
    "Translate 'good morning' into French, Spanish, German and Italian.",
    "Name three advantages and three disadvantages of working from home.",
    "What should I look at when I buy a used car?",
)
"""Twenty prompts for the comparison of answers, token for token."""
