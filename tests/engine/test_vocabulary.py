"""The chunked argmax and top-k give what torch's own give, ties and odd vocabularies included."""

from __future__ import annotations

import pytest
import torch

from engine_launch import tree as ddtree
from engine_launch.embedded.vocabulary import CHUNK, best_candidates, best_token

WIDTHS = (CHUNK * 8, CHUNK * 8 + 3, 24)
DTYPES = (torch.float32, torch.bfloat16)


def logits(rows: int, width: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return (torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 3).to(dtype)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_best_token_is_torchs_argmax(width: int, dtype: torch.dtype) -> None:
    rows = logits(9, width, dtype)
    assert best_token(rows).tolist() == rows.argmax(-1).tolist()


def test_of_equal_tokens_the_first_is_taken() -> None:
    rows = torch.zeros(1, CHUNK * 4)
    for second, first in ((CHUNK * 3 + 1, CHUNK + 7), (CHUNK + 7, CHUNK + 2)):
        rows[0, second] = rows[0, first] = 5.0
        assert best_token(rows).tolist() == [first]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("k", [1, 4, 9])
def test_candidates_are_those_of_the_whole_row_with_its_probabilities(width: int, k: int) -> None:
    rows = logits(2 * 7, width, torch.float32).view(2, 7, width)
    ids, logprobs = best_candidates(rows, k)
    expected_ids, expected = ddtree.top_candidates(rows, k)
    assert ids.tolist() == expected_ids.tolist()
    assert torch.allclose(logprobs, expected, atol=1e-5)


def test_candidates_that_share_a_chunk_are_all_found() -> None:
    rows = torch.zeros(1, 1, CHUNK * 16)
    wanted = [CHUNK * 5 + 9, CHUNK * 5 + 2, CHUNK * 5 + 200, 3]
    for rank, token in enumerate(wanted):
        rows[0, 0, token] = 9.0 - rank
    assert best_candidates(rows, 4)[0].tolist() == [[wanted]]


def test_bf16_ties_do_not_change_which_probabilities_come_first() -> None:
    rows = logits(7, CHUNK * 32, torch.bfloat16).unsqueeze(0)
    ids, logprobs = best_candidates(rows, 8)
    assert torch.allclose(logprobs, ddtree.top_candidates(rows, 8)[1], atol=1e-5)
    assert all(len(set(row)) == 8 for row in ids[0].tolist())
