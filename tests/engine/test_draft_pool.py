"""What SGLang's KV pools will hold, foretold: held to starts that were recorded on an H200."""

from __future__ import annotations

import pytest

from engine_launch.spec.draft_pool import (
    KvShape,
    heads_row_bytes,
    latent_row_bytes,
    ring_bytes,
    ring_pools,
    ring_rows,
    stock_cell,
    stock_pools,
)

GIB = 1 << 30
SMOLLM2 = KvShape(30, heads_row_bytes(30, 3, 64, 64, 2))
DRAFTER = KvShape(4, heads_row_bytes(4, 3, 64, 64, 2))


def test_a_recorded_start_is_foretold() -> None:
    """SmolLM2 with the packaged drafter: 1,701,618 tokens, 36.52 GB for the target and 4.86 for the drafter."""
    available = int((138.82 - 139.1 * 0.7) * GIB)
    stock = stock_pools(available, SMOLLM2, DRAFTER)
    assert stock.tokens == pytest.approx(1_701_618, rel=0.01)
    exact = stock_pools(1_701_618 * stock_cell(SMOLLM2, DRAFTER), SMOLLM2, DRAFTER)
    assert exact.target_bytes / GIB == pytest.approx(36.52, abs=0.02)
    assert exact.draft_bytes / GIB == pytest.approx(4.86, abs=0.02)


def test_a_drafter_with_larger_rows_than_the_targets_fits_too() -> None:
    """Latent attention: a layer takes 1,152 bytes of one token, one of the drafter with 8 heads of 128 takes 4,096."""
    target, draft = KvShape(27, latent_row_bytes(27, 512, 64, 2)), KvShape(6, heads_row_bytes(6, 8, 128, 128, 2))
    stock = stock_pools(40 * GIB, target, draft)
    assert stock.target_bytes + stock.draft_bytes == pytest.approx(40 * GIB, rel=1e-4)


def test_a_ring_takes_the_window_and_a_block_per_request_and_gives_the_rest_to_the_target() -> None:
    available = 40 * GIB
    ring = ring_pools(available, SMOLLM2, DRAFTER, window=512, block=8, requests=32)
    stock = stock_pools(available, SMOLLM2, DRAFTER)
    assert ring.draft_rows == 32 * ring_rows(512, 8) == 16_640
    assert ring.draft_bytes == (16_640 + 1) * DRAFTER.row_bytes
    assert ring.draft_bytes * 8 < stock.draft_bytes
    assert ring.draft_bytes + ring.target_bytes <= available + SMOLLM2.row_bytes
    assert ring.tokens / stock.tokens == pytest.approx(34 / 30, rel=0.01)


def test_a_limit_on_tokens_holds_for_both_and_leaves_the_saving() -> None:
    pools = [
        stock_pools(40 * GIB, SMOLLM2, DRAFTER, 100_000),
        ring_pools(40 * GIB, SMOLLM2, DRAFTER, window=512, block=8, requests=4, most_tokens=100_000),
    ]
    assert [found.tokens for found in pools] == [100_000, 100_000]
    assert pools[1].draft_bytes < pools[0].draft_bytes


def test_a_ring_that_does_not_fit_leaves_no_tokens() -> None:
    assert ring_pools(GIB, SMOLLM2, DRAFTER, window=100_000, block=8, requests=32).tokens == 0
    assert ring_bytes(DRAFTER, 100_008 * 32) > GIB


@pytest.mark.parametrize(("ranks", "expected"), [(1, 3), (2, 1), (8, 1)])
def test_heads_are_divided_among_ranks_down_to_one(ranks: int, expected: int) -> None:
    assert heads_row_bytes(1, 3, 64, 64, 2, ranks) == expected * 128 * 2


def test_latent_attention_takes_the_latent_and_the_rotary_part() -> None:
    assert latent_row_bytes(61, 512, 64, 2) == 61 * 576 * 2
