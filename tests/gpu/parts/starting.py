"""What a server says at its start and of itself: self-test, log lines, ``/server_info`` and Prometheus series."""

from __future__ import annotations

from tests.gpu.client import Client
from tests.gpu.context import Context, Findings, Part
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, judged

LINES = (
    "Initialized DDTREE draft runner. attention_backend=triton",
    "DDTREE verify graphs captured. widths=[1, 9, 17]",
    "DDTREE self-test passed.",
    "DDTREE verify completed. num_correct_drafts_per_req=",
)
BUDGET, TOPK, WINDOW = 8, 2, 512
SERIES = {
    "ddtree_budget": BUDGET,
    "ddtree_topk": TOPK,
    "ddtree_draft_window": WINDOW,
    "ddtree_speculation": 1,
    "ddtree_nodes": BUDGET,
}


def series(metrics: str, name: str) -> float | None:
    """The value of a series of SGLang's, whatever its labels; the first when there are several."""
    for line in metrics.splitlines():
        if line.startswith((f"sglang:{name}{{", f"sglang:{name} ")):
            return float(line.rpartition(" ")[2])
    return None


def run(context: Context) -> Findings:
    server = context.servers["self-test"]
    client = server.client
    log = server.log_text()
    checks = [judged(f"log: {line}", "there", "there" if line in log else "missing", line in log) for line in LINES]
    said = next((line for line in log.splitlines() if "self-test" in line), "not in the log")
    checks.append(judged("--ddtree-self-test", "passed, before the server is ready", said[-160:], "self-test passed" in said))
    warned = any("no effect" in line and "window" in line for line in log.splitlines())
    checks.append(judged("no warning that the window has no effect", "none", "there is one" if warned else "none", not warned))
    client.set_state(speculative_ddtree_budget=BUDGET, speculative_ddtree_topk=TOPK, speculative_draft_window_size=WINDOW)
    answers = client.generate_all(held_out(context.store, "code")[:4], 64, 4)
    checks += _metrics(client, sum(answer.verifies for answer in answers))
    checks.append(_meta(client))
    info = client.info()
    state = info["internal_states"][0]
    start = {key: info.get(f"speculative_ddtree_{key}") for key in ("budget", "topk", "max_budget", "verify_widths")}
    now = {key: state.get(f"speculative_ddtree_{key}") for key in ("budget", "topk")}
    wanted = {"budget": 16, "topk": 4, "max_budget": 16, "verify_widths": [1, 9, 17]}
    met = start == wanted and now == {"budget": BUDGET, "topk": TOPK}
    checks.append(judged("/server_info: at the start and now", f"{wanted}; budget 8, top-k 2", f"{start}; {now}", met))
    return Findings(checks, {"metrics": [line for line in client.text("/metrics").splitlines() if ":ddtree_" in line]})


def _metrics(client: Client, verifies: int) -> list[Check]:
    # Each process writes its own file, which the front end reads when it is asked.
    metrics = client.text("/metrics")
    found = {name: series(metrics, name) for name in SERIES}
    checks = [judged("Prometheus gauges after a hot change", str(SERIES), str(found), found == SERIES)]
    counted = series(metrics, "ddtree_commit_length_count")
    said = f"{counted} verifies counted, at least {verifies} made"
    checks.append(judged("commit-length histogram", "counts every verify", said, counted is not None and counted >= verifies))
    return checks


def _meta(client: Client) -> Check:
    """A request's own figures."""
    body = client.post("/generate", {"text": "def add(a, b):", "sampling_params": {"temperature": 0.0, "max_new_tokens": 48}})
    meta = body["meta_info"]
    rounds, correct = int(meta["spec_verify_ct"]), int(meta.get("spec_num_correct_drafts", -1))
    made = int(meta["completion_tokens"])
    histogram = [int(n) for n in meta.get("spec_correct_drafts_histogram") or ()]
    by_histogram = sum(index * n for index, n in enumerate(histogram))
    met = sum(histogram) == rounds and by_histogram == correct and 0 <= correct + rounds + 1 - made < 8
    said = f"{made} tokens, {rounds} verifies, {correct} accepted drafts, histogram {histogram}"
    return judged("meta_info of a request: tokens, verifies, histogram", "agree with one another", said, met)


STARTING = Part("starting", "self-test, log lines, server_info and metrics", ("self-test",), run)
