"""What clients are told: figures of a request, metrics of the server, the outcome of the self-test."""

from __future__ import annotations

import json
import logging
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram

from engine_launch.sglang_plugin import self_test
from engine_launch.sglang_plugin.flags import _without_window_warning
from engine_launch.sglang_plugin.metrics import CountedHistogram, TreeMetrics
from engine_launch.sglang_plugin.options import Options
from engine_launch.sglang_plugin.reports import count_by_block, start_values
from engine_launch.sglang_plugin.settings import Settings


def test_proposed_drafts_are_the_positions_that_a_tree_could_fill() -> None:
    meta = {"spec_verify_ct": 10, "spec_num_correct_drafts": 21, "spec_num_proposed_drafts": 640, "spec_accept_rate": 0.03}
    count_by_block(meta, 8)
    assert meta["spec_num_proposed_drafts"] == meta["spec_proposed_drafts"] == 70
    assert meta["spec_accept_rate"] == pytest.approx(0.3)


def test_a_request_without_verifies_keeps_its_figures() -> None:
    meta: dict[str, object] = {"completion_tokens": 1}
    count_by_block(meta, 8)
    assert meta == {"completion_tokens": 1}


def test_the_start_values_are_fields_of_the_servers_report() -> None:
    report = start_values(Options(budget=16).resolve(8))
    assert report["speculative_ddtree_budget"] == 16
    assert report["speculative_ddtree_verify_widths"] == [1, 9, 17, 33]
    assert report["speculative_ddtree_draft_pool"] == "stock"
    assert start_values(Options(draft_pool="ring").resolve(8, 512))["speculative_ddtree_draft_pool"] == "ring"


def test_metrics_show_settings_and_commit_lengths() -> None:
    registry = CollectorRegistry()
    labels = {"model_name": "m"}
    metrics = TreeMetrics(labels, registry)
    metrics.settings(Settings(16, 4, 512, False))
    metrics.round([0, 3, 3], 16)
    read = {
        name: registry.get_sample_value(f"sglang:ddtree_{name}", labels) for name in ("budget", "topk", "draft_window", "nodes")
    }
    assert read == {"budget": 16, "topk": 4, "draft_window": 512, "nodes": 16}
    assert registry.get_sample_value("sglang:ddtree_speculation", labels) == 0
    assert registry.get_sample_value("sglang:ddtree_commit_length_sum", labels) == 9
    assert registry.get_sample_value("sglang:ddtree_commit_length_bucket", {**labels, "le": "1.0"}) == 1


def test_many_observations_of_one_value_are_those_of_one_at_a_time() -> None:
    registry = CollectorRegistry()
    bounds = (1, 2, 4)
    at_once = CountedHistogram("at_once", "Test.", registry=registry, buckets=bounds)
    singly = Histogram("singly", "Test.", registry=registry, buckets=bounds)
    for amount, times in ((1, 3), (3, 2), (4, 1), (9, 5), (0.5, 1)):
        at_once.observe_many(amount, times)
        for _ in range(times):
            singly.observe(amount)
    read = [
        {sample.name.removeprefix(name) + sample.labels.get("le", ""): sample.value for sample in metric.samples}
        for name in ("at_once", "singly")
        for metric in registry.collect()
        if metric.name == name
    ]
    assert {k: v for k, v in read[0].items() if k != "_created"} == {k: v for k, v in read[1].items() if k != "_created"}
    assert read[0]["_bucket+Inf"] == 12


def test_only_ddtrees_window_warning_is_dropped() -> None:
    text = (
        "--speculative-draft-window-size has no effect with speculative_algorithm=%s (honored by Llama EAGLE-3 and DFLASH only)."
    )
    records = {
        name: logging.LogRecord("x", logging.WARNING, "f", 1, text, (name,), None) for name in ("DDTREE", "EAGLE", "NGRAM")
    }
    assert [name for name, record in records.items() if _without_window_warning(record)] == ["EAGLE", "NGRAM"]


@contextmanager
def server(wrong: int, refuses: str = "", context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answers ``/generate``; as a tree, the first ``wrong`` prompts get other tokens. Or refuses, with these words."""
    seen: list[bool] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            tree = body["sampling_params"]["custom_params"]["speculative"]
            seen.append(tree)
            spoiled = tree and (len(seen) - 1) // 2 < wrong
            answer = json.dumps({"error": refuses} if refuses else {"output_ids": [1, 2, 4 if spoiled else 3]}).encode()
            self.send_response(400 if refuses else 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    listener = HTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


@pytest.mark.parametrize(("wrong", "passes"), [(0, True), (2, True), (3, False), (5, False)])
def test_the_self_test_fails_when_most_answers_differ(wrong: int, passes: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with server(wrong) as url:
        assert self_test.check(url, None, False) is passes
    assert f"{5 - wrong} of 5 greedy answers" in caplog.text


def test_a_self_test_that_gets_no_answer_fails() -> None:
    assert self_test.check("http://127.0.0.1:1", "key", True) is False


def test_a_refusal_is_said_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    with server(0, refuses="no such parameter") as url:
        assert self_test.check(url, None, False) is False
    assert "self-test was refused" in caplog.text
    assert "no such parameter" in caplog.text


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request._opener", None)  # one that an earlier test has made would not look again
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with server(0) as url:
        assert self_test.check(url, None, False)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_is_looked_at_as_sglangs_own_warm_up_does(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout {key} -out {certificate}"
    subprocess.run([*words.split(), "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with server(0, context=context) as url:
        assert self_test.check(url, None, False, verify=False)
        assert self_test.check(url, None, False, verify=str(certificate))
        assert not self_test.check(url, None, False, verify=True)
