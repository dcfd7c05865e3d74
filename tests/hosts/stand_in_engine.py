"""A small engine for tests of the process service and of apply: a model-free server that starts in a tenth of a second.

It is honest by default: it reads its flags, prints the lines that a start prints (with the values it will use), answers
``/health``, ``/server_info``, ``/v1/loads``, ``/metrics``, ``/set_internal_state`` and ``/generate``, and ends on SIGTERM.
It takes the socket that its starter bound for it.
``STAND_IN_FAULTS`` makes it misbehave: ``BUDGET=FAULT`` pairs, so that one configuration breaks and another works
(``16=exit;*=ignore-term``); ``*`` stands for every budget. On SIGUSR1 it gives its port up and goes on living.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

FLAGS = {
    "--log-level": "info",
    "--port": "30000",
    "--speculative-algorithm": "DDTREE",
    "--speculative-ddtree-budget": "8",
    "--speculative-ddtree-topk": "4",
    "--speculative-draft-window-size": "",
    "--speculative-draft-layers-window": "config",
    "--api-key": "",
}
HOT = {
    "speculative_ddtree_budget": "budget",
    "speculative_ddtree_topk": "topk",
    "speculative_draft_window_size": "window",
    "speculation": "speculation",
}


QUIET = "warning" in sys.argv


def say(text: str) -> None:
    if QUIET:
        return
    print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + text, flush=True)


class Engine:
    """What is in effect, and how this run misbehaves."""

    def __init__(self, arguments: list[str]) -> None:
        flags = dict(FLAGS)
        for name, value in itertools.pairwise(arguments):
            if name in flags:
                flags[name] = value
        self.port = int(flags["--port"])
        self.key = flags["--api-key"]
        self.algorithm = flags["--speculative-algorithm"]
        self.values = {
            "budget": int(flags["--speculative-ddtree-budget"]),
            "topk": int(flags["--speculative-ddtree-topk"]),
            "window": int(flags["--speculative-draft-window-size"] or 0),
            "speculation": 1,
        }
        layers = flags["--speculative-draft-layers-window"]
        self.layers_window = 512 if layers == "config" else 0 if layers == "off" else int(layers)
        self.asked = dict(self.values)
        self.faults = self._faults()
        self.answers = 0
        self.running = 0

    def _faults(self) -> set[str]:
        found = set()
        for pair in filter(None, os.environ.get("STAND_IN_FAULTS", "").split(";")):
            budget, _, fault = pair.partition("=")
            if budget in ("*", str(self.values["budget"])):
                found.add(fault)
        return found

    def start_lines(self) -> None:
        say("Load weight begin. avail mem=20.00 GB")
        for part in range(3):
            sys.stderr.write(f"\rLoading tensors: {part * 50:>3}% Completed | {part}/2 [00:00<00:00, 9.00it/s]")
            sys.stderr.flush()
        sys.stderr.write("\n")
        say("Load weight end. elapsed=0.01 s, type=LlamaForCausalLM, avail mem=19.90 GB, mem usage=0.10 GB.")
        say("Load weight begin. avail mem=19.90 GB")
        if "broken-drafter" in self.faults:
            print(
                "error: the drafter /models/drafter cannot be loaded: config.json has no block_size", file=sys.stderr, flush=True
            )
            sys.exit(2)
        say("Load weight end. elapsed=0.01 s, type=DFlashDraftModel, avail mem=19.90 GB, mem usage=0.02 GB.")
        if "no-line" not in self.faults:
            self.confirm()
        say("KV Cache is allocated. dtype: torch.float32, #tokens: 8192, K size: 0.10 GB, V size: 0.10 GB")
        say("max_total_num_tokens=8192, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=8, "
            "context_len=8192, available_cpu_mem=19.00 GB")  # fmt: skip

    def confirm(self) -> None:
        """One line, or the ways of forks in which a second one says something else."""
        tree = f"tree_budget={self.values['budget']}, "
        if "tree-worker" in self.faults:
            say(self.confirmation("DFLASH").replace(tree, "tree_budget=1, "))
            time.sleep(1)
            say(f"Initialized DDTree worker. block_size=8, {tree}max_tree_nodes={self.values['budget'] + 1}")
            return
        say(self.confirmation(self.algorithm))
        if "second-runner" in self.faults:
            say(self.confirmation("DFLASH"))
        if "second-budget" in self.faults:
            say(self.confirmation(self.algorithm).replace(tree, "tree_budget=1, "))
        if "late-warning" in self.faults:
            say("--speculative-draft-window-size has no effect with speculative_algorithm=DDTREE (honored by DFLASH only).")

    def confirmation(self, algorithm: str) -> str:
        ignores = "ignore-flag" in self.faults
        window = 0 if ignores else self.values["window"]
        if ignores:
            self.values["window"] = 0
        return (
            f"Initialized {algorithm} draft runner. attention_backend=torch_native, model=DFlashDraftModel, block_size=8, "
            f"tree_budget={self.values['budget']}, tree_topk={self.values['topk']}, layers_window={self.layers_window or None}, "
            f"draft_window_size={window or None}, compact_cache={window > 0}"
        )

    def server_info(self) -> dict[str, object]:
        if "foreign" in self.faults:
            # As stock SGLang: the flags, echoed twice, and nothing computed.
            echo = {"speculative_algorithm": self.algorithm, "speculative_draft_window_size": self.asked["window"] or None}
            return {**echo, "model_path": "/models/target", "internal_states": [echo], "version": "0.5.17"}
        return {
            "speculative_algorithm": self.algorithm,
            "speculative_ddtree_budget": self.asked["budget"],
            "speculative_ddtree_topk": self.asked["topk"],
            "speculative_draft_window_size": self.asked["window"] or None,
            "speculative_num_draft_tokens": 8,
            "max_running_requests": 8,
            "context_length": 8192,
            "status": "ready",
            "startup_settings": self.settings(self.asked),
            "internal_states": [self.settings({**self.values, "window": 0} if "server-differs" in self.faults else self.values)],
            "engine": "embedded",
            "version": "ddtree-embedded 0.0 (stand-in)",
        }

    def settings(self, values: dict[str, int]) -> dict[str, object]:
        return {
            "algorithm": self.algorithm,
            "speculation": bool(values["speculation"]),
            "block_size": 8,
            "speculative_ddtree_budget": values["budget"],
            "speculative_ddtree_topk": values["topk"],
            "speculative_draft_window_size": values["window"] or None,
            "layers_window": self.layers_window or None,
        }

    def change(self, wanted: dict[str, float]) -> bool:
        if "refuse-hot" in self.faults or not set(wanted) <= set(HOT):
            for name, value in wanted.items() if "silently" not in self.faults else ():
                say(f"Hot change refused. {name}: 8 -> {int(value)} (from /set_internal_state): at most 12 nodes are possible")
            return False
        for name, value in wanted.items():
            old = self.values[HOT[name]]
            if "deny-hot" in self.faults:
                # Says yes, reports the new value, and its log tells of a refusal.
                self.values[HOT[name]] = int(value)
                say(f"Hot change refused. {name}: {old} -> {int(value)} (from /set_internal_state): no graph of that width")
                continue
            if "clamp-hot" in self.faults:
                self.values[HOT[name]] = int(value)
                say(f"Hot change applied. {name}: {old} -> {int(value) - 4} (from /set_internal_state)")
                continue
            if "log-only-hot" in self.faults:
                say(f"Hot change applied. {name}: {old} -> {int(value)} (from /set_internal_state)")
                continue
            if "pretend-hot" not in self.faults:
                self.values[HOT[name]] = int(value)
                say(f"Hot change applied. {name}: {old} -> {int(value)} (from /set_internal_state)")
        return True

    def metrics(self) -> str:
        lines = []
        for name, kind, value in (
            ("num_running_reqs", "gauge", self.running),
            ("num_queue_reqs", "gauge", 0),
            ("generation_tokens_total", "counter", 16 * self.answers),
            ("num_requests_total", "counter", self.answers),
            ("spec_verify_calls_total", "counter", 5 * self.answers),
        ):
            lines += [f"# TYPE sglang:{name} {kind}", f'sglang:{name}{{model_name="stand-in"}} {float(value)}']
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    engine: Engine

    def log_message(self, *arguments: object) -> None:
        """Quiet: the tests read the log."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path in ("/health", "/health_generate"):
            self.answer(200, b"")
        elif self.refused():
            return
        elif path == "/server_info":
            self.answer_json(self.engine.server_info())
        elif path == "/v1/loads":
            load = {"dp_rank": 0, "num_running_reqs": self.engine.running, "num_waiting_reqs": 0, "num_used_tokens": 0}
            self.answer_json({"version": "stand-in", "loads": [load]})
        elif path == "/metrics":
            self.answer(200, self.engine.metrics().encode(), "text/plain; version=0.0.4")
        else:
            self.answer(404, b'{"detail":"Not Found"}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))) or b"{}")
        if self.refused():
            return
        if self.path == "/set_internal_state":
            self.answer_json([self.engine.change(body["server_args"])])
        elif self.path == "/generate":
            self.generate(body)
        else:
            self.answer(404, b'{"detail":"Not Found"}')

    def generate(self, body: dict[str, object]) -> None:
        broken_hot = "bad-answer-hot" in self.engine.faults and self.engine.values != self.engine.asked
        if "bad-answer" in self.engine.faults or broken_hot:
            self.answer(500, b'{"error":{"message":"CUDA error: an illegal memory access was encountered"}}')
            return
        if "garbage" in self.engine.faults:
            self.answer(200, b"<html><body>It works!</body></html>", "text/html")
            return
        if "no-tokens" in self.engine.faults:
            nothing = {
                "completion_tokens": 0,
                "prompt_tokens": 5,
                "finish_reason": {"type": "abort", "message": "scheduler died"},
            }
            self.answer_json({"text": "", "output_ids": [], "meta_info": nothing})
            return
        self.engine.running += 1
        parameters = body.get("sampling_params")
        hold = parameters.get("custom_params", {}).get("hold", "") if isinstance(parameters, dict) else ""
        # An answer that is held comes when a test makes this file: as long as it needs, on any machine.
        while hold and not os.path.exists(hold):
            time.sleep(0.02)
        self.engine.running -= 1
        self.engine.answers += 1
        figures = {"completion_tokens": 16, "prompt_tokens": 5, "spec_verify_ct": 5, "finish_reason": {"type": "length"}}
        self.answer_json({"text": " and so on", "output_ids": list(range(16)), "meta_info": figures})

    def refused(self) -> bool:
        if self.engine.key and self.headers.get("authorization") != f"Bearer {self.engine.key}":
            self.answer(401, b'{"error":{"message":"Unauthorized"}}')
            return True
        return False

    def answer_json(self, value: object) -> None:
        self.answer(200, json.dumps(value).encode())

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(arguments: list[str]) -> int:
    engine = Engine(arguments)
    if "exit" in engine.faults:
        print("Traceback (most recent call last):\n  File \"engine.py\", line 1, in <module>\nRuntimeError: no kernel image",
              file=sys.stderr, flush=True)  # fmt: skip
        return 1

    def end(number: int, frame: FrameType | None) -> None:
        say(f"SIGTERM received. signum={number} frame=None. Draining requests and shutting down...")
        if "parting-line" in engine.faults:
            say("Initialized DDTREE draft runner. block_size=8, tree_budget=16, draft_window_size=512, compact_cache=True")
        os._exit(0)

    def leave_port(number: int, frame: FrameType | None) -> None:
        # As when an engine's HTTP server dies and its scheduler lives on.
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGUSR1, leave_port)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "ignore-term" in engine.faults else end)
    if "orphan" in engine.faults:
        # A worker in a session of its own that ignores SIGTERM, as a stuck scheduler does.
        code = "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-I", "-c", code], start_new_session=True)
    Handler.engine = engine
    if "slow" in engine.faults:
        time.sleep(2.5)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", engine.port), Handler, bind_and_activate=False)
        server.allow_reuse_address = True
        if given := os.environ.pop("DDTREE_LISTEN_FD", ""):
            server.socket.close()
            server.socket = socket.socket(fileno=int(given))
        else:
            server.server_bind()
    except OSError:
        print(f"error: port {engine.port} is in use by another program; choose another with --port", file=sys.stderr, flush=True)
        return 2
    engine.start_lines()
    while "hang" in engine.faults:
        time.sleep(60)
    # Connections that linger from an earlier engine do not count when it listens. Not sooner: with this set, a port that nobody
    # listens on yet can be had by others.
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.server_activate()
    if "quiet" not in engine.faults:
        say("The server is fired up and ready to roll!")
    if "die-after-ready" in engine.faults:
        threading.Timer(0.1, os.abort).start()
    server.serve_forever()
    server.server_close()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
