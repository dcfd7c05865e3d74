"""Makes the training text: the target answers prompts, thousands at a time, on one GPU.

``python -m engine_launch.training.generate MODEL.gguf POOL.jsonl OUT_DIR --seconds 200 --long-seconds 200`` writes shards of
token ids: first of short sequences, then of long contexts, whose documents are partly made of the short answers.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import torch

from engine_launch.training.command import run
from engine_launch.training.dataset import Record, write_shards
from engine_launch.training.decode import ANSWER, DISCARDED, DONE, PROMPT, Attention, Seed, SlotDecoder, attention_reference
from engine_launch.training.long_seeds import DOCUMENT_ANSWER, LongSource
from engine_launch.training.prompts import DOCUMENT_TOKENS, Kind, Opening, open_tokenizer, read_pool
from engine_launch.training.target import IM_END, Target, load_target

SUFFIX = (198, 1, 520, 9531, 198)
"""What follows the end of a user turn: newline, ``<|im_start|>``, ``ass`` ``istant``, newline."""
NEXT_USER = (198, 1, 4093, 198)
"""The same up to the next user turn."""
KIND_WEIGHTS = {Kind.CHAT: 0.30, Kind.CODE: 0.34, Kind.FUNCTION: 0.20, Kind.RAW: 0.11, Kind.LONG: 0.05}
ENDLESS = (Kind.CHAT, Kind.CODE, Kind.RAW)
"""Kinds whose openings the target completes anew each time; the others are whole prompts, dealt once each."""
ANSWER_TEMPERATURES = (0.0,) * 16 + (0.7,) * 2 + (1.0,) * 2
SECOND_TURN_SHARE = 0.15
MIN_ANSWER = 24
STEPS_BETWEEN_REFILLS = 24


class Source(Protocol):
    """Where seeds come from."""

    def next(self) -> Seed:
        """The next seed; there is always one."""

    def finished(self, seed: Seed, tokens: tuple[int, ...]) -> None:
        """Called with every sequence that has come to its end."""


class SeedSource:
    """Deals seeds: kinds by weight, closed prompts once each, second turns of finished conversations in between."""

    def __init__(self, pool: Iterable[Opening], rng: random.Random, answer_limit: int) -> None:
        self._rng = rng
        self._limit = answer_limit
        self._by_kind: dict[Kind, list[Opening]] = {k: [] for k in Kind}
        for opening in pool:
            self._by_kind[opening.kind].append(opening)
        if not any(self._by_kind[kind] for kind in ENDLESS):
            raise ValueError("the pool has no openings that may be used again; make it with engine_launch.training.prompts")
        self._follow_ups: list[tuple[int, ...]] = []

    def next(self) -> Seed:
        """The next seed."""
        rng = self._rng
        temperature = rng.choice(ANSWER_TEMPERATURES)
        limit = self._limit * (2 if rng.random() < 0.1 else 1)
        if self._follow_ups:
            given = self._follow_ups.pop()
            return Seed(given, True, len(given) + 160, 1.0, temperature, limit, Kind.SECOND_TURN)
        kinds = [k for k in KIND_WEIGHTS if self._by_kind[k]]
        kind = rng.choices(kinds, [KIND_WEIGHTS[k] for k in kinds])[0]
        openings = self._by_kind[kind]
        opening = rng.choice(openings) if kind in ENDLESS else openings.pop()
        n = len(opening.tokens)
        if opening.open_turn:
            return Seed(opening.tokens, True, n + 260, 1.0, temperature, limit, kind)
        prompt = n + rng.randint(20, 120) if kind is Kind.RAW else n
        return Seed(opening.tokens, False, prompt, 0.9, temperature, limit, kind)

    def finished(self, seed: Seed, tokens: tuple[int, ...]) -> None:
        """Maybe go on with a conversation that the target has ended properly."""
        wanted = seed.kind in (Kind.CHAT, Kind.CODE) and tokens[-1] == IM_END and len(tokens) < 600
        if wanted and self._rng.random() < SECOND_TURN_SHARE:
            self._follow_ups.append(tokens + NEXT_USER)


def answer_all(decoder: SlotDecoder, prompts: list[tuple[int, ...]], answer_limit: int, temperature: float = 0.0) -> list[Record]:
    """Answers to complete ``prompts``, in their order, greedy by default. There must be a slot for each."""
    seeds = [Seed(p, False, len(p), 0.0, temperature, answer_limit, 0) for p in prompts]
    decoder.load(list(range(len(seeds))), seeds)
    while bool((decoder.phase[: len(seeds)] == ANSWER).any()):
        decoder.run(STEPS_BETWEEN_REFILLS)
    return collect(decoder, list(range(len(seeds))), seeds)


def collect(decoder: SlotDecoder, slots: list[int], seeds: list[Seed]) -> list[Record]:
    """What stands in ``slots`` now."""
    at = torch.tensor(slots, device=decoder.tokens.device)
    tokens = decoder.tokens[at].cpu().tolist()
    ends = (decoder.pos[at] + 1).tolist()
    starts = decoder.first_answer[at].tolist()
    return [
        Record(tuple(row[:end]), start, seed.kind, seed.answer_temperature)
        for row, end, start, seed in zip(tokens, ends, starts, seeds, strict=True)
    ]


def generate(decoder: SlotDecoder, source: Source, goes_on: Callable[[], bool]) -> list[Record]:
    """Keep all slots busy while ``goes_on()``; unfinished answers are kept as far as they got."""
    seeds = [source.next() for _ in range(decoder.slots)]
    decoder.load(list(range(decoder.slots)), seeds)
    records: list[Record] = []
    begun = reported = time.monotonic()
    while goes_on():
        decoder.run(STEPS_BETWEEN_REFILLS)
        phase = decoder.phase.tolist()
        done = [i for i, p in enumerate(phase) if p == DONE]
        for slot, record in zip(done, collect(decoder, done, [seeds[i] for i in done]) if done else [], strict=True):
            if record.answer_tokens >= MIN_ANSWER:
                records.append(record)
            source.finished(seeds[slot], record.tokens)
        free = done + [i for i, p in enumerate(phase) if p == DISCARDED]
        if free:
            fresh = [source.next() for _ in free]
            decoder.load(free, fresh)
            for slot, seed in zip(free, fresh, strict=True):
                seeds[slot] = seed
        if time.monotonic() - reported > 20:
            reported = time.monotonic()
            made = sum(r.answer_tokens for r in records)
            print(f"{reported - begun:.0f} s: {len(records)} sequences, {made} answer tokens", flush=True)
    answered = decoder.first_answer.tolist()
    running = [i for i, p in enumerate(decoder.phase.tolist()) if p == ANSWER or (p == PROMPT and answered[i])]
    kept = collect(decoder, running, [seeds[i] for i in running]) if running else []
    return records + [r for r in kept if r.answer_tokens >= MIN_ANSWER]


def gpu_attention(device: torch.device) -> Attention:
    """The Triton kernels on a GPU, plain PyTorch elsewhere."""
    if device.type != "cuda":
        return attention_reference
    from engine_launch.training.kernels import decode_attention

    return decode_attention


def make_decoder(target: Target, slots: int, capacity: int) -> SlotDecoder:
    """A decoder on the target's device, with its step captured where that is a GPU."""
    device = target.embedding.device
    if device.type == "cuda":
        torch.cuda.empty_cache()  # The caches of an earlier decoder are most of the GPU's memory.
    decoder = SlotDecoder(target, slots, capacity, SUFFIX, gpu_attention(device))
    if device.type == "cuda":
        decoder.capture()
    return decoder


def main() -> None:
    """Generate and write shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("pool", type=Path, help="openings written by engine_launch.training.prompts")
    parser.add_argument("out", type=Path)
    parser.add_argument("--held-out", type=Path, help="tokenised held-out prompts; their greedy answers are written too")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--slots", type=int, default=2048)
    parser.add_argument("--capacity", type=int, default=2048, help="positions per slot")
    parser.add_argument("--answer-limit", type=int, default=384)
    parser.add_argument("--long-seconds", type=float, default=0, help="time for long contexts afterwards")
    parser.add_argument("--long-slots", type=int, default=768)
    parser.add_argument("--long-capacity", type=int, default=6144)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.long_seconds and args.long_capacity < DOCUMENT_TOKENS[1] + DOCUMENT_ANSWER:
        parser.error(
            f"--long-capacity must leave room for a document and an answer: {DOCUMENT_TOKENS[1] + DOCUMENT_ANSWER} or more"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    target = load_target(args.model).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    args.out.mkdir(parents=True, exist_ok=True)
    if any(args.out.glob("train-*.npz")):
        parser.error(f"{args.out} holds shards of an earlier run, which would be trained on too: name another folder")
    if args.held_out:
        from engine_launch.training.heldout import answer_sets, read_prompts

        answer_sets(target, read_prompts(args.held_out), args.out)
    pool = read_pool(args.pool)
    source = SeedSource(pool, random.Random(args.seed), args.answer_limit)
    records = generate(make_decoder(target, args.slots, args.capacity), source, until(args.seconds))
    write_shards(records, args.out, "short")
    summarise("short", records, args.seconds)
    if args.long_seconds:
        long = LongSource(open_tokenizer(args.model), pool, records, ANSWER_TEMPERATURES, random.Random(args.seed + 1))
        records = generate(make_decoder(target, args.long_slots, args.long_capacity), long, until(args.long_seconds))
        write_shards(records, args.out, "long")
        summarise("long", records, args.long_seconds)


def until(seconds: float) -> Callable[[], bool]:
    """True until ``seconds`` from now have passed."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def summarise(name: str, records: list[Record], seconds: float) -> None:
    """Print what was made."""
    made, total = sum(r.answer_tokens for r in records), sum(len(r.tokens) for r in records)
    print(
        f"{name}: {len(records)} sequences, {made} tokens from the first answer on ({made / seconds:.0f} tok/s), {total} in all"
    )
    for kind in Kind:
        mine = [r for r in records if r.kind == kind]
        print(f"  {kind.name.lower()}: {len(mine)} sequences, {sum(r.answer_tokens for r in mine)} such tokens", flush=True)


if __name__ == "__main__":
    run(main)
