"""The decode loop: admits requests, runs steps, gives out events, takes hot settings between rounds."""

from __future__ import annotations

import threading
import time
from collections import deque

from engine_launch.embedded import heap
from engine_launch.embedded.admission import EngineLimits, check_request
from engine_launch.embedded.api import (
    EngineError,
    EngineStats,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    OnEvent,
    RoundRecord,
    Settings,
)
from engine_launch.embedded.drafter import Drafter
from engine_launch.embedded.events import CostsMeasured, DecodeBatch, EngineLog, FirstVerify, PrefillBatch, SettingChange
from engine_launch.embedded.hot_settings import apply_change
from engine_launch.embedded.prefix_cache import PrefixCache
from engine_launch.embedded.prefix_sharing import begin_prompts
from engine_launch.embedded.request import RequestState
from engine_launch.embedded.rounds import RoundResult, Rounds
from engine_launch.embedded.sampling import Sampler
from engine_launch.embedded.tally import Tally
from engine_launch.embedded.target import TargetModel
from engine_launch.embedded.tokenizer import Tokenizer

MAX_QUEUED_REQUESTS = 1024
RECENT_ROUNDS = 512
CURVE_CONTEXTS = (64, 1024, 4096)
"""Tokens of context for which the cost of a verify is reported."""


class EmbeddedEngine:
    """An :class:`~engine_launch.embedded.api.Engine` on this machine's CPU; its loop runs in a thread of its own."""

    def __init__(
        self,
        target: TargetModel,
        drafter: Drafter | None,
        tokenizer: Tokenizer | None,
        settings: Settings,
        limits: EngineLimits,
        log: EngineLog,
    ) -> None:
        self.tokenizer = tokenizer
        """The target's tokenizer; ``None`` in engines that are given token ids only (then stop strings are refused)."""
        self.limits = limits
        self._target = target
        self._drafter = drafter
        self._settings = self._startup_settings = settings
        self._log = log
        self._rounds = Rounds(target, drafter)
        self._prefixes = PrefixCache(limits.prefix_cache_bytes)
        self._tally = Tally()
        self._running: list[RequestState] = []
        self._queue: deque[RequestState] = deque()
        self._recent: deque[RoundRecord] = deque(maxlen=RECENT_ROUNDS)
        self._submitted = 0
        self._round = 0
        self._closing = False
        self._failure: BaseException | None = None
        self._wake = threading.Condition(threading.RLock())
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        if settings.automatic:
            self._measure_costs()
        self._thread.start()

    @property
    def settings(self) -> Settings:
        """What is in effect for new rounds."""
        return self._settings

    @property
    def startup_settings(self) -> Settings:
        """What the engine was started with."""
        return self._startup_settings

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and answer together."""
        return self.limits.context_length

    @property
    def alive(self) -> bool:
        """Whether the decode loop runs."""
        return self._failure is None and self._thread.is_alive()

    def submit(self, request: GenerateRequest, on_event: OnEvent) -> None:
        """Queue a request (see :meth:`Engine.submit <engine_launch.embedded.api.Engine.submit>`).

        Raises:
            EngineError: it can never run here, or the queue is full; nothing was queued.
        """
        check_request(request, self.limits, self._settings, self._target.config.vocab_size, self.tokenizer is not None)
        sampling = request.sampling
        stop_ids = set(sampling.stop_token_ids)
        if self.tokenizer is not None and not sampling.ignore_eos:
            stop_ids.add(self.tokenizer.eos_token_id)
        detokenizer = self.tokenizer.detokenizer() if self.tokenizer is not None and sampling.stop else None
        with self._wake:
            if self._failure is not None:
                raise EngineUnavailable(f"the engine has stopped after an internal error: {self._failure}")
            if self._closing:
                raise EngineUnavailable("the engine is shutting down")
            if len(self._queue) >= MAX_QUEUED_REQUESTS:
                raise EngineUnavailable(f"the queue is full ({MAX_QUEUED_REQUESTS} requests wait)")
            if any(state.rid == request.rid for state in (*self._running, *self._queue)):
                raise EngineError(f"a request with the id {request.rid!r} is already running")
            self._submitted += 1
            sampler = Sampler(sampling, default_seed=self.limits.random_seed + self._submitted)
            state = RequestState(request, on_event, sampler=sampler, stop_ids=frozenset(stop_ids), detokenizer=detokenizer)
            self._queue.append(state)
            self._wake.notify_all()

    def abort(self, rid: str) -> bool:
        """End a queued or running request; False when it is not there."""
        with self._wake:
            for state in (*self._running, *self._queue):
                if state.rid == rid and state.finish is None:
                    state.abort_requested = True
                    self._wake.notify_all()
                    return True
        return False

    def change(self, name: str, value: float) -> bool:
        """Change one hot setting; rounds that begin afterwards use it. Logs a line either way."""
        with self._wake:
            outcome = apply_change(self._settings, self._startup_settings, name, value)
            if outcome.accepted:
                self._settings = outcome.settings
        self._log.setting_changed(SettingChange(name, outcome.old, value, outcome.accepted, outcome.reason))
        return outcome.accepted

    def flush_cache(self) -> bool:
        """Forget what earlier requests left for later ones, and give the memory back; False while requests run, as in SGLang."""
        with self._wake:
            if self._running or self._queue:
                return False
            self._prefixes.clear()
            heap.trim()
            return True

    def stats(self) -> EngineStats:
        """A snapshot of all counters."""
        with self._wake:
            tally, costs = self._tally, self._rounds.costs
            running = list(self._running)
            return EngineStats(
                running=len(running),
                queued=len(self._queue),
                used_tokens=self._used_tokens(),
                max_total_num_tokens=self.limits.max_total_num_tokens,
                prompt_tokens_total=tally.prompt_tokens,
                generation_tokens_total=tally.generation_tokens,
                requests_total=tally.requests,
                aborted_total=tally.aborted,
                verify_calls_total=tally.verify_calls,
                realtime_decode_tokens_total=tally.decode_tokens,
                realtime_prefill_tokens_total=tally.prefill_tokens,
                cached_tokens_total=tally.cached_tokens,
                accept_histogram=tuple(tally.spec.histogram),
                gen_throughput=tally.gen_throughput,
                accept_length=tally.accept_length,
                accept_rate=tally.accept_rate,
                avg_accept_length=tally.average_accept_length,
                draft_kv_bytes=sum(state.draft.allocated_bytes for state in running if state.draft is not None),
                target_kv_bytes=sum(state.kv.allocated_bytes for state in running if state.kv is not None),
                weight_bytes=self._target.weight_bytes,
                draft_weight_bytes=0 if self._drafter is None else self._drafter.weight_bytes,
                round_seconds=dict(self._rounds.seconds),
                rounds=self._rounds.rounds,
                avg_tree_nodes=tally.average_tree_nodes,
                verify_curves={} if costs is None else {context: costs.curve(context) for context in CURVE_CONTEXTS},
                prefix_entries=len(self._prefixes),
                prefix_bytes=self._prefixes.bytes,
            )

    def _used_tokens(self) -> int:
        return sum(state.kv.length for state in self._running if state.kv is not None)

    def recent_rounds(self, limit: int) -> tuple[RoundRecord, ...]:
        """The newest round records of requests that asked for them, oldest first."""
        with self._wake:
            return tuple(self._recent)[-limit:] if limit > 0 else ()

    def close(self) -> None:
        """Stop after the current round; unfinished requests end with ``abort``."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _loop(self) -> None:
        try:
            while self._wait_for_work():
                self._prefill_step()
                self._decode_step()
        except Exception as error:
            # Whatever broke, clients must not wait for ever: they are told, and later ones are refused.
            with self._wake:
                self._failure = error
            self._log.failed(error)
            self._end_all("the engine stopped after an internal error")
        else:
            self._end_all("the engine was shut down")

    def _wait_for_work(self) -> bool:
        """Admit what fits; sleep while there is nothing to do. False when the engine is to stop."""
        while True:
            with self._wake:
                if self._closing:
                    return False
                aborted = [state for state in (*self._running, *self._queue) if state.abort_requested]
                if not aborted:
                    self._admit()
                    if self._running:
                        return True
                    self._tally.idle()
                    self._wake.wait()
            # Listeners are called without the lock: one may wait for a thread that asks for figures.
            for state in aborted:
                self._end(state, FinishReason("abort", message="the request was aborted"))

    def _end(self, state: RequestState, reason: FinishReason) -> None:
        state.finish = reason
        self._release(state)
        state.send(())

    def _release(self, state: RequestState) -> None:
        """Free a finished request's memory and count it."""
        with self._wake:
            if state in self._running:
                self._running.remove(state)
            elif state in self._queue:
                self._queue.remove(state)
            if state.output_ids and state.kv is not None and self._failure is None:
                tokens = (*state.request.input_ids, *state.output_ids)
                self._prefixes.add(tokens, state.kv, state.prompt_stores, state.draft)
            state.kv = state.draft = None
            state.prompt_stores = ()
            self._tally.finished(state)

    def _end_all(self, message: str) -> None:
        with self._wake:
            states = [*self._running, *self._queue]
        for state in states:
            self._end(state, FinishReason("abort", message=message))

    def _admit(self) -> None:
        reserved = sum(len(s.request.input_ids) + s.request.sampling.max_new_tokens for s in self._running)
        while self._queue and len(self._running) < self.limits.max_running_requests:
            state = self._queue[0]
            need = len(state.request.input_ids) + state.request.sampling.max_new_tokens
            if reserved + need > self.limits.max_total_num_tokens:
                return
            reserved += need
            self._queue.popleft()
            # Room for the widest pass behind the last token; a later, wider tree makes the cache grow.
            rows = max(self._settings.block_size, self._settings.largest_tree + 1)
            state.kv = self._target.new_kv(need + rows)
            state.draft = None if self._drafter is None else self._drafter.new_kv(self._settings.draft_window)
            state.admitted()
            self._running.append(state)

    def _prefill_step(self) -> None:
        """Run at most one chunk of prompt tokens, over as many waiting requests as it holds."""
        ends = begin_prompts(self._running, self._prefixes)
        room = self.limits.chunked_prefill_size
        states: list[RequestState] = []
        chunks: list[int] = []
        for state in self._running:
            if state.begun and state.prompt_left and room:
                states.append(state)
                end = ends.get(state.rid, len(state.request.input_ids))
                chunks.append(min(end - state.prefilled, room))
                room -= chunks[-1]
        if not states:
            return
        new = [state for state in states if state.prefilled == state.cached_tokens]
        begin = time.perf_counter()
        finished = self._rounds.prefill(states, chunks)
        elapsed = time.perf_counter() - begin
        with self._wake:
            cached = sum(state.cached_tokens for state in new)
            self._tally.prefilled(sum(chunks), cached)
            event = PrefillBatch(
                new_sequences=len(new),
                new_tokens=sum(chunks),
                cached_tokens=cached,
                used_tokens=self._used_tokens(),
                max_total_num_tokens=self.limits.max_total_num_tokens,
                running=len(self._running) - len(states),
                queued=len(self._queue),
                pending_tokens=sum(state.prompt_left for state in self._running),
                input_throughput=sum(chunks) / elapsed if elapsed > 0 else 0.0,
            )
        self._log.prefill_batch(event)
        for state, token in finished:
            if state.draft is not None and self._prefixes.enabled:
                state.prompt_stores = state.draft.snapshot()
            self._deliver(state, [token], None)

    def _decode_step(self) -> None:
        """One round over every request whose prompt is done."""
        states = [state for state in self._running if state.prompt_left == 0]
        if not states:
            return
        settings = self._settings
        self._shrink_draft_caches(states, settings)
        if settings.automatic:
            self._measure_costs()
        self._tally.busy()
        self._round += 1
        results = self._rounds.decode(states, settings, self._round)
        with self._wake:
            first = self._tally.first_verify_is_due and any(result.verified for result in results)
        for result in results:
            if result.verified:
                result.state.spec.add(result.tree.nodes, len(result.path) - 1)
        counts = [len(result.state.emit(result.tokens)) for result in results]
        with self._wake:
            self._tally.decoded(results, sum(counts))
            self._recent.extend(self._rounds.records.values())
        for result, count in zip(results, counts, strict=True):
            self._send(result.state, result.tokens[:count], self._rounds.records.get(result.state.rid))
        if first:
            correct = tuple(len(result.path) - 1 for result in results if result.verified)
            self._log.first_verify(FirstVerify(settings.algorithm, correct))
        self._log_decode(results)

    def _deliver(self, state: RequestState, tokens: list[int], record: RoundRecord | None) -> None:
        self._send(state, state.emit(tokens), record)

    def _send(self, state: RequestState, tokens: tuple[int, ...], record: RoundRecord | None) -> None:
        if state.finish is not None:
            self._release(state)
        state.send(tokens, record)

    def _measure_costs(self) -> None:
        if self._rounds.costs is None:
            begin = time.perf_counter()
            costs = self._rounds.measured_costs()
            curves = {context: costs.curve(context) for context in CURVE_CONTEXTS}
            self._log.costs_measured(CostsMeasured(time.perf_counter() - begin, curves, 1e3 * costs.drafting))

    def _shrink_draft_caches(self, states: list[RequestState], settings: Settings) -> None:
        for state in states:
            if state.draft is not None:
                state.draft.shrink(settings.draft_window)

    def _log_decode(self, results: list[RoundResult]) -> None:
        with self._wake:
            if not self._tally.close_interval(self.limits.decode_log_interval):
                return
            verified = self._tally.interval_verifies > 0
            event = DecodeBatch(
                running=len(results),
                queued=len(self._queue),
                used_tokens=self._used_tokens(),
                max_total_num_tokens=self.limits.max_total_num_tokens,
                accept_length=self._tally.accept_length if verified else None,
                accept_rate=self._tally.accept_rate if verified else None,
                gen_throughput=self._tally.gen_throughput,
                draft_kv_bytes=sum(s.draft.allocated_bytes for s in self._running if s.draft is not None),
            )
        self._log.decode_batch(event)
