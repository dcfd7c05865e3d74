"""Draft caches: rings keep exactly what their layers may look at, memory is what the arithmetic says and is really freed."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from engine_launch.embedded.draft_kv import ContextStore, DraftKV
from engine_launch.spec.kv import draft_kv_bytes
from tests.engine.models import drafter_config

BLOCK = 4


def numbered(first: int, count: int, layers: int = 1) -> Tensor:
    """Context rows that carry their own position as value: ``[2, layers, 1, count, 2]``."""
    values = torch.arange(first, first + count, dtype=torch.float32)
    return values[None, None, None, :, None].expand(2, layers, 1, count, 2).clone()


def held(store: ContextStore) -> list[int]:
    """Positions actually stored in the context slots, in slot order."""
    return [int(value) for value in store.rows[0, 0, 0, : store.visible, 0]]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(5, 30))
def test_a_ring_keeps_the_newest_tokens_and_knows_where_each_one_is(appends: list[int], limit: int) -> None:
    store = ContextStore([0], (1, 2), BLOCK, limit, torch.float32)
    total = 0
    for count in appends:
        store.append(numbered(total, count))
        total += count
        assert sorted(held(store)) == list(range(max(0, total - limit), total))
        assert held(store) == store.slot_positions().tolist()
        assert store.rows.shape[3] <= limit + BLOCK


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6))
def test_a_store_without_limit_keeps_everything(appends: list[int]) -> None:
    store = ContextStore([0], (1, 2), BLOCK, None, torch.float32)
    total = 0
    for count in appends:
        store.append(numbered(total, count))
        total += count
    assert held(store) == list(range(total))


@given(
    st.one_of(st.none(), st.integers(8, 40)),
    st.integers(1, 60),
    st.integers(5, 50),
    st.lists(st.integers(1, 30), max_size=4),
)
def test_shrinking_keeps_the_newest_and_goes_on_as_a_smaller_ring(
    limit: int | None, before: int, smaller: int, after: list[int]
) -> None:
    store = ContextStore([0], (1, 2), BLOCK, limit, torch.float32)
    store.append(numbered(0, before))
    store.shrink(smaller)
    bound = min(smaller, limit or smaller)
    total = before
    for count in (0, *after):
        if count:
            store.append(numbered(total, count))
        total += count
        assert sorted(held(store)) == list(range(max(0, total - bound), total))
        assert held(store) == store.slot_positions().tolist()


@example(limit=1000, before=1200, shared=700, more=1, chunk=512)  # the new ring begins in the middle and grows once more
@given(st.integers(5, 1500), st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 300), st.integers(1, 600))
def test_a_ring_that_goes_on_from_another_requests_is_whole_at_the_end_of_the_prompt(
    limit: int, before: int, shared: int, more: int, chunk: int
) -> None:
    other, store = (ContextStore([0], (1, 2), BLOCK, limit, torch.float32) for _ in range(2))
    other.append(numbered(0, before))
    shared = min(shared, before)
    # Long enough that whatever the other has overwritten will be out of this one's sight.
    prompt = max(shared + more, other.first + limit)
    store.copy_from(other, shared)
    store.rows.neg_()  # so that memory which the other had before cannot pass for this one's rows
    for start in range(shared, prompt, chunk):
        store.append(-numbered(start, min(chunk, prompt - start)))
    assert [-position for position in held(store)] == store.slot_positions().tolist()
    assert (store.first, store.seen) == (max(0, prompt - limit), prompt)


@pytest.mark.parametrize("layers_window", [0, 512])
@pytest.mark.parametrize("draft_window", [0, 64, 512, 1024])
@pytest.mark.parametrize("context", [1, 255, 256, 257, 2000])
def test_allocated_bytes_are_what_the_arithmetic_predicts(layers_window: int, draft_window: int, context: int) -> None:
    config = drafter_config("sssf", window=512)
    kv = DraftKV(config, BLOCK, layers_window, draft_window, torch.float32)
    for first in range(0, context, 200):
        count = min(200, context - first)
        kv.append(torch.zeros(2, 4, config.num_key_value_heads, count, config.head_dim))
    predicted = draft_kv_bytes(
        config, context, layers_window=layers_window, draft_window=draft_window, dtype_bytes=4, block_size=BLOCK
    )
    assert kv.allocated_bytes == predicted
    assert kv.length == context


def test_a_window_of_2048_at_32k_saves_most_of_the_draft_cache() -> None:
    config = drafter_config("sssssf", window=2048)
    full, ours, compact = (
        draft_kv_bytes(config, 32768, layers_window=layers, draft_window=draft, dtype_bytes=2)
        for layers, draft in ((0, 0), (2048, 0), (2048, 2048))
    )
    assert ours / full == pytest.approx((5 * 2047 + 32768) / (6 * 32768), rel=1e-2)
    assert compact / full == pytest.approx(2048 / 32768, rel=1e-2)


def test_switching_the_compact_cache_on_frees_memory_of_a_running_request() -> None:
    config = drafter_config("sf", window=512)
    kv = DraftKV(config, BLOCK, 512, 0, torch.float32)
    kv.append(torch.zeros(2, 2, config.num_key_value_heads, 4000, config.head_dim))
    before = kv.allocated_bytes
    storages = {store.rows.untyped_storage().nbytes() for store in kv.stores}
    kv.shrink(64)
    assert kv.allocated_bytes < before / 20
    assert kv.allocated_bytes == draft_kv_bytes(config, 4000, layers_window=512, draft_window=64, dtype_bytes=4, block_size=BLOCK)
    assert max(store.rows.untyped_storage().nbytes() for store in kv.stores) < min(storages)


@pytest.mark.parametrize(("first", "second"), [(64, 128), (64, 0)])
def test_a_larger_compact_cache_does_not_bring_freed_context_back(first: int, second: int) -> None:
    kv = DraftKV(drafter_config("sf", window=512), BLOCK, 512, first, torch.float32)
    kv.append(torch.zeros(2, 2, 2, 300, 6))
    kv.shrink(second)
    assert kv.draft_window == first
    assert kv.visible == first


def test_layers_of_different_kinds_have_stores_of_their_own() -> None:
    kv = DraftKV(drafter_config("ssf", window=16), BLOCK, 16, 0, torch.float32)
    assert [store.layers for store in kv.stores] == [(0, 1), (2,)]
    assert [store.limit for store in kv.stores] == [15, None]
    kv.append(torch.arange(3.0)[None, :, None, None, None].expand(2, 3, 2, 20, 6))
    for layer, place in kv.places.items():
        rows = kv.stores[place.store].rows[:, place.index, :, : kv.stores[place.store].visible]
        assert torch.equal(rows, torch.full_like(rows, layer))


def test_slots_stay_contiguous_when_appends_cross_the_end_of_the_ring() -> None:
    store = ContextStore([0], (1, 2), BLOCK, 7, torch.float32)
    for first, count in itertools.pairwise([0, 5, 9, 14]):
        store.append(numbered(first, count - first))
    assert held(store) == [7, 8, 9, 10, 11, 12, 13]
