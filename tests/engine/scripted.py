"""A scripted engine and a byte tokenizer, for tests of what stands around the decode loop.

The engine "answers" each prompt with fixed token ids, in steps of a fixed width, from a thread of its own, like the real
one; the tokenizer is the real class over an alphabet of the 256 bytes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from engine_launch.embedded.api import (
    Algorithm,
    EngineError,
    EngineStats,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    OnEvent,
    RequestStats,
    RoundRecord,
    Settings,
    TokenEvent,
)
from engine_launch.embedded.tokenizer import Tokenizer, TokenizerData, byte_alphabet

EOS = 256
TREE = Settings(Algorithm.DDTREE, True, block_size=8, tree_budget=8, tree_topk=4, draft_window=512, layers_window=512)
CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def byte_tokenizer(chat_template: str | None = CHATML) -> Tokenizer:
    """Token id = byte value; 256 is the end of text."""
    characters = {byte: character for character, byte in byte_alphabet().items()}
    data = TokenizerData(
        model="gpt2",
        pre="gpt-2",
        tokens=(*(characters[byte] for byte in range(256)), "<|end|>"),
        control_ids=(EOS,),
        merges=(),
        bos_token_id=None,
        eos_token_id=EOS,
        add_bos_token=False,
        chat_template=chat_template,
    )
    return Tokenizer.build(data)


@dataclass
class Script:
    """What the engine does with every request."""

    answer: bytes = b"hello world"
    step: int = 3
    """Tokens per verify."""
    pause: float = 0.0
    """Seconds between steps."""
    ends: bool = True
    """End of text after the answer; else it repeats for ever."""
    refuse: str = ""
    """Message with which every request is refused."""


@dataclass
class ScriptedEngine:
    """An ``Engine`` that recites."""

    script: Script = field(default_factory=Script)
    settings: Settings = TREE
    startup_settings: Settings = TREE
    context_length: int = 512
    submitted: list[GenerateRequest] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    changes: list[tuple[str, float]] = field(default_factory=list)
    refused_changes: frozenset[str] = frozenset()
    rounds: list[RoundRecord] = field(default_factory=list)
    closed: bool = False
    alive: bool = True
    decoding: bool = False
    """The count of decoded tokens grows from one look to the next."""
    running: int = 0

    def __post_init__(self) -> None:
        self._decoded = itertools.count(77)
        self._stops: dict[str, threading.Event] = {}
        self._threads: list[threading.Thread] = []

    def reset(self) -> None:
        """Back to the state of a new engine, for the next test of a server that several share."""
        self.script, self.settings, self.alive = Script(), TREE, True
        self.decoding = False
        self.refused_changes = frozenset()
        for kept in (self.submitted, self.aborted, self.changes, self.rounds):
            kept.clear()

    def submit(self, request: GenerateRequest, on_event: OnEvent) -> None:
        if not self.alive:
            raise EngineUnavailable("the engine has stopped")
        if self.script.refuse:
            raise EngineError(self.script.refuse)
        self.submitted.append(request)
        stop = self._stops[request.rid] = threading.Event()
        thread = threading.Thread(target=self._recite, args=(request, on_event, stop), daemon=True)
        self._threads.append(thread)
        thread.start()

    def abort(self, rid: str) -> bool:
        self.aborted.append(rid)
        stop = self._stops.get(rid)
        if stop is None:
            return False
        stop.set()
        return True

    def change(self, name: str, value: float) -> bool:
        if name in self.refused_changes:
            return False
        self.changes.append((name, value))
        fields: dict[str, Callable[[], Settings]] = {
            "speculative_ddtree_budget": lambda: replace(self.settings, tree_budget=int(value)),
            "speculative_ddtree_topk": lambda: replace(self.settings, tree_topk=int(value)),
            "speculative_draft_window_size": lambda: replace(self.settings, draft_window=int(value)),
            "speculation": lambda: replace(self.settings, speculation=bool(value)),
        }
        self.settings = fields[name]()
        return True

    def flush_cache(self) -> bool:
        return self.running == 0

    def stats(self) -> EngineStats:
        return EngineStats(
            running=self.running,
            queued=1,
            used_tokens=100,
            max_total_num_tokens=4096,
            prompt_tokens_total=0,
            generation_tokens_total=0,
            requests_total=0,
            aborted_total=0,
            verify_calls_total=0,
            realtime_decode_tokens_total=next(self._decoded) if self.decoding else 77,
            realtime_prefill_tokens_total=20,
            cached_tokens_total=0,
            accept_histogram=(3, 2, 1),
            gen_throughput=12.5,
            accept_length=2.5,
            accept_rate=0.25,
            avg_accept_length=2.25,
            draft_kv_bytes=1 << 20,
            target_kv_bytes=1 << 24,
            weight_bytes=1 << 29,
            draft_weight_bytes=1 << 25,
            round_seconds={"verify": 1.5},
            rounds=6,
            avg_tree_nodes=7.5,
            verify_curves={64: ((1, 9.5), (9, 13.25)), 1024: ((1, 12.0), (9, 20.0))},
        )

    def recent_rounds(self, limit: int) -> tuple[RoundRecord, ...]:
        return tuple(self.rounds[-limit:])

    def close(self) -> None:
        self.closed = True
        for stop in self._stops.values():
            stop.set()

    def _recite(self, request: GenerateRequest, on_event: OnEvent, stop: threading.Event) -> None:
        self.running += 1
        ids: list[int] = []
        verifies = 0
        finish: FinishReason | None = None
        while finish is None:
            if self.script.pause:
                stop.wait(self.script.pause)
            width = 1 if not ids else self.script.step
            verifies += bool(ids)
            new: list[int] = []
            if stop.is_set():
                finish = FinishReason("abort", message="aborted")
            while finish is None and len(new) < width:
                new.append(self._token(len(ids) + len(new)))
                finish = self._finish(request, [*ids, *new])
            ids += new
            on_event(TokenEvent(request.rid, tuple(new), finish, self._stats(request, ids, verifies)))
        self.running -= 1

    def _token(self, position: int) -> int:
        answer = self.script.answer
        if position < len(answer) or not self.script.ends:
            return answer[position % len(answer)]
        return EOS

    def _finish(self, request: GenerateRequest, ids: Sequence[int]) -> FinishReason | None:
        sampling = request.sampling
        if ids[-1] in {EOS, *sampling.stop_token_ids} and not sampling.ignore_eos:
            return FinishReason("stop", ids[-1])
        text = bytes(i for i in ids if i < 256).decode("utf-8", "replace")
        for word in sampling.stop:
            if word in text:
                return FinishReason("stop", word)
        if len(ids) >= sampling.max_new_tokens:
            return FinishReason("length")
        return None

    def _stats(self, request: GenerateRequest, ids: Sequence[int], verifies: int) -> RequestStats:
        plain = self.settings.algorithm is Algorithm.PLAIN or request.overrides.speculative is False
        return RequestStats(
            prompt_tokens=len(request.input_ids),
            completion_tokens=len(ids),
            cached_tokens=0,
            spec_verify_ct=0 if plain else verifies,
            spec_num_correct_drafts=0 if plain else max(0, len(ids) - 1 - verifies),
            spec_num_proposed_drafts=0 if plain else 8 * verifies,
            spec_correct_drafts_histogram=() if plain else (0, 0, verifies),
            queue_time=0.001,
            prefill_seconds=0.002,
            decode_seconds=0.01 * verifies,
        )


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Poll until ``condition`` holds; whether it came to hold in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()
