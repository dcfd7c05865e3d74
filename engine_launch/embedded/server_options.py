"""What the server is started with: the engine's options and those of its HTTP face, from parsed flags."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.logs import MASKED
from engine_launch.embedded.options import (
    DEFAULT_DECODE_LOG_INTERVAL,
    DEFAULT_MAX_RUNNING_REQUESTS,
    DEFAULT_TREE_BUDGET,
    DEFAULT_TREE_TOPK,
    PACKAGED_DRAFTER,
    EngineOptions,
)
from engine_launch.local_paths import expanded
from engine_launch.spec.checks import algorithm, block_size
from engine_launch.spec.flags import ParsedFlags

DEFAULT_MODEL_NAME = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class ServerOptions:
    """Options of one ``ddtree-launch serve --engine embedded``."""

    engine: EngineOptions
    host: str
    port: int
    """0 takes a free port."""
    served_model_name: str
    api_key: str | None = field(default=None, repr=False)
    admin_api_key: str | None = field(default=None, repr=False)
    enable_metrics: bool = False
    log_level: str = "info"
    stream_usage: bool = False
    """Streams end with their usage even when the client does not ask."""
    quiet_paths: tuple[str, ...] = ()
    """Prefixes of paths whose requests leave no access line."""

    @property
    def model_path(self) -> str:
        return str(self.engine.model) if self.engine.model else DEFAULT_MODEL_NAME

    @property
    def drafter(self) -> Path | None:
        """The draft checkpoint's folder; ``None`` for plain decoding."""
        if self.engine.algorithm is Algorithm.PLAIN:
            return None
        return self.engine.draft_path or PACKAGED_DRAFTER


def server_options(parsed: ParsedFlags) -> ServerOptions:
    """Turn flags that :func:`engine_launch.spec.checks.check_embedded` has passed into options.

    Raises:
        FlagError: a rule between flags is broken.
    """
    name = algorithm(parsed)
    model = _path(parsed, "--model-path")
    seed = _int(parsed, "--random-seed")
    engine = EngineOptions(
        model=model,
        draft_path=_path(parsed, "--speculative-draft-model-path"),
        algorithm=Algorithm.PLAIN if name is None else Algorithm(name),
        block_size=block_size(parsed),
        tree_budget=_budget(parsed),
        tree_topk=_int(parsed, "--speculative-ddtree-topk") or DEFAULT_TREE_TOPK,
        draft_window=0 if name is None else _int(parsed, "--speculative-draft-window-size") or 0,
        layers_window=_layers_window(parsed),
        dtype=_dtype(parsed),
        max_running_requests=_int(parsed, "--max-running-requests") or DEFAULT_MAX_RUNNING_REQUESTS,
        context_length=_int(parsed, "--context-length"),
        decode_log_interval=_int(parsed, "--decode-log-interval") or DEFAULT_DECODE_LOG_INTERVAL,
        prefix_cache=parsed.value("--disable-radix-cache") is not True,
        # Drawn here and not in the engine, so that the log line with the arguments tells it.
        random_seed=secrets.randbelow(1 << 30) if seed is None else seed,
    )
    return ServerOptions(
        engine=engine,
        host=str(parsed.value("--host")),
        port=_int(parsed, "--port") or 0,
        served_model_name=_text(parsed, "--served-model-name") or (str(model) if model else DEFAULT_MODEL_NAME),
        api_key=_text(parsed, "--api-key"),
        admin_api_key=_text(parsed, "--admin-api-key"),
        enable_metrics=parsed.value("--enable-metrics") is True,
        log_level=str(parsed.value("--log-level")),
        stream_usage=parsed.value("--stream-response-default-include-usage") is True,
        quiet_paths=tuple((_text(parsed, "--uvicorn-access-log-exclude-prefixes") or "").split()),
    )


def server_args(options: ServerOptions) -> dict[str, object]:
    """The effective value of every flag that the engine honours, under SGLang's names; secrets are masked.

    Beside them stand the facts of this engine that a reader of SGLang's report looks for (one process, no GPU).
    """
    engine = options.engine
    layers = engine.layers_window
    drafts = engine.algorithm is not Algorithm.PLAIN
    return {
        "model_path": options.model_path,
        "tokenizer_path": options.model_path,
        "served_model_name": options.served_model_name,
        "device": "cpu",
        "dtype": engine.dtype,
        "host": options.host,
        "port": options.port,
        "api_key": MASKED if options.api_key else None,
        "admin_api_key": MASKED if options.admin_api_key else None,
        "context_length": engine.context_length,
        "max_running_requests": engine.max_running_requests,
        "random_seed": engine.random_seed,
        "disable_radix_cache": not engine.prefix_cache,
        "tp_size": 1,
        "dp_size": 1,
        "pp_size": 1,
        "page_size": 1,
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "speculative_algorithm": engine.algorithm.value if drafts else None,
        "speculative_draft_model_path": str(options.drafter) if drafts else None,
        "speculative_num_draft_tokens": engine.block_size if drafts else None,
        "speculative_dflash_block_size": engine.block_size if drafts else None,
        "speculative_ddtree_budget": engine.tree_budget if engine.algorithm is Algorithm.DDTREE else None,
        "speculative_ddtree_topk": engine.tree_topk if engine.algorithm is Algorithm.DDTREE else None,
        "speculative_draft_window_size": engine.draft_window or None,
        "speculative_draft_layers_window": layers if drafts else None,
        "enable_metrics": options.enable_metrics,
        "decode_log_interval": engine.decode_log_interval,
        "log_level": options.log_level,
        "uvicorn_access_log_exclude_prefixes": list(options.quiet_paths),
        "stream_response_default_include_usage": options.stream_usage,
        "skip_server_warmup": True,
        "weight_version": "default",
    }


def _int(parsed: ParsedFlags, name: str) -> int | None:
    value = parsed.value(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(parsed: ParsedFlags, name: str) -> str | None:
    value = parsed.value(name)
    return None if value is None else str(value)


def _path(parsed: ParsedFlags, name: str) -> Path | None:
    text = _text(parsed, name)
    return None if text is None else expanded(text)


def _budget(parsed: ParsedFlags) -> int | Literal["auto"]:
    value = parsed.value("--speculative-ddtree-budget")
    return "auto" if value == "auto" else _int(parsed, "--speculative-ddtree-budget") or DEFAULT_TREE_BUDGET


def _layers_window(parsed: ParsedFlags) -> int | Literal["config", "off"]:
    name = "--speculative-draft-layers-window"
    number = _int(parsed, name)
    if number is not None:
        return number
    return "off" if parsed.value(name) == "off" else "config"


def _dtype(parsed: ParsedFlags) -> Literal["auto", "float32", "bfloat16"]:
    match parsed.value("--dtype"):
        case "float32":
            return "float32"
        case "bfloat16":
            return "bfloat16"
        case _:
            return "auto"
