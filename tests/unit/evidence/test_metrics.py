"""Live figures come from counters that move, each with its source; nothing that sticks is shown as moving."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.log_events import DecodeBatch
from dflash_console.evidence.metrics import (
    COUNTERS,
    EVERY_VERIFY,
    FINISHED,
    GAUGE,
    LOG_LINE,
    MetricsSample,
    RateMeter,
    parse_metrics,
    rates_between,
)
from dflash_console.evidence.metrics_text import Histogram

from .support import CAPTURES, CASES

RANK = 'pp_rank="0",tp_rank="0"'


def sample(**values: object) -> MetricsSample:
    return MetricsSample(**values)  # type: ignore[arg-type]


def test_the_recorded_metrics_of_a_server_are_read() -> None:
    read = parse_metrics((CAPTURES / "dflash.metrics.txt").read_text())
    assert read.realtime_decode_tokens == 330
    assert read.generation_tokens == 328
    assert read.num_requests == 3
    assert read.verify_calls == 325
    assert (read.running, read.queued, read.max_total_tokens) == (0, 0, 6463229)
    assert read.accept_length == 1.0
    assert read.ttft.count == 3
    assert read.problem == ""


def test_the_commit_length_of_the_recorded_requests_leaves_out_their_first_tokens() -> None:
    read = parse_metrics((CAPTURES / "dflash.metrics.txt").read_text())
    zero = sample(generation_tokens=0.0, num_requests=0.0, verify_calls=0.0)
    rates = rates_between(zero, read, 1.0)
    assert rates.commit_length == (328 - 3) / 325
    assert rates.commit_source == FINISHED


def test_names_with_an_underscore_prefix_read_the_same() -> None:
    text = (CAPTURES / "dflash.metrics.txt").read_text()
    assert parse_metrics(text.replace("sglang:", "sglang_")) == parse_metrics(text)


def test_odd_characters_in_a_label_and_carriage_returns_lose_no_figure() -> None:
    text = (CAPTURES / "dflash.metrics.txt").read_text()
    assert parse_metrics(text.replace('model_name="', 'model_name="a\u2028b\x85c\x0b')) == parse_metrics(text)
    assert parse_metrics(text.replace("\n", "\r\n")) == parse_metrics(text)


@pytest.mark.parametrize("labels", ['a="' + '\\"' * 500_000 + '"', ",".join(f'a{number}="1"' for number in range(100_000))])
def test_a_line_of_a_megabyte_is_left_out_at_once(labels: str) -> None:
    begun = time.process_time()
    assert parse_metrics(f"sglang:num_running_reqs{{{labels}}} 1\nsglang:num_queue_reqs 2\n").queued == 2
    assert time.process_time() - begun < 1.0


def test_a_text_that_was_cut_off_gives_no_half_number() -> None:
    text = (CAPTURES / "dflash.metrics.txt").read_text()
    line = text.index("sglang:max_total_num_tokens{")
    end = text.index("\n", line)
    assert text[:end].endswith(" 6.463229e+06")
    for cut in range(line, end + 1):
        assert parse_metrics(text[:cut]).max_total_tokens is None
    assert parse_metrics(text[: end + 1]).max_total_tokens == 6463229


@pytest.mark.parametrize(
    "cut", ["sglang:num_runn", 'sglang:num_running_reqs{dp_rank="1"', 'sglang:num_running_reqs{dp_rank="1"} 1']
)
def test_a_sum_over_ranks_of_which_the_last_one_was_cut_off_is_not_known(cut: str) -> None:
    whole = 'sglang:num_queue_reqs{dp_rank="0"} 2\nsglang:num_running_reqs{dp_rank="0"} 3\n'
    assert (parse_metrics(whole).running, parse_metrics(whole).queued) == (3, 2)
    read = parse_metrics(whole + cut)
    assert (read.running, read.queued) == (None, 2)
    assert parse_metrics(whole + "# HELP sglang:gen_thr").running == 3


def test_tensor_ranks_are_counted_once_and_data_parallel_ranks_added() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {running}\n'
        for dp, tp, running in [(0, 0, 3), (0, 1, 3), (1, 2, 4), (1, 3, 4)]
    )
    assert parse_metrics(text).running == 7


def test_series_without_ranks_are_added_over_their_labels() -> None:
    text = 'sglang:generation_tokens_total{is_streaming="true"} 5\nsglang:generation_tokens_total{is_streaming="false"} 7\n'
    assert parse_metrics(text).generation_tokens == 12


@pytest.mark.parametrize("text", ["", "<html>not found</html>", "go_goroutines 5\n", "sglang:num_running_reqs{broken"])
def test_a_text_without_an_engines_metrics_says_so(text: str) -> None:
    assert parse_metrics(text).problem


@given(st.text(max_size=80))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    parse_metrics(text)
    parse_metrics("sglang:num_running_reqs{" + text)
    parse_metrics("sglang:token_usage " + text)


def test_throughput_is_the_growth_of_the_realtime_counter_and_the_gauge_stands_beside_it() -> None:
    old = sample(realtime_decode_tokens=1000.0, gen_throughput=183.4)
    new = sample(realtime_decode_tokens=1300.0, gen_throughput=183.4, running=1)
    rates = rates_between(old, new, 2.0)
    assert (rates.decode_tok_s, rates.decode_source, rates.decode_gauge_tok_s) == (150.0, COUNTERS, 183.4)


def test_a_long_answer_does_not_read_zero_until_it_finishes() -> None:
    old = sample(generation_tokens=0.0, used_tokens=100, gen_throughput=180.0)
    new = sample(generation_tokens=0.0, used_tokens=280, gen_throughput=181.0, running=1)
    rates = rates_between(old, new, 1.0)
    assert (rates.decode_tok_s, rates.decode_source) == (181.0, GAUGE)


def test_an_answer_that_finishes_is_no_spike() -> None:
    old = sample(generation_tokens=0.0, used_tokens=8000, gen_throughput=180.0, num_requests=0.0, verify_calls=0.0)
    new = sample(generation_tokens=8000.0, used_tokens=0, gen_throughput=180.0, num_requests=1.0, verify_calls=2000.0)
    rates = rates_between(old, new, 1.0)
    assert rates.decode_tok_s == 180.0
    assert rates.commit_length == pytest.approx(7999 / 2000)


def test_a_gauge_that_sticks_while_nothing_moves_is_zero_and_its_commit_length_stale() -> None:
    first, second = (
        parse_metrics((CASES / "30-metrics-sticky-gauge" / name).read_text())
        for name in ("scrape-1.prom", "scrape-2-idle-20s-later.prom")
    )
    rates = rates_between(first, second, 20.0)
    assert rates.decode_tok_s == 0.0
    assert rates.decode_gauge_tok_s == 183.4
    assert rates.commit_stale


def test_a_short_look_at_a_sticking_gauge_says_nothing() -> None:
    first = parse_metrics((CASES / "30-metrics-sticky-gauge" / "scrape-1.prom").read_text())
    assert rates_between(first, first, 1.0).decode_tok_s is None


def test_a_meter_that_looked_long_enough_knows_that_the_gauge_sticks() -> None:
    first = parse_metrics((CASES / "30-metrics-sticky-gauge" / "scrape-1.prom").read_text())
    meter = RateMeter()
    rates = [meter.add(first, float(second)) for second in range(15)]
    assert rates[2].decode_tok_s is None
    assert rates[14].decode_tok_s == 0.0
    assert rates[14].commit_stale


def test_a_decode_line_stands_in_for_a_missing_counter() -> None:
    line = DecodeBatch(running=1, throughput=158.2)
    rates = rates_between(sample(gen_throughput=1.0), sample(gen_throughput=1.0, running=1), 1.0, decode_line=line)
    assert (rates.decode_tok_s, rates.decode_source) == (158.2, LOG_LINE)


@pytest.mark.parametrize("counter", ["realtime_decode_tokens", "generation_tokens"])
def test_a_restarted_counter_gives_no_negative_figure(counter: str) -> None:
    old = sample(**{counter: 5000.0, "num_requests": 9.0, "verify_calls": 900.0, "realtime_decode_tokens": 5000.0})
    new = sample(**{counter: 10.0, "num_requests": 0.0, "verify_calls": 2.0, "realtime_decode_tokens": 10.0})
    rates = rates_between(old, new, 1.0)
    assert rates.decode_tok_s is None
    assert rates.commit_length is None
    assert RateMeter().add(new, 1.0).decode_tok_s is None


def test_requests_that_are_only_scored_give_no_commit_length_below_what_is_possible() -> None:
    zero = sample(generation_tokens=0.0, num_requests=0.0, verify_calls=0.0)
    scored = sample(generation_tokens=100.0, num_requests=101.0, verify_calls=25.0)
    assert rates_between(zero, scored, 1.0).commit_length is None
    collapsed = sample(generation_tokens=100.0, num_requests=4.0, verify_calls=99.0)
    assert rates_between(zero, collapsed, 1.0).commit_length == 96 / 99


def test_the_last_commit_length_stays_and_is_stale_when_nothing_runs() -> None:
    meter = RateMeter()
    base = {"realtime_decode_tokens": 0.0, "generation_tokens": 0.0, "num_requests": 0.0, "verify_calls": 0.0}
    done = {"realtime_decode_tokens": 100.0, "generation_tokens": 101.0, "num_requests": 1.0, "verify_calls": 25.0}
    meter.add(sample(**base), 0.0)
    running = meter.add(sample(**done), 1.0)
    assert (running.commit_length, running.commit_stale) == (4.0, False)
    for second in range(2, 6):
        idle = meter.add(sample(**done), float(second))
    assert (idle.commit_length, idle.commit_stale, idle.decode_tok_s) == (4.0, True, 0.0)


def test_when_nothing_runs_the_commit_length_is_that_of_the_last_minutes_verifies_for_as_long_as_it_takes() -> None:
    meter = RateMeter(span_s=60.0)
    for second in range(11):
        # The last verifies of an answer need not be like the others.
        counts = (float(min(second, 2)), 0.0, float(max(0, second - 2)))
        running = meter.add(sample(realtime_decode_tokens=3.0 * second, accepted_drafts=counts), float(second))
    assert (running.accept_histogram, running.commit_length) == ((2, 0, 8), 3.0)
    for later in (13.0, 40.0, 65.0, 69.0, 200.0):
        idle = meter.add(sample(realtime_decode_tokens=30.0, accepted_drafts=counts), later)
        assert idle.commit_stale
        assert (idle.accept_histogram, idle.commit_length) == ((2, 0, 8), 2.6)


def test_while_only_plain_decoding_runs_the_commit_length_is_an_old_one() -> None:
    meter = RateMeter()
    for second in range(6):
        counts = (0.0, 0.0, float(min(second, 3)))
        rates = meter.add(sample(realtime_decode_tokens=9.0 * second, accepted_drafts=counts, running=1), float(second))
        assert rates.decode_tok_s == (9.0 if second else None)
        assert rates.commit_stale is (second in (0, 5)), second
    assert (rates.commit_length, rates.accept_histogram) == (3.0, (0, 0, 3))


def busy(second: float, first: float, second_kind: float) -> MetricsSample:
    """Ten tokens a second, and verifies that accepted none, or one draft."""
    return sample(realtime_decode_tokens=10.0 * second, accepted_drafts=(first, second_kind))


def test_a_change_begins_the_histogram_and_the_commit_length_anew_and_throughput_goes_on() -> None:
    meter = RateMeter(span_s=60.0)
    for second in range(6):
        meter.add(busy(second, 5.0 * second, 0.0), float(second), time_of_day=1000.0 + second)
    meter.begin_anew()
    assert (meter.rates.accept_histogram, meter.rates.commit_length) == ((), None)
    first = meter.add(busy(6, 30.0, 0.0), 6.0, time_of_day=1006.0)
    assert (first.decode_tok_s, first.accept_histogram, first.commit_length) == (10.0, (), None)
    for second in range(7, 10):
        rates = meter.add(busy(second, 30.0, 5.0 * (second - 6)), float(second), time_of_day=1000.0 + second)
        assert (rates.decode_tok_s, rates.commit_length) == (10.0, 2.0), "no verify of before"
    assert (rates.accept_histogram, rates.accept_since, rates.changed) == ((0, 15), 1006.0, True)


def test_the_moment_since_which_verifies_are_counted_is_told_until_a_minute_later_they_slide() -> None:
    meter = RateMeter(span_s=60.0)
    for second in range(0, 80, 10):
        rates = meter.add(busy(second, 5.0 * second, 0.0), float(second), time_of_day=1000.0 + second)
        assert rates.accept_since == (1000.0 if second <= 60 else None)


def test_while_nothing_runs_the_moment_stays_that_of_the_verifies_that_are_shown() -> None:
    meter = RateMeter(span_s=60.0)
    for second in range(4):
        meter.add(busy(second, 5.0 * second, 0.0), float(second), time_of_day=1000.0 + second)
    for later in (20.0, 70.0, 200.0):
        idle = meter.add(busy(3, 15.0, 0.0), later, time_of_day=1000.0 + later)
        assert (idle.accept_histogram, idle.accept_since) == ((15, 0), 1000.0)
    meter.begin_anew()
    for later in (201.0, 300.0):
        idle = meter.add(busy(3, 15.0, 0.0), later, time_of_day=1000.0 + later)
        assert (idle.accept_histogram, idle.accept_since, idle.commit_length) == ((), 1201.0, None)


def test_another_process_is_no_change_of_the_running_one() -> None:
    meter = RateMeter()
    meter.add(busy(1, 5.0, 0.0), 1.0, time_of_day=1001.0)
    meter.begin_anew()
    meter.restart()
    assert (meter.add(busy(1, 5.0, 0.0), 2.0, time_of_day=1002.0).accept_since, meter.rates.changed) == (1002.0, False)


def test_verifies_counted_as_they_happen_give_the_commit_length_of_running_requests() -> None:
    old = sample(realtime_decode_tokens=0.0, accepted_drafts=(1.0, 1.0))
    new = sample(realtime_decode_tokens=9.0, accepted_drafts=(1.0, 2.0, 0.0, 2.0))
    rates = rates_between(old, new, 1.0)
    assert rates.accept_histogram == (0, 1, 0, 2)
    assert rates.commit_length == (2 + 4 + 4) / 3
    assert rates.commit_source == EVERY_VERIFY


def test_a_plain_engine_has_no_commit_length() -> None:
    old = sample(realtime_decode_tokens=0.0, generation_tokens=0.0, num_requests=0.0, accept_length=0.0)
    new = sample(realtime_decode_tokens=9.0, generation_tokens=9.0, num_requests=1.0, accept_length=0.0)
    rates = rates_between(old, new, 1.0)
    assert rates.commit_length is None
    assert rates.accept_length_gauge is None


def test_ttft_quantiles_come_from_the_requests_of_the_span() -> None:
    old = sample(ttft=Histogram(((0.1, 10.0), (0.2, 10.0), (float("inf"), 10.0))))
    new = sample(ttft=Histogram(((0.1, 10.0), (0.2, 14.0), (float("inf"), 14.0))))
    rates = rates_between(old, new, 1.0)
    assert rates.ttft_p50_s == pytest.approx(0.15)
    assert rates.ttft_p95_s == pytest.approx(0.195)
    assert rates_between(new, new, 1.0).ttft_p50_s is None


def test_the_cached_share_is_that_of_the_span() -> None:
    old, new = sample(prompt_tokens=100.0, cached_tokens=0.0), sample(prompt_tokens=200.0, cached_tokens=38.0)
    assert rates_between(old, new, 1.0).cached_share == 0.38


def test_a_rounds_parts_are_those_of_the_rounds_in_the_span() -> None:
    old = sample(rounds=100.0, round_seconds={"draft": 1.0, "verify": 1.0, "commit": 0.5})
    new = sample(rounds=110.0, round_seconds={"draft": 1.1, "verify": 1.3, "commit": 0.5})
    rates = rates_between(old, new, 1.0)
    assert rates.round_s == pytest.approx(0.04)
    assert rates.round_shares == pytest.approx({"draft": 0.25, "verify": 0.75, "commit": 0.0})
    assert (rates_between(new, new, 1.0).round_s, rates_between(new, new, 1.0).round_shares) == (None, {})


def test_a_meter_keeps_the_parts_of_the_last_rounds_while_nothing_runs() -> None:
    meter = RateMeter(span_s=10.0)
    meter.add(sample(rounds=0.0, round_seconds={"verify": 0.0}), 0.0)
    meter.add(sample(rounds=10.0, round_seconds={"verify": 0.2}), 1.0)
    assert meter.add(sample(rounds=10.0, round_seconds={"verify": 0.2}), 60.0).round_s == pytest.approx(0.02)


def test_a_meter_forgets_a_process_whose_counters_began_anew() -> None:
    meter = RateMeter()
    meter.add(sample(realtime_decode_tokens=0.0), 0.0)
    meter.add(sample(realtime_decode_tokens=500.0), 1.0)
    assert meter.add(sample(realtime_decode_tokens=3.0), 2.0).decode_tok_s is None
    assert meter.add(sample(realtime_decode_tokens=103.0), 3.0).decode_tok_s == 100.0


def test_a_sample_that_could_not_be_read_keeps_the_figures() -> None:
    meter = RateMeter()
    meter.add(sample(realtime_decode_tokens=0.0), 0.0)
    before = meter.add(sample(realtime_decode_tokens=100.0), 1.0)
    assert meter.add(parse_metrics("<html>"), 2.0) == before


COUNTS = st.lists(st.integers(0, 1000), min_size=2, max_size=12)


@given(COUNTS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_no_sequence_of_counts_and_restarts_gives_a_negative_figure(steps: list[int], restarts: list[bool]) -> None:
    meter, tokens = RateMeter(), 0.0
    for second, step in enumerate(steps):
        tokens = float(step) if restarts[second] else tokens + step
        rates = meter.add(
            sample(realtime_decode_tokens=tokens, generation_tokens=tokens, num_requests=0.0, verify_calls=tokens / 4),
            second * 1.0,
        )
        assert rates.decode_tok_s is None or 0 <= rates.decode_tok_s <= 1000 * len(steps)
        assert rates.commit_length is None or rates.commit_length >= 0


@given(st.lists(st.floats(0, 399), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_value_it_stands_for(values: list[float], share: float) -> None:
    bounds = (0.1, 0.2, 0.4, 1.0, 4.0, 40.0, 400.0, float("inf"))
    counts = Histogram(tuple((bound, float(sum(value <= bound for value in values))) for bound in bounds))
    quantile = counts.quantile(share)
    assert quantile is not None
    rank = share * len(values)
    wanted = next(bound for bound, count in counts.buckets if count >= rank)
    lower = max([0.0, *(bound for bound in bounds if bound < wanted)])
    assert lower <= quantile <= wanted


def test_figures_below_zero_are_unknown() -> None:
    sample = parse_metrics("sglang:num_running_reqs -1\nsglang:gen_throughput -3.5\nsglang:num_queue_reqs 2\n")
    assert (sample.running, sample.gen_throughput, sample.queued) == (None, None, 2)
