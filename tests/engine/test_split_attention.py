"""Attention in parts is attention: the same result however the keys are cut."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.embedded import split_attention
from engine_launch.embedded.split_attention import LEAST_CONTEXT, LEAST_PART, MOST_ROWS, Parts, attend, parts_of
from engine_launch.embedded.target import Segment
from tests.engine.models import prompts, target_config, tiny_target


@given(count=st.integers(2, 5), end=st.integers(40, 90), rows=st.integers(1, 7), seed=st.integers(0, 99))
def test_parts_put_together_give_what_the_whole_gives(count: int, end: int, rows: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    # The store has room behind the keys, as a cache has; what stands there must not be looked at.
    keys, values = (torch.randn(2, 3, end + 9, 8, generator=draw, dtype=torch.float64) for _ in range(2))
    keys[:, :, end:] = values[:, :, end:] = float("nan")
    keys, values = keys[:, :, :end], values[:, :, :end]
    queries = torch.randn(3, rows, 8, generator=draw, dtype=torch.float64)
    hidden = torch.rand(rows, rows, generator=draw) < 0.5
    hidden.fill_diagonal_(False)
    mask = torch.zeros(rows, end, dtype=torch.float64)
    mask[:, end - rows :].masked_fill_(hidden, float("-inf"))
    stride = end // count
    parts = Parts(count, end - stride * (count - 1), stride)
    for seen in (mask, None):
        expected = F.scaled_dot_product_attention(queries[None], keys[1][None], values[1][None], attn_mask=seen)[0]
        got = attend(queries, parts.view(keys)[1], parts.view(values)[1], parts.mask(seen, torch.float64))
        assert (got - expected).abs().max() < 1e-12


@given(
    heads=st.integers(1, 16), rows=st.integers(1, 100), end=st.integers(1, 9000), threads=st.sampled_from([1, 2, 3, 4, 8, 16, 64])
)
def test_keys_are_cut_only_where_cores_would_be_idle_and_all_of_them_are_covered(
    heads: int, rows: int, end: int, threads: int
) -> None:
    parts = parts_of(heads, rows, end, threads)
    if end < LEAST_CONTEXT or rows > MOST_ROWS or heads % threads == 0:
        assert parts is None
        return
    assert parts is not None
    assert parts.count >= 2
    assert parts.length >= parts.stride >= LEAST_PART
    assert parts.stride * (parts.count - 1) + parts.length == end


@pytest.mark.parametrize("rows", [1, 5])
def test_a_pass_over_a_long_context_gives_the_same_in_parts(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    target = tiny_target()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4 * target_config().num_key_value_heads)
    text = prompts(1, 150)[0]
    visible = torch.eye(rows, dtype=torch.bool)
    visible[:, 0] = True
    found = []
    for least in (LEAST_CONTEXT, 100):
        monkeypatch.setattr(split_attention, "LEAST_CONTEXT", least)
        monkeypatch.setattr(split_attention, "LEAST_PART", 40)
        kv = target.new_kv(200)
        with torch.inference_mode():
            target.forward(torch.tensor(text), torch.arange(len(text)), [Segment(kv, len(text))])
            kv.commit(range(len(text)))
            ids, positions = torch.arange(2, 2 + rows), torch.full((rows,), len(text))
            found.append(target.forward(ids, positions, [Segment(kv, rows, visible)]).hidden)
    assert 0 < (found[0] - found[1]).abs().max() < 1e-10
