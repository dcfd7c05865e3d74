"""The ring of the draft KV pool against a model that remembers what every row holds."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from engine_launch.sglang_plugin.ring import DraftRing

BLOCK = 4
Content = tuple[int, int]
"""A request's number and a position; what a row of the pool holds."""


class Request(SimpleNamespace):
    """What the ring looks at of SGLang's request, and what the test knows of it besides."""

    number: int
    req_pool_idx: int | None
    length: int


class Server:
    """A scheduler with a prefix cache that finds as much as it likes, and a pool whose rows say what was written there."""

    def __init__(self, window: int, entries: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.ring = DraftRing(window, BLOCK, entries, "cpu")
        self.pool: dict[int, Content] = {}
        self.free = list(range(1, entries + 1))
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.numbers = 0

    def admit(self, prompt: int, found: int) -> None:
        """A new request of which the cache has found ``found`` tokens; it is prefilled in chunks."""
        self.numbers += 1
        self._start(Request(number=self.numbers, req_pool_idx=None, length=found), prompt)

    def _start(self, req: Request, until: int) -> None:
        if not self.free:
            return
        req.req_pool_idx = self.free.pop(self.random.randrange(len(self.free)))
        while req.length < until:
            chunk = min(until - req.length, self.random.choice((1, 3, 9, 40)))
            self.prefill([(req, chunk)])
        self.running.append(req)

    def prefill(self, batch: list[tuple[Request, int]]) -> None:
        reqs = [req for req, _ in batch]
        tokens = [(req.number, req.length + i) for req, extend in batch for i in range(extend)]
        written = self.ring.prefill(reqs, [req.length for req in reqs], [extend for _, extend in batch])
        index = range(len(tokens)) if written.kept is None else written.kept.tolist()
        rows = written.rows.tolist()
        assert len(set(rows)) == len(rows), "a scatter does not say which of two writes wins"
        self.pool.update(zip(rows, (tokens[i] for i in index), strict=True))
        for req, extend in batch:
            req.length += extend

    def decode(self, window: int) -> None:
        """One round of all running requests: the drafter looks, writes its block, and some of it is committed."""
        self.ring.decoded(self.running)
        for req in self.running:
            self.look(req, window)
            assert req.req_pool_idx is not None
            for i in range(BLOCK):
                self.pool[self.ring.row(req.req_pool_idx, req.length + i)] = (-1, -1)
        for req in self.running:
            assert req.req_pool_idx is not None
            committed = self.random.randint(1, BLOCK)
            for i in range(committed):
                self.pool[self.ring.row(req.req_pool_idx, req.length + i)] = (req.number, req.length + i)
            req.length += committed

    def look(self, req: Request, window: int) -> int:
        """Every row that the drafter sees holds this request's own token; returns how many it sees."""
        entry = req.req_pool_idx
        assert entry is not None
        first = max(int(self.ring.first[entry]), req.length - window)
        seen = [self.pool.get(self.ring.row(entry, position)) for position in range(first, req.length)]
        assert seen == [(req.number, position) for position in range(first, req.length)]
        return len(seen)

    def end(self, retract: bool) -> None:
        if self.running:
            req = self.running.pop(self.random.randrange(len(self.running)))
            assert req.req_pool_idx is not None
            self.free.append(req.req_pool_idx)
            req.req_pool_idx = None
            if retract:
                self.waiting.append(req)

    def readmit(self) -> None:
        """A retracted request comes back, its own tokens found in the cache as far as they are still there."""
        if self.waiting and self.free:
            req = self.waiting.pop()
            until, req.length = req.length, self.random.randrange(req.length)
            self._start(req, until)


@pytest.mark.parametrize("seed", range(40))
def test_the_drafter_sees_its_own_requests_tokens_and_nothing_else(seed: int) -> None:
    server = Server(window=random.Random(seed).choice((4, 7, 16)), entries=3, seed=seed)
    for _ in range(80):
        step = server.random.random()
        if step < 0.25:
            prompt = server.random.randint(1, 60)
            server.admit(prompt, server.random.choice((0, server.random.randrange(prompt))))
        elif step < 0.35:
            server.end(retract=server.random.random() < 0.5)
        elif step < 0.45:
            server.readmit()
        else:
            server.decode(server.random.randint(BLOCK, server.ring.window))


@pytest.mark.parametrize("prompt", [1, 5, 16, 17, 50])
def test_without_prefix_hits_the_whole_window_is_seen_from_the_first_round_on(prompt: int) -> None:
    server = Server(window=16, entries=2, seed=prompt)
    server.admit(prompt, 0)
    for _ in range(30):
        req = server.running[0]
        assert server.look(req, 16) == min(req.length, 16)
        server.decode(16)


def test_a_hit_that_leaves_the_tail_to_be_computed_costs_no_view_and_is_counted() -> None:
    server = Server(window=16, entries=2, seed=1)
    req = Request(number=1, req_pool_idx=1, length=50 - server.ring.tail)
    for chunk in (5, 8, 3):
        server.prefill([(req, chunk)])
    assert server.look(req, 16) == 16
    server.ring.decoded([req])
    assert server.ring.counts() == {"prefix_hits": 1, "tail_tokens": 16, "short_views": 0}


def test_a_hit_that_leaves_less_shows_less_until_the_window_has_passed() -> None:
    ring = DraftRing(16, BLOCK, 1, "cpu")
    req = Request(number=1, req_pool_idx=1, length=40)
    ring.prefill([req], [40], [3])
    assert int(ring.first[1]) == 40
    ring.decoded([req])
    assert ring.counts() == {"prefix_hits": 1, "tail_tokens": 3, "short_views": 1}


def test_what_another_request_has_left_in_the_entry_is_not_taken_for_a_first_chunk() -> None:
    ring = DraftRing(16, BLOCK, 1, "cpu")
    ring.prefill([Request(number=1, req_pool_idx=1, length=0)], [0], [10])
    ring.prefill([Request(number=2, req_pool_idx=1, length=10)], [10], [2])
    assert int(ring.first[1]) == 10


def test_a_request_that_has_decoded_begins_anew_when_it_is_prefilled_again() -> None:
    ring = DraftRing(16, BLOCK, 1, "cpu")
    req = Request(number=1, req_pool_idx=1, length=0)
    ring.prefill([req], [0], [10])
    ring.decoded([req])
    ring.prefill([req], [10], [2])
    assert int(ring.first[1]) == 10


def test_rings_lie_side_by_side_behind_the_padding_row() -> None:
    ring = DraftRing(12, BLOCK, 3, "cpu")
    rows = {ring.row(entry, position) for entry in (1, 2, 3) for position in range(16)}
    assert rows == set(range(1, ring.total + 1))
    assert ring.first.dtype == torch.int64


def test_a_request_that_comes_back_before_it_has_decoded_begins_anew_too() -> None:
    ring = DraftRing(16, BLOCK, 1, "cpu")
    req = Request(number=1, req_pool_idx=1, length=0)
    for begin in (0, 10, 20):
        ring.prefill([req], [begin], [10])
    assert int(ring.first[1]) == 0
    ring.prefill([req], [12], [2])
    assert int(ring.first[1]) == 12
