"""A batch's figures: weighted where a mean of means would mislead, unknown where nothing was reported."""

from __future__ import annotations

import pytest

from dflash_console.evidence.metrics_text import MetricsSample
from dflash_console.load.records import CommitSource, RequestRecord
from dflash_console.load.summary import counted, quantile, same_output, sum_histograms, summarise


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


def answered(tokens: int | None, count: int = 2) -> tuple[RequestRecord, ...]:
    return tuple(RequestRecord(number, completion_tokens=tokens) for number in range(count))


@pytest.mark.parametrize(
    ("records", "growth", "length"),
    [
        (answered(31), (62, 2, 20), 3.0),
        (answered(31), (93, 3, 30), None),
        (answered(31), (62, 3, 20), None),
        (answered(31), (62, 2, 0), None),
        (answered(None), (62, 2, 20), None),
    ],
    ids=["ours alone", "one of somebody else's", "an aborted one", "plain decoding", "no token counts"],
)
def test_counters_give_a_commit_length_only_where_nothing_else_ran(
    records: tuple[RequestRecord, ...], growth: tuple[float, float, float], length: float | None
) -> None:
    before = MetricsSample(generation_tokens=1000.0, num_requests=10.0, verify_calls=300.0)
    after = MetricsSample(generation_tokens=1000.0 + growth[0], num_requests=10.0 + growth[1], verify_calls=300.0 + growth[2])
    found = counted(summarise(records, 1.0), records, before, after)
    assert found.commit_length == length
    assert (found.commit_source is CommitSource.COUNTERS) == (length is not None)


def test_what_the_answers_report_themselves_is_not_replaced_by_counters() -> None:
    records = (RequestRecord(0, completion_tokens=5, accept_histogram=(0, 2), verify_calls=2),)
    summary = summarise(records, 1.0)
    after = MetricsSample(generation_tokens=5.0, num_requests=1.0, verify_calls=1.0)
    assert counted(summary, records, MetricsSample(), after) is summary
