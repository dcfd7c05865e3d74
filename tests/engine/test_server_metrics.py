"""``/metrics``: SGLang's names, labels and manner of counting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.scripted import ScriptedEngine, wait_until
from tests.engine.serving import Running, serving

RECORDED = Path(__file__).parent.parent / "fixtures" / "server" / "metrics.txt"

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series(text: str) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels_of(found: Series) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for name, labels in found:
        names.setdefault(name, set()).update(key for key, _ in labels)
    return names


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def server(engine: ScriptedEngine) -> Iterator[Running]:
    with serving(engine, "--enable-metrics") as running:
        yield running


def scrape(server: Running) -> Series:
    response = server.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return series(response.text)


def total(found: Series, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for (one, given), value in found.items() if one == name and wanted <= set(given))


def ask(server: Running, **body: object) -> None:
    params = {"max_new_tokens": 8}
    if body.get("stream"):
        server.events("/generate", {"text": "hi", "sampling_params": params, **body})
    else:
        server.post("/generate", {"text": "hi", "sampling_params": params, **body})


def test_names_and_labels_are_sglangs(server: Running) -> None:
    ask(server)
    ask(server, stream=True)
    ours, theirs = labels_of(scrape(server)), labels_of(series(RECORDED.read_text()))
    extra = {"sglang:spec_accepted_drafts_total", "sglang:num_aborted_requests_total"}
    unknown = {name for name in ours if name not in theirs and not name.startswith("sglang:ddtree_")} - extra
    assert not unknown
    shared = [name for name in ours if name in theirs and name != "sglang:num_retracted_reqs"]
    assert len(shared) > 40
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_counters_grow_when_a_request_finishes(server: Running) -> None:
    assert total(scrape(server), "sglang:generation_tokens_total") == 0
    ask(server)
    ask(server, stream=True)
    found = scrape(server)
    assert total(found, "sglang:generation_tokens_total", is_streaming="false") == 8
    assert total(found, "sglang:generation_tokens_total", is_streaming="true") == 8
    assert total(found, "sglang:num_requests_total") == 2
    assert total(found, "sglang:prompt_tokens_total") == 4
    assert total(found, "sglang:spec_verify_calls_total") == 2 * 3


def test_commit_length_of_a_span_can_be_computed(server: Running) -> None:
    """(tokens - requests) / verifies: the first token of each request comes from prefill."""
    ask(server)
    found = scrape(server)
    tokens = total(found, "sglang:generation_tokens_total")
    requests = total(found, "sglang:num_requests_total")
    assert (tokens - requests) / total(found, "sglang:spec_verify_calls_total") == pytest.approx(7 / 3)


def test_times_are_observed_once_per_request_and_per_token(server: Running) -> None:
    ask(server)
    found = scrape(server)
    assert total(found, "sglang:time_to_first_token_seconds_count") == 1
    assert total(found, "sglang:inter_token_latency_seconds_count") == 7
    assert total(found, "sglang:e2e_request_latency_seconds_count") == 1
    assert total(found, "sglang:queue_time_seconds_count") == 1


def test_client_that_left_is_counted_with_what_it_got(engine: ScriptedEngine, server: Running) -> None:
    engine.script.ends, engine.script.pause = False, 0.01
    body = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 400}}
    with server.client.stream("POST", "/generate", json=body) as response:
        next(response.iter_lines())
    assert wait_until(lambda: total(scrape(server), "sglang:num_aborted_requests_total") == 1)
    found = scrape(server)
    assert total(found, "sglang:num_requests_total") == 1
    assert total(found, "sglang:generation_tokens_total") >= 1


def test_figures_of_the_engine_are_taken_at_scrape_time(engine: ScriptedEngine, server: Running) -> None:
    found = scrape(server)
    assert total(found, "sglang:realtime_tokens_total", mode="decode") == 77
    assert total(found, "sglang:gen_throughput") == 12.5
    assert total(found, "sglang:spec_accepted_drafts_total", accepted="2") == 1
    assert total(found, "sglang:ddtree_round_seconds_total", part="verify") == 1.5
    assert total(found, "sglang:ddtree_rounds_total") == 6
    assert total(found, "sglang:ddtree_budget") == 8
    engine.change("speculative_ddtree_budget", 32)
    found = scrape(server)
    assert total(found, "sglang:ddtree_budget") == 32
    assert total(found, "sglang:spec_num_draft_tokens") == 33


def test_scanners_cannot_grow_the_metrics(server: Running) -> None:
    for index in range(20):
        server.client.get(f"/wp-admin/{index}")
    found = scrape(server)
    assert total(found, "sglang:http_requests_total", endpoint="other") == 20
    assert len({labels for name, labels in found if name == "sglang:http_requests_total"}) == 2


def test_health_probes_do_not_count(server: Running) -> None:
    server.client.get("/health_generate")
    assert total(scrape(server), "sglang:num_requests_total") == 0
