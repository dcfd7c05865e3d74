"""The engine's counters: totals since the start, and the interval behind each decode line."""

from __future__ import annotations

import time

from engine_launch.embedded.request import RequestState, SpecCounts
from engine_launch.embedded.rounds import RoundResult


class Tally:
    """Counts what happened. Written by the engine's thread, read under the engine's lock."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        """Of finished requests."""
        self.generation_tokens = 0
        """Of finished requests, as SGLang counts."""
        self.requests = 0
        self.aborted = 0
        self.verify_calls = 0
        """Of finished requests."""
        self.decode_tokens = 0
        """Grows with every round."""
        self.prefill_tokens = 0
        self.cached_tokens = 0
        """Prompt tokens that were there already."""
        self.spec = SpecCounts()
        """Of all verifies since the start."""
        self.committed = 0
        """Tokens committed by all verifies since the start, before answers are cut."""
        self.gen_throughput = 0.0
        self.accept_length = 0.0
        self.accept_rate = 0.0
        self.interval_verifies = 0
        """Verifies in the latest complete interval."""
        self._busy_since: float | None = None
        self._interval_busy = 0.0
        self._interval_rounds = 0
        self._interval_tokens = 0
        self._interval_spec = SpecCounts()

    @property
    def average_accept_length(self) -> float:
        """Tokens per verify since the start; 0 before the first."""
        return self.committed / self.spec.verifies if self.spec.verifies else 0.0

    @property
    def average_tree_nodes(self) -> float:
        """Drafts per verify since the start; 0 before the first."""
        return self.spec.proposed / self.spec.verifies if self.spec.verifies else 0.0

    @property
    def first_verify_is_due(self) -> bool:
        return self.spec.verifies == 0

    def prefilled(self, tokens: int, cached: int) -> None:
        """Prompt tokens went through the target, and so many others of their requests need not."""
        self.prefill_tokens += tokens
        self.cached_tokens += cached

    def decoded(self, results: list[RoundResult], emitted: int) -> None:
        """A round ended that emitted so many tokens."""
        for result in results:
            if result.verified:
                accepted = len(result.path) - 1
                self.spec.add(result.tree.nodes, accepted)
                self._interval_spec.add(result.tree.nodes, accepted)
                self.committed += accepted + 1
        self.decode_tokens += emitted
        self._interval_tokens += emitted
        self._interval_rounds += 1

    def busy(self) -> None:
        """Decoding goes on, or starts after idle time."""
        if self._busy_since is None:
            self._busy_since = time.perf_counter()

    def idle(self) -> None:
        """Nothing runs any more: the interval in progress waits, and the idle time will not count."""
        if self._busy_since is not None:
            self._interval_busy += time.perf_counter() - self._busy_since
            self._busy_since = None

    def close_interval(self, rounds: int) -> bool:
        """End the interval if it has this many rounds; then the public figures are those of the interval."""
        if self._interval_rounds < rounds:
            return False
        self.idle()
        self.gen_throughput = self._interval_tokens / self._interval_busy if self._interval_busy > 0 else 0.0
        counts = self._interval_spec
        if counts.verifies:
            self.accept_length = (counts.correct + counts.verifies) / counts.verifies
            self.accept_rate = counts.correct / counts.proposed if counts.proposed else 0.0
        self.interval_verifies = counts.verifies
        self._interval_rounds = 0
        self._interval_tokens = 0
        self._interval_busy = 0.0
        self._interval_spec = SpecCounts()
        self.busy()
        return True

    def finished(self, state: RequestState) -> None:
        """A request ended. One that was aborted counts as a request only if it had begun to answer."""
        aborted = state.finish is not None and state.finish.type == "abort"
        self.aborted += aborted
        if aborted and not state.output_ids:
            return
        self.requests += 1
        self.prompt_tokens += len(state.request.input_ids)
        self.generation_tokens += len(state.output_ids)
        self.verify_calls += state.spec.verifies
