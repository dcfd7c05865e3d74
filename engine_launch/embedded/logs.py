"""Log lines in SGLang's words and order of fields, so that one parser reads both engines.

Lines go to stdout as ``[YYYY-MM-DD HH:MM:SS] text``, each flushed as it is written; loading bars go to stderr as tqdm
draws them (carriage returns, a newline at the end). Formats: SGLang 0.5.17's own log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import TextIO

from engine_launch.embedded.api import AUTO, Algorithm
from engine_launch.embedded.events import (
    CostsMeasured,
    DecodeBatch,
    DraftRunnerReady,
    FirstVerify,
    KvPoolReady,
    LoadEnd,
    LoadProgress,
    PrefillBatch,
    SchedulerReady,
    SettingChange,
)

GIB = 1 << 30
"""SGLang's "GB" in log lines and metrics is 2**30 bytes."""
MASKED = "******"
"""What stands in place of a secret that is set."""

BUDGET_NAME = "speculative_ddtree_budget"
BAR_INTERVAL = 0.1
"""Seconds between two drawings of a loading bar (tqdm's default)."""
LOGGER_NAME = "ddtree.engine"
_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


def configure_logging(level: str, stream: TextIO | None = None, quiet_paths: tuple[str, ...] = ()) -> logging.Logger:
    """Set up the one logger of the engine and uvicorn's two, all on one stream with one prefix.

    Args:
        level: a name of :mod:`logging` in lower case; lines below it are not printed.
        stream: stdout unless a test wants the lines.
        quiet_paths: prefixes of paths whose requests leave no access line.
    """
    handler = _Lines(stream if stream is not None else sys.stdout)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s", _DATE_FORMAT))
    logger = logging.getLogger(LOGGER_NAME)
    for name in (LOGGER_NAME, "uvicorn.error", "uvicorn.access"):
        one = logging.getLogger(name)
        one.handlers = [handler]
        one.setLevel(level.upper())
        one.propagate = False
    logging.getLogger("uvicorn.error").filters = [_with_level]
    logging.getLogger("uvicorn.access").filters = [_QuietPaths(quiet_paths), _with_level]
    return logger


class _Lines(logging.StreamHandler[TextIO]):
    """A line that the system does not take (a full disk, a reader that has gone) is lost: the server goes on without it."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class _QuietPaths(logging.Filter):
    """Drops access lines of paths that begin with one of the prefixes."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        super().__init__()
        self._prefixes = prefixes

    def filter(self, record: logging.LogRecord) -> bool:
        is_access = isinstance(record.args, tuple) and len(record.args) == 5
        return not (self._prefixes and is_access and str(record.args[2]).startswith(self._prefixes))  # type: ignore[index]


def _with_level(record: logging.LogRecord) -> bool:
    """uvicorn's own formatter puts the level before the message; SGLang's log shows it so."""
    text = f"{record.levelname + ':':<9} {record.getMessage()}"
    if record.name == "uvicorn.access" and isinstance(record.args, tuple) and len(record.args) == 5:
        client, method, path, http, status = record.args
        text = f'{record.levelname + ":":<9} {client} - "{method} {path} HTTP/{http}" {status} {_phrase(status)}'
    record.msg, record.args = text.rstrip(), ()
    return True


def _phrase(status: object) -> str:
    try:
        return HTTPStatus(int(str(status))).phrase
    except ValueError:
        return ""


def available_memory() -> int:
    """Bytes that new allocations could take without swapping (``MemAvailable``; free pages where /proc lacks it)."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def server_args_line(values: Mapping[str, object]) -> str:
    """``server_args=ServerArgs(model_path='…', …)``; the caller has masked secrets already."""
    return f"server_args=ServerArgs({', '.join(f'{key}={value!r}' for key, value in values.items())})"


class SglangLog:
    """An ``EngineLog`` that writes SGLang's lines."""

    def __init__(self, logger: logging.Logger, bars: TextIO | None = None) -> None:
        self._logger = logger
        self._bars = bars if bars is not None else sys.stderr
        self._bar_begun = self._bar_drawn = 0.0
        self._bar_open = False

    def loading(self, event: LoadProgress) -> None:
        if event.done == 0:
            self._bar_begun = time.monotonic()
            self._logger.info("Load weight begin. avail mem=%.2f GB", available_memory() / GIB)
        now = time.monotonic()
        due = event.done in (0, event.total) or now - self._bar_drawn >= BAR_INTERVAL
        if not due or not self._logger.isEnabledFor(logging.INFO):
            return
        self._bar_drawn = now
        self._bar_open = event.done != event.total
        elapsed = now - self._bar_begun
        rate = f"{event.done / elapsed:.2f}it/s" if event.done and elapsed > 0 else "?it/s"
        left = _clock(elapsed / event.done * (event.total - event.done)) if event.done else "?"
        share = event.done / event.total if event.total else 1.0
        self._draw(
            f"\rLoading tensors: {share:>4.0%} Completed | {event.done}/{event.total} [{_clock(elapsed)}<{left}, {rate}]"
            + ("\n" if event.done == event.total else "")
        )

    def end_bar(self) -> None:
        """End the line of a bar that never came to its end, so that an error begins a line of its own."""
        if self._bar_open:
            self._draw("\n")
            self._bar_open = False

    def _draw(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._bars.write(text)
            self._bars.flush()

    def loaded(self, event: LoadEnd) -> None:
        self._logger.info(
            "Load weight end. elapsed=%.2f s, type=%s, avail mem=%.2f GB, mem usage=%.2f GB.",
            event.seconds,
            event.model_class,
            available_memory() / GIB,
            event.weight_bytes / GIB,
        )

    def draft_runner(self, event: DraftRunnerReady) -> None:
        tree = f"tree_budget={event.tree_budget}, tree_topk={event.tree_topk}, " if event.algorithm is Algorithm.DDTREE else ""
        self._logger.info(
            "Initialized %s draft runner. attention_backend=%s, model=%s, block_size=%d, %slayers_window=%s, "
            "draft_window_size=%s, compact_cache=%s",
            event.algorithm.value,
            event.attention_backend,
            event.model_class,
            event.block_size,
            tree,
            event.layers_window or None,
            event.draft_window or None,
            event.draft_window > 0,
        )
        self._logger.info(
            "DFLASH draft runner ready. mask_token=%s, mask_token_id=%d, mask_token_id_override=%d",
            event.mask_token,
            event.mask_token_id,
            event.mask_token_id,
        )

    def kv_pool(self, event: KvPoolReady) -> None:
        self._logger.info(
            "KV Cache is allocated. dtype: torch.%s, #tokens: %d, K size: %.2f GB, V size: %.2f GB",
            event.dtype,
            event.tokens,
            event.k_bytes / GIB,
            event.v_bytes / GIB,
        )

    def scheduler(self, event: SchedulerReady) -> None:
        self._logger.info(
            "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=%d, "
            "context_len=%d, available_cpu_mem=%.2f GB",
            event.max_total_num_tokens,
            event.chunked_prefill_size,
            event.max_prefill_tokens,
            event.max_running_requests,
            event.context_length,
            available_memory() / GIB,
        )

    def prefill_batch(self, event: PrefillBatch) -> None:
        self._logger.info(
            "Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: %d, token usage: %.2f, #running-req: %d, "
            "#queue-req: %d, #pending-token: %d, cpu graph: False, input throughput (token/s): %.2f",
            event.new_sequences,
            event.new_tokens,
            event.cached_tokens,
            _usage(event.used_tokens, event.max_total_num_tokens),
            event.running,
            event.queued,
            event.pending_tokens,
            event.input_throughput,
        )

    def decode_batch(self, event: DecodeBatch) -> None:
        accept = (
            f"accept len: {event.accept_length:.2f}, accept rate: {event.accept_rate or 0.0:.2f}, "
            if event.accept_length is not None
            else ""
        )
        self._logger.info(
            "Decode batch, #running-req: %d, #token: %d, token usage: %.2f, %scpu graph: False, "
            "gen throughput (token/s): %.2f, #queue-req: %d",
            event.running,
            event.used_tokens,
            _usage(event.used_tokens, event.max_total_num_tokens),
            accept,
            event.gen_throughput,
            event.queued,
        )

    def first_verify(self, event: FirstVerify) -> None:
        self._logger.info("%s verify completed. num_correct_drafts_per_req=%s", event.algorithm.value, list(event.correct_drafts))

    def setting_changed(self, event: SettingChange) -> None:
        old, new = (AUTO if event.name == BUDGET_NAME and value == 0 else f"{value:g}" for value in (event.old, event.new))
        if event.accepted:
            self._logger.info("Hot change applied. %s: %s -> %s (from /set_internal_state)", event.name, old, new)
        else:
            self._logger.warning(
                "Hot change refused. %s: %s -> %s (from /set_internal_state): %s",
                event.name,
                old,
                new,
                event.reason or "the engine does not take this value",
            )

    def costs_measured(self, event: CostsMeasured) -> None:
        curves = "; ".join(
            f"at {context} tokens " + ", ".join(f"{rows} rows {ms:.1f}" for rows, ms in curve)
            for context, curve in event.curves.items()
        )
        self._logger.info(
            "Measured the cost of a round in %.2f s for the automatic tree budget. draft: %.1f ms; verify (ms): %s",
            event.seconds,
            event.draft_ms,
            curves,
        )

    def warning(self, message: str) -> None:
        self._logger.warning("%s", message)

    def failed(self, error: BaseException) -> None:
        """In the words with which SGLang's scheduler ends, so that the stack is found and folded in the same way."""
        self._logger.error("Scheduler hit an exception: %s", "".join(traceback.format_exception(error)).rstrip())


def _usage(used: int, total: int) -> float:
    return used / total if total else 0.0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
