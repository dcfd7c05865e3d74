"""A small client of SGLang's HTTP API, from the standard library alone, so that it runs wherever the server does."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.gpu.records import Json

Prompt = tuple[int, ...]
Sampling = Mapping[str, Json]
GREEDY: Sampling = {"temperature": 0.0}


class ServerError(Exception):
    """The server answered with an error, or not at all; ``status`` is the HTTP status, 0 without one."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}" if status else message)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """One answer of ``/generate``. Without speculation ``verifies`` is 0 and ``histogram`` empty."""

    ids: tuple[int, ...]
    verifies: int
    histogram: tuple[int, ...]
    """Index: accepted drafts of a verify; value: how often."""
    cached: int
    """Prompt tokens found in the prefix cache."""
    finish: str
    seconds: float
    """From sending to the whole answer."""
    text: str = ""


def answer_of(body: Mapping[str, Any], seconds: float) -> Answer:
    """The parts of one ``/generate`` response that the checks need."""
    meta = body["meta_info"]
    reason = meta.get("finish_reason") or {}
    return Answer(
        ids=tuple(int(token) for token in body.get("output_ids") or ()),
        verifies=int(meta.get("spec_verify_ct") or 0),
        histogram=tuple(int(n) for n in meta.get("spec_correct_drafts_histogram") or ()),
        cached=int(meta.get("cached_tokens") or 0),
        finish=str(reason.get("type", "")),
        seconds=seconds,
        text=str(body.get("text") or ""),
    )


def commit_length(answers: Sequence[Answer]) -> float:
    """Tokens per verify. The first token of an answer comes from prefill, not from a verify; 0 without verifies."""
    verifies = sum(answer.verifies for answer in answers)
    return sum(len(answer.ids) - 1 for answer in answers) / verifies if verifies else 0.0


class Client:
    """One server. Its methods may be called from several threads at once."""

    def __init__(self, base: str, timeout: float = 120.0) -> None:
        self.base = base.rstrip("/")
        self.timeout = timeout

    def generate(self, prompt: Prompt, tokens: int, sampling: Sampling = GREEDY, **more: Json) -> Answer:
        """One answer of at most ``tokens`` tokens, the end token ignored, so that every answer has the same length.

        Raises:
            ServerError: it was refused, or the server is gone.
        """
        return self.generate_n(prompt, tokens, sampling, **more)[0]

    def generate_n(self, prompt: Prompt, tokens: int, sampling: Sampling = GREEDY, **more: Json) -> list[Answer]:
        """As :meth:`generate`, for a ``sampling`` with ``n`` above 1: all answers."""
        settings = {"max_new_tokens": tokens, "ignore_eos": True, **sampling}
        begun = time.monotonic()
        body = self.post("/generate", {"input_ids": list(prompt), "sampling_params": settings, **more})
        seconds = time.monotonic() - begun
        return [answer_of(one, seconds) for one in (body if isinstance(body, list) else [body])]

    def generate_all(self, prompts: Sequence[Prompt], tokens: int, at_once: int, sampling: Sampling = GREEDY) -> list[Answer]:
        """All prompts' answers, in their order, ``at_once`` of them in flight."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, tokens, sampling), prompts))

    def stream(self, prompt: Prompt, tokens: int, sampling: Sampling = GREEDY) -> Generator[int]:
        """The number of tokens so far, event by event. Closing the generator closes the connection, which cancels the request.

        Raises:
            ServerError: it was refused, or the server is gone.
        """
        host, _, port = self.base.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=self.timeout)
        settings = {"max_new_tokens": tokens, "ignore_eos": True, **sampling}
        body = json.dumps({"input_ids": list(prompt), "sampling_params": settings, "stream": True})
        with contextlib.closing(connection):
            try:
                connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                if response.status != 200:
                    raise ServerError(response.status, response.read().decode(errors="replace")[:500])
                for line in response:
                    if line.startswith(b"data: {"):
                        yield int(json.loads(line[6:])["meta_info"]["completion_tokens"])
            except (OSError, http.client.HTTPException) as error:
                raise ServerError(0, f"{self.base} is gone: {error}") from error

    def set_state(self, **settings: int | float) -> None:
        """Change settings of the running server.

        Raises:
            ServerError: a rank refused.
        """
        answer = self.post("/set_internal_state", {"server_args": settings})
        taken = [item.get("updated", item) if isinstance(item, dict) else item for item in answer]
        if not taken or not all(value is True for value in taken):
            raise ServerError(200, f"{settings} was refused: {answer}")

    def states(self) -> list[dict[str, Any]]:
        """``internal_states`` of every rank."""
        return list(self.info()["internal_states"])

    def info(self) -> dict[str, Any]:
        return dict(self.get("/server_info"))

    def used_tokens(self) -> int:
        """KV slots in use, the prefix cache's included or not as the server counts (``/v1/loads``)."""
        return sum(int(load["num_used_tokens"]) for load in self.get("/v1/loads")["loads"])

    def text(self, path: str) -> str:
        """What the server answers there, as it is."""
        return self._send("GET", path, None).decode(errors="replace")

    def flush(self) -> None:
        """Empty the prefix cache. The server refuses while a request runs, so this waits for it to be idle.

        Raises:
            ServerError: it was not idle within 30 s.
        """
        self.wait(lambda: _accepted(lambda: self._send("POST", "/flush_cache", {})), "the cache cannot be emptied", 30)

    def wait(self, ready: Callable[[], bool], what: str, seconds: float) -> None:
        """Look until ``ready``.

        Raises:
            ServerError: it did not come true in time.
        """
        until = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > until:
                raise ServerError(0, f"{what} within {seconds:.0f} s")
            time.sleep(0.2)

    def command(self, path: str, body: Json) -> str:
        """What the server says to a POST that it answers in words."""
        return self._send("POST", path, body).decode(errors="replace")

    def get(self, path: str) -> Any:
        return json.loads(self._send("GET", path, None))

    def post(self, path: str, body: Json) -> Any:
        return json.loads(self._send("POST", path, body))

    def _send(self, method: str, path: str, body: Json) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            raise ServerError(error.code, error.read().decode(errors="replace")[:500]) from error
        except OSError as error:
            raise ServerError(0, f"{self.base}{path} is gone: {error}") from error


def _accepted(action: Callable[[], object]) -> bool:
    try:
        action()
    except ServerError as error:
        if error.status != 400:
            raise
        return False
    return True
