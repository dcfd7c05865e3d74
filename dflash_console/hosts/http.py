"""The engine's HTTP API: one client per engine, with its errors in words.

Answers are bytes; ``evidence/`` reads them. What differs between releases (renamed endpoints, a redirect on ``/metrics``) is
tried once and remembered. httpx is imported on the first request: its import costs more than the console's first screen may.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING

from ..evidence.http_status import NO_ENDPOINT
from ..evidence.secrets import mask_text
from ..evidence.values import read_json
from .transport import HostError

if TYPE_CHECKING:
    import httpx


class HttpFailure(Enum):
    """Why a request brought no answer that could be used."""

    NOT_LISTENING = "not listening"
    """Nobody accepts connections: the engine is down or still loading."""
    SILENT = "no answer in time"
    KEY = "key refused"
    MISSING = "no such endpoint"
    REFUSED = "refused"
    """Another 4xx: the request is not one this engine takes."""
    BROKEN = "failed"
    """5xx, a broken connection, or bytes that are no answer."""


class EngineHttpError(HostError):
    """A request failed; the message is one sentence: what, why, what to do."""

    def __init__(self, failure: HttpFailure, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.failure = failure
        self.status = status


@dataclass(frozen=True)
class ProbeAnswer:
    """What a short prompt brought back."""

    text: str
    completion_tokens: int
    verify_calls: int | None
    """``None`` when the engine did not draft."""
    seconds: float


_RENAMED = {"server_info": ("/server_info", "/get_server_info"), "loads": ("/v1/loads", "/get_load")}
_METRICS_OFF = "the engine has no /metrics: start it with --enable-metrics to see live figures"
MAX_ANSWER = 32 << 20
"""Bytes of one answer. A large server's ``/metrics`` has less than one MiB, its ``/server_info`` some KiB."""
PROBE_PROMPT = "The three primary colours are"


class EngineHttp:
    """Requests to one engine. The keys are sent and otherwise never shown."""

    def __init__(self, base_url: str, *, api_key: str | None = None, admin_key: str | None = None, timeout: float = 5.0) -> None:
        """``admin_key``: some builds ask for a key of its own for changes."""
        self._base_url = base_url
        self._key = api_key
        self._admin_key = admin_key or api_key
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None
        self._endpoints: dict[str, str] = {}

    @property
    def base_url(self) -> str:
        return self._base_url

    @property
    def api_key(self) -> str | None:
        """For clients of the same engine (prompts); never for a screen or a file."""
        return self._key

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def healthy(self) -> bool:
        """Whether the engine answers ``/health`` with success. Raises: EngineHttpError."""
        await self._request("GET", "/health")
        return True

    async def server_info(self) -> bytes:
        """Raises: EngineHttpError."""
        return await self._renamed("server_info")

    async def loads(self) -> bytes:
        """Raises: EngineHttpError."""
        return await self._renamed("loads")

    async def metrics(self) -> bytes:
        """Prometheus text. Raises: EngineHttpError."""
        return await self._request("GET", "/metrics")

    async def set_internal_state(self, values: Mapping[str, float]) -> tuple[bool, ...]:
        """Ask the running engine to change settings; the answer of each rank.

        Raises:
            EngineHttpError
        """
        body = await self._request("POST", "/set_internal_state", {"server_args": dict(values)}, key=self._admin_key)
        try:
            answer = read_json(body)
        except ValueError:
            answer = None
        if isinstance(answer, bool):
            return (answer,)
        if not isinstance(answer, list) or not answer or not all(isinstance(item, bool) for item in answer):
            raise EngineHttpError(
                HttpFailure.BROKEN, f"the engine answered a change with {body[:120]!r} instead of [true] or [false]"
            )
        return tuple(answer)

    async def generate(self, prompt: str = PROBE_PROMPT, *, max_tokens: int = 16, timeout: float = 60.0) -> ProbeAnswer:
        """Run a short greedy prompt to its end and check that tokens came.

        Raises:
            EngineHttpError
        """
        begun = time.monotonic()
        parameters = {"temperature": 0, "max_new_tokens": max_tokens}
        body = await self._request("POST", "/generate", {"text": prompt, "sampling_params": parameters}, timeout=timeout)
        try:
            found = _probe_answer(read_json(body), time.monotonic() - begun)
        except (ValueError, KeyError):
            raise EngineHttpError(HttpFailure.BROKEN, f"the answer to a prompt cannot be read: {body[:120]!r}") from None
        if found.completion_tokens < 1:
            raise EngineHttpError(HttpFailure.BROKEN, "the engine answered a prompt without a single token")
        return found

    async def rounds(self, limit: int) -> bytes:
        """The newest verify rounds of requests that asked for them (this project's engines). Raises: EngineHttpError."""
        return await self._request("GET", f"/ddtree/rounds?limit={limit}")

    async def _renamed(self, name: str) -> bytes:
        known = self._endpoints.get(name)
        for path in (known,) if known else _RENAMED[name]:
            try:
                body = await self._request("GET", path)
            except EngineHttpError as error:
                # A renamed endpoint is forgotten when it disappears: the engine may have been replaced by a newer one.
                self._endpoints.pop(name, None)
                if error.failure is not HttpFailure.MISSING or path == _RENAMED[name][-1] or known:
                    raise
                continue
            self._endpoints[name] = path
            return body
        raise AssertionError("unreachable")

    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        key: str | None = None,
        timeout: float | None = None,
    ) -> bytes:
        if "httpx" not in sys.modules:
            # In a thread, because its import would hold the screens up for a tenth of a second.
            await asyncio.to_thread(import_module, "httpx")
        import httpx

        key = key or self._key
        if key is not None and not (key.isascii() and key.isprintable()):
            # Checked here, because the library's complaint would quote it.
            text = "the key on the engine's command line has characters that no HTTP header can carry"
            raise EngineHttpError(HttpFailure.KEY, text)
        limit = timeout or self._timeout
        try:
            if self._client is None:
                # Proxies of the environment must not see requests to a host's own loopback. Engines are spoken to in plain HTTP
                # over loopback or a forward, so the CA bundle (5 MB, 50 ms) is never needed.
                self._client = httpx.AsyncClient(base_url=self._base_url, follow_redirects=True, trust_env=False, verify=False)
            # httpx's own limits are between two pieces of an answer: one that drips in without an end would never hit them.
            async with asyncio.timeout(limit + 2.0):
                status, content = await self._exchange(method, path, body, key, limit)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            text = f"nothing answers at {self._base_url}: the engine is down or still loading"
            raise EngineHttpError(HttpFailure.NOT_LISTENING, text) from error
        except (httpx.TimeoutException, TimeoutError) as error:
            text = f"{path} did not answer within {limit:g} s"
            raise EngineHttpError(HttpFailure.SILENT, text) from error
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            text = f"the connection broke during {path}: {error or type(error).__name__}"
            raise EngineHttpError(HttpFailure.BROKEN, text) from error
        if status < 300:
            return content
        raise _failed(path, status, content)

    async def _exchange(
        self, method: str, path: str, body: Mapping[str, object] | None, key: str | None, timeout: float
    ) -> tuple[int, bytes]:
        """Status and body of one request; a body that no engine sends is not read to its end."""
        import httpx

        assert self._client is not None
        headers = {"Authorization": f"Bearer {key}"} if key else None
        limits = httpx.Timeout(timeout, connect=2.0)
        async with self._client.stream(method, path, json=body, headers=headers, timeout=limits) as response:
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > MAX_ANSWER:
                    text = f"the answer to {path} has more than {MAX_ANSWER >> 20} MiB: this is no engine's"
                    raise EngineHttpError(HttpFailure.BROKEN, text)
            return response.status_code, bytes(content)


def _probe_answer(body: object, seconds: float) -> ProbeAnswer:
    """Raises: ValueError, KeyError: the answer is not one of ``/generate``."""
    meta = body["meta_info"] if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(meta, dict):
        raise ValueError("no object with meta_info")
    tokens, verifies = meta["completion_tokens"], meta.get("spec_verify_ct")
    if not isinstance(tokens, int) or isinstance(tokens, bool):
        raise ValueError("completion_tokens is no number")
    return ProbeAnswer(str(body["text"]), tokens, verifies if isinstance(verifies, int) else None, seconds)


def _failed(path: str, status: int, body: bytes) -> EngineHttpError:
    if status in (401, 403):
        text = "the engine refuses the key: its command line has another --api-key than the one that is running, or none"
        return EngineHttpError(HttpFailure.KEY, text, status)
    if status in NO_ENDPOINT:
        text = _METRICS_OFF if path.startswith("/metrics") else f"this engine has no {path.split('?')[0]}"
        return EngineHttpError(HttpFailure.MISSING, text, status)
    said = mask_text(_message(body))
    failure = HttpFailure.REFUSED if status < 500 else HttpFailure.BROKEN
    return EngineHttpError(failure, f"{path.split('?')[0]} answered {status}{f': {said}' if said else ''}", status)


def _message(body: bytes) -> str:
    """The error text of an OpenAI-style or FastAPI answer; the first line of anything else."""
    try:
        answer = read_json(body)
        error = answer.get("error", answer) if isinstance(answer, dict) else answer
        found = error.get("message") or error.get("detail") if isinstance(error, dict) else error
        return str(found)[:300] if found else ""
    except ValueError:
        return body.decode("utf-8", "replace").strip().partition("\n")[0][:300]
