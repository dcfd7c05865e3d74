"""One step over a batch of requests: a chunk of prompt, or a round of draft, verify and commit.

A plain decoding step is a round whose tree is the root alone, so requests that speculate and requests that do not share one
pass over the target's weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_launch import tree as ddtree
from engine_launch.embedded.api import AUTO_BUDGET_MAX, Algorithm, RoundRecord, Settings
from engine_launch.embedded.auto_budget import Growing, Settled, grow_while_it_pays
from engine_launch.embedded.cost_tracking import CostTracker
from engine_launch.embedded.drafter import ContextRows, Drafter, DraftQuery
from engine_launch.embedded.request import Mode, RequestState
from engine_launch.embedded.target import Segment, TargetModel
from engine_launch.embedded.target_kv import TargetKV
from engine_launch.embedded.verify_cost import CostModel, measure
from engine_launch.embedded.vocabulary import best_candidates, best_token
from engine_launch.tree import ROOT_ONLY, Tree

ROUND_PARTS = ("append", "draft", "topk", "build", "verify", "commit")


@dataclass(frozen=True)
class RoundResult:
    """What one round brought one request."""

    state: RequestState
    tree: Tree
    path: tuple[int, ...]
    """Accepted nodes, root included."""
    bonus: int
    verified: bool
    """Whether it was a verify (a plain step is none)."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Committed by the target: accepted drafts and the bonus token."""
        return (*(self.tree.tokens[node - 1] for node in self.path[1:]), self.bonus)


class Rounds:
    """Runs steps on the two models. Holds no request; keeps account of where the time goes."""

    def __init__(self, target: TargetModel, drafter: Drafter | None) -> None:
        self._target = target
        self._drafter = drafter
        self._taps = () if drafter is None else drafter.taps
        self.seconds = dict.fromkeys(ROUND_PARTS, 0.0)
        """Total per part of the rounds that verified something, since the start."""
        self.rounds = 0
        """Rounds that :attr:`seconds` sums up. Plain steps are left out: they would pass for cheap verifies."""
        self._spent = dict.fromkeys(ROUND_PARTS, 0.0)
        self._tracker: CostTracker | None = None
        self.records: dict[str, RoundRecord] = {}
        """Of the latest round, by request id."""

    @torch.inference_mode()
    def prefill(self, states: Sequence[RequestState], chunks: Sequence[int]) -> list[tuple[RequestState, int]]:
        """Run the next ``chunks[i]`` prompt tokens of each request; returns those whose prompt is done, and their first token."""
        ids: list[int] = []
        positions: list[int] = []
        segments: list[Segment] = []
        for state, chunk in zip(states, chunks, strict=True):
            ids += state.request.input_ids[state.prefilled : state.prefilled + chunk]
            positions += range(state.prefilled, state.prefilled + chunk)
            segments.append(Segment(_kv(state), chunk))
        output = self._target.forward(torch.tensor(ids), torch.tensor(positions), segments, self._taps)
        for state, chunk in zip(states, chunks, strict=True):
            _kv(state).commit(range(chunk))
            state.prefilled += chunk
        if output.features is not None:
            self._append(states, torch.split(output.features, list(chunks)))
        ends = torch.tensor(chunks).cumsum(0) - 1
        finished = [index for index, state in enumerate(states) if state.prompt_left == 0]
        logits = self._target.logits(output.hidden[ends[finished]]) if finished else output.hidden[:0]
        return [(states[index], states[index].sampler.choose(row)) for index, row in zip(finished, logits, strict=True)]

    @torch.inference_mode()
    def decode(self, states: Sequence[RequestState], settings: Settings, round_number: int) -> list[RoundResult]:
        """One round for every request: draft where it speculates, verify all in one pass, commit, feed the drafter.

        Round records of requests that asked for them are left in :attr:`records`.
        """
        self._spent = spent = dict.fromkeys(ROUND_PARTS, 0.0)
        modes = [state.mode(settings) for state in states]
        trees = self._propose(states, modes)
        with self._timed("verify"):
            features, rows = self._verify(states, trees)
            results = [
                self._walk(state, tree, mode, logits)
                for state, tree, mode, logits in zip(states, trees, modes, rows, strict=True)
            ]
        starts = [_kv(state).length for state in states]
        with self._timed("commit"):
            for result in results:
                _kv(result.state).commit(result.path)
        if features is not None:
            with self._timed("append"):
                parts = torch.split(features, [tree.width for tree in trees])
                kept = [part[list(result.path)] for part, result in zip(parts, results, strict=True)]
                self._append(states, kept)
        if any(result.verified for result in results):
            self.rounds += 1
            for part, seconds in spent.items():
                self.seconds[part] += seconds
            if self._tracker is not None:
                drafted = sum(result.verified for result in results)
                drafting = spent["draft"] + spent["topk"] + spent["append"]
                self._tracker.observe([tree.width for tree in trees], starts, spent["verify"], drafting, drafted)
        self.records = {
            result.state.rid: _record(result, round_number, start, spent)
            for result, start in zip(results, starts, strict=True)
            if result.state.request.record_rounds and result.verified
        }
        return results

    def _propose(self, states: Sequence[RequestState], modes: Sequence[Mode]) -> list[Tree]:
        trees = [ROOT_ONLY] * len(states)
        drafting = [index for index, mode in enumerate(modes) if mode.algorithm is not Algorithm.PLAIN]
        if not drafting or self._drafter is None:
            return trees
        with self._timed("draft"):
            queries = []
            for index in drafting:
                state = states[index]
                if state.draft is None or state.draft.length != _kv(state).length:
                    raise RuntimeError(f"the draft cache of request {state.rid} is out of step with the target's")
                queries.append(DraftQuery(state.draft, state.last_token))
            logits = self._drafter.draft(queries)
        with self._timed("topk"):
            widest = max(modes[index].topk if modes[index].algorithm is Algorithm.DDTREE else 1 for index in drafting)
            ids_tensor, logprobs_tensor = best_candidates(logits, widest)
            ids, logprobs = ids_tensor.tolist(), logprobs_tensor.tolist()
        with self._timed("build"):
            growing: dict[int, Growing] = {}
            for row, index in enumerate(drafting):
                mode = modes[index]
                if mode.automatic:
                    growth = ddtree.Growth([one[: mode.topk] for one in ids[row]], [one[: mode.topk] for one in logprobs[row]])
                    growing[index] = Growing(growth, _kv(states[index]).length)
                else:
                    trees[index] = self._build(mode, ids[row], logprobs[row])
            if growing:
                settled = [Settled(trees[index], _kv(state).length) for index, state in enumerate(states) if index not in growing]
                grown = grow_while_it_pays(list(growing.values()), settled, self.measured_costs(), AUTO_BUDGET_MAX)
                for index, tree in zip(growing, grown, strict=True):
                    trees[index] = tree
        return trees

    @property
    def costs(self) -> CostModel | None:
        """What rounds cost on this machine, once it has been measured, and as rounds have corrected it since."""
        return None if self._tracker is None else self._tracker.model

    def measured_costs(self) -> CostModel:
        """The same; measured at the first call, which takes about a second.

        Raises:
            RuntimeError: there is no drafter.
        """
        if self._tracker is None:
            if self._drafter is None:
                raise RuntimeError("an automatic budget needs a drafter")
            self._tracker = CostTracker(measure(self._target, self._drafter))
        return self._tracker.model

    def _build(self, mode: Mode, ids: list[list[int]], logprobs: list[list[float]]) -> Tree:
        if mode.algorithm is Algorithm.DFLASH:
            return ddtree.chain([row[0] for row in ids], [row[0] for row in logprobs])
        return ddtree.build([row[: mode.topk] for row in ids], [row[: mode.topk] for row in logprobs], mode.budget)

    def _verify(self, states: Sequence[RequestState], trees: Sequence[Tree]) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        """One target pass over all trees: the features (if there is a drafter) and each request's logits ``[width, V]``."""
        ids: list[int] = []
        positions: list[int] = []
        segments: list[Segment] = []
        for state, tree in zip(states, trees, strict=True):
            kv = _kv(state)
            ids += (state.last_token, *tree.tokens)
            positions += ddtree.positions(tree, kv.length)
            segments.append(Segment(kv, tree.width, None if tree.is_chain else ddtree.visibility(tree)))
        output = self._target.forward(torch.tensor(ids), torch.tensor(positions), segments, self._taps)
        logits = self._target.logits(output.hidden)
        return output.features, torch.split(logits, [tree.width for tree in trees])

    def _walk(self, state: RequestState, tree: Tree, mode: Mode, logits: Tensor) -> RoundResult:
        if state.sampler.greedy:
            best = best_token(logits).tolist()
            path, bonus = ddtree.walk(tree, lambda node: int(best[node]))
        else:
            path, bonus = ddtree.walk(tree, lambda node: state.sampler.choose(logits[node]))
        return RoundResult(state, tree, path, bonus, verified=mode.algorithm is not Algorithm.PLAIN)

    def _append(self, states: Sequence[RequestState], features: Sequence[Tensor]) -> None:
        """Feed the drafter with what was committed, also while speculation is off: it may be switched on again."""
        if self._drafter is None:
            return
        rows = [ContextRows(state.draft, part) for state, part in zip(states, features, strict=True) if state.draft is not None]
        if rows:
            self._drafter.append(rows)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spent[part] += time.perf_counter() - begin


def _kv(state: RequestState) -> TargetKV:
    if state.kv is None:
        raise RuntimeError(f"request {state.rid} was scheduled before it was admitted")
    return state.kv


def _record(result: RoundResult, round_number: int, start: int, seconds: dict[str, float]) -> RoundRecord:
    return RoundRecord(
        round=round_number,
        start=start,
        root=result.state.last_token,
        tokens=result.tree.tokens,
        parents=result.tree.parents,
        logprobs=result.tree.logprobs,
        path=result.path,
        bonus=result.bonus,
        seconds=seconds,
    )
