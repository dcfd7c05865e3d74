"""A batch's figures: weighted where a mean of means would mislead, unknown where nothing was reported."""

from __future__ import annotations

import pytest

from dflash_console.load.records import RequestRecord
from dflash_console.load.summary import quantile, same_output, sum_histograms, summarise


def test_commit_length_counts_each_verify_once() -> None:
    short = RequestRecord(0, completion_tokens=2, accept_histogram=(1,), commit_length=1.0, verify_calls=1)
    long = RequestRecord(1, completion_tokens=37, accept_histogram=(0, 0, 0, 9), commit_length=4.0, verify_calls=9)
    summary = summarise([short, long], wall_s=2.0)
    assert summary.commit_length == pytest.approx(3.7)
    assert summary.accept_histogram == (1, 0, 0, 9)
    assert summary.verify_calls == 10
    assert summary.tok_s == pytest.approx(19.5)


def test_without_histograms_the_commit_length_is_weighted_by_verify_calls() -> None:
    records = [RequestRecord(0, commit_length=1.0, verify_calls=1), RequestRecord(1, commit_length=4.0, verify_calls=9)]
    assert summarise(records, wall_s=1.0).commit_length == pytest.approx(3.7)


def test_what_no_request_reports_is_unknown_not_zero() -> None:
    summary = summarise([RequestRecord(0, error="no server")], wall_s=1.0)
    assert (summary.requests, summary.failed) == (1, 1)
    assert summary.completion_tokens is None
    assert summary.tok_s is None
    assert summary.commit_length is None
    assert summary.ttft_p95_s is None


def test_quantiles_are_nearest_rank() -> None:
    values = [float(value) for value in range(1, 21)]
    assert quantile(values, 0.5) == 10.0
    assert quantile(values, 0.95) == 19.0
    assert quantile([7.0], 0.95) == 7.0
    assert quantile([], 0.5) is None


def test_histograms_of_different_length_add_up() -> None:
    assert sum_histograms([(1, 2), (), (0, 0, 5)]) == (1, 2, 5)


def test_same_output_compares_tokens_when_both_answers_have_them() -> None:
    one = RequestRecord(0, text="a b", token_ids=(1, 2, 3))
    assert same_output(one, RequestRecord(1, text="a b", token_ids=(1, 2, 3))).same
    apart = same_output(one, RequestRecord(1, text="a b", token_ids=(1, 9, 3)))
    assert (apart.same, apart.by, apart.at) == (False, "tokens", 1)


def test_same_output_falls_back_to_text_and_sees_a_missing_end() -> None:
    apart = same_output(RequestRecord(0, text="abc", token_ids=(1,)), RequestRecord(1, text="ab"))
    assert (apart.same, apart.by, apart.at) == (False, "text", 2)
