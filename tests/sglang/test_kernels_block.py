"""The kernel that lays out the drafter's blocks, in Triton's interpreter on the CPU."""

from __future__ import annotations

import pytest
import torch

from engine_launch.sglang_plugin import block_kernel
from engine_launch.sglang_plugin.block_kernel import DraftBlock
from engine_launch.sglang_plugin.ring import DraftRing

MASK = 77


def lay_out(
    lens: torch.Tensor, entries: torch.Tensor, window: int, block: int, ring: DraftRing | None
) -> tuple[DraftBlock, torch.Tensor, torch.Tensor]:
    """The layout, and the drafter's table beside the target's."""
    target = torch.randperm(7 * 9000, generator=torch.Generator().manual_seed(window)).to(torch.int32).view(7, 9000)
    table = torch.full((7, 9000), -7, dtype=torch.int32)
    positions, slots = (torch.zeros((len(lens), block), dtype=torch.int64) for _ in range(2))
    result = block_kernel.lay_out(
        torch.arange(len(lens)) + 100,
        lens,
        entries,
        target,
        table,
        window=window,
        mask_token=MASK,
        positions=positions,
        slots=slots,
        ring=ring,
    )
    assert result.positions is positions
    assert result.slots is slots
    for i, length in enumerate(lens.tolist()):
        assert result.ids[i].tolist() == [100 + i] + [MASK] * (block - 1)
        assert positions[i].tolist() == list(range(length, length + block))
    idle = next(entry for entry in range(1, 7) if entry not in entries)
    assert (table[[0, idle]] == -7).all(), "padding and other requests' entries stay as they are"
    assert (result.visible.dtype, slots.dtype) == (torch.int32, torch.int64)
    return result, target, table


def five(window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lengths around the window, and entries of five requests."""
    entries = torch.randperm(6, generator=torch.Generator().manual_seed(window))[:5] + 1
    return torch.tensor([1, window, window + 1, 3 * window + 5, 2 * window]), entries


@pytest.mark.parametrize(("window", "block"), [(16, 4), (300, 8), (2048, 16), (1 << 28, 8)])
def test_without_a_ring_the_drafter_sees_the_last_tokens_of_the_target_and_the_block_after_them(window: int, block: int) -> None:
    lens, entries = five(min(window, 2900))
    result, target, table = lay_out(lens, entries, window, block, None)
    for i, (entry, length) in enumerate(zip(entries.tolist(), lens.tolist(), strict=True)):
        first = max(0, length - window)
        assert int(result.visible[i]) == length - first
        rows = target[entry, first : length + block]
        assert torch.equal(table[entry, : len(rows)], rows)
        assert (table[entry, len(rows) :] == -7).all()
        assert result.slots[i].tolist() == rows[-block:].tolist()


@pytest.mark.parametrize(("window", "shown", "block"), [(16, 16, 4), (300, 300, 8), (2600, 64, 8), (2600, 2600, 8)])
def test_with_a_ring_the_drafter_sees_its_rows_that_have_been_written(window: int, shown: int, block: int) -> None:
    ring = DraftRing(window, block, 6, "cpu")
    lens, entries = five(shown)
    ring.first[entries] = torch.tensor([0, 0, shown - 2, 0, 2 * shown - 3])
    result, _, table = lay_out(lens, entries, shown, block, ring)
    for i, (entry, length) in enumerate(zip(entries.tolist(), lens.tolist(), strict=True)):
        first = max(int(ring.first[entry]), length - shown)
        assert int(result.visible[i]) == length - first
        rows = [ring.row(entry, position) for position in range(first, length + block)]
        assert table[entry, : len(rows)].tolist() == rows
        assert (table[entry, len(rows) :] == -7).all()
        assert result.slots[i].tolist() == rows[-block:]
        assert len(set(rows)) == len(rows), "the block may not be written over what is being read"
