"""The kernel that shows the drafter its ring, in Triton's interpreter on the CPU."""

from __future__ import annotations

import pytest
import torch

from engine_launch.sglang_plugin import ring_kernel
from engine_launch.sglang_plugin.ring import DraftRing


@pytest.mark.parametrize(("window", "shown", "block"), [(16, 16, 4), (300, 300, 8), (600, 64, 8)])
def test_visible_rows_and_the_blocks_are_written_in_order(window: int, shown: int, block: int) -> None:
    generator = torch.Generator().manual_seed(window)
    ring = DraftRing(window, block, 6, "cpu")
    entries = torch.randperm(6, generator=generator)[:5] + 1
    lens = torch.tensor([1, shown, shown + 1, 3 * window + 5, 2 * window])
    ring.first[entries] = torch.tensor([0, 0, shown - 2, 0, 2 * window - 3])
    table = torch.full((7, window + block + 3), -7, dtype=torch.int32)
    visible, slots = ring_kernel.view(ring, shown, lens, entries, table)
    for i, (entry, length) in enumerate(zip(entries.tolist(), lens.tolist(), strict=True)):
        first = max(int(ring.first[entry]), length - shown)
        assert int(visible[i]) == length - first
        rows = [ring.row(entry, position) for position in range(first, length + block)]
        assert table[entry, : len(rows)].tolist() == rows
        assert (table[entry, len(rows) :] == -7).all()
        assert slots[i].tolist() == rows[-block:]
        assert len(set(rows)) == len(rows), "the block may not be written over what is being read"
    idle = next(entry for entry in range(1, 7) if entry not in entries)
    assert (table[[0, idle]] == -7).all(), "padding and other requests' entries stay as they are"
    assert (visible.dtype, slots.dtype) == (torch.int32, torch.int64)
