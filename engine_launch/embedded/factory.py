"""From start-up options to a running engine: every check that needs no weights comes first, then loading.

Importing this module is cheap; torch is imported by :func:`build_engine`, after the checks.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine_launch.embedded import hot_settings
from engine_launch.embedded.admission import EngineLimits
from engine_launch.embedded.api import AUTO, Algorithm, EngineError, Settings
from engine_launch.embedded.events import (
    DraftRunnerReady,
    EngineLog,
    KvPoolReady,
    LoadEnd,
    LoadProgress,
    ModelPart,
    SchedulerReady,
)
from engine_launch.embedded.model_files import find_prepared, prepare, resolve_model
from engine_launch.embedded.options import CHUNKED_PREFILL_SIZE, MAX_BLOCK_SIZE, PACKAGED_DRAFTER, EngineOptions
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.spec.drafter_check import Severity, TargetShape, check_drafter, taps
from engine_launch.spec.drafter_config import DrafterConfig, DrafterConfigError, load_drafter_config

if TYPE_CHECKING:
    from engine_launch.embedded.drafter import DFlashDrafter
    from engine_launch.embedded.engine import EmbeddedEngine
    from engine_launch.embedded.target import TargetModel

BACKEND = "torch_native"
"""SGLang's name for attention in plain torch."""
POOL_SHARE = 0.5
"""Share of the memory available at start that the target's KV may grow to."""

PREFIX_SHARE = 0.1
"""Share of the memory available at start that may be kept for requests with a beginning that was there before."""


@dataclass(frozen=True)
class DrafterPlan:
    """A drafter that fits its target, before its weights are read."""

    folder: Path
    config: DrafterConfig
    taps: tuple[int, ...]
    mask_token_id: int
    block_size: int
    layers_window: int


def check_options(options: EngineOptions) -> DrafterConfig | None:
    """Check what can be checked without the target: values, and the drafter's configuration, which is returned.

    Raises:
        EngineError: with one sentence about the first thing that is wrong.
    """
    if options.max_running_requests < 1:
        raise EngineError(f"max-running-requests is {options.max_running_requests}; at least 1 is needed")
    if options.decode_log_interval < 1:
        raise EngineError(f"decode-log-interval is {options.decode_log_interval}; at least 1 round is needed")
    if options.context_length is not None and options.context_length < 2:
        raise EngineError(f"context-length is {options.context_length}; at least 2 tokens are needed")
    if options.algorithm is Algorithm.PLAIN:
        return None
    budget = "" if options.tree_budget == AUTO else hot_settings.budget_refusal(int(options.tree_budget))
    for reason in (budget, hot_settings.topk_refusal(options.tree_topk)):
        if reason:
            raise EngineError(reason)
    folder = options.draft_path or PACKAGED_DRAFTER
    try:
        config = load_drafter_config(folder)
    except DrafterConfigError as error:
        raise EngineError(f"the drafter cannot be used: {error}") from error
    block = config.block_size if options.block_size is None else options.block_size
    if not 2 <= block <= MAX_BLOCK_SIZE:
        raise EngineError(f"the block size is {block}; 2 (anchor and one draft) to {MAX_BLOCK_SIZE} are possible")
    if reason := hot_settings.window_refusal(options.draft_window, block):
        raise EngineError(reason)
    layers = options.layers_window
    if isinstance(layers, int) and layers != 0 and not block <= layers <= hot_settings.MAX_WINDOW:
        raise EngineError(
            f"the layers' window is {layers}; off or at least the block size of {block} is needed, and at most "
            f"{hot_settings.MAX_WINDOW}"
        )
    if not (folder / "model.safetensors").is_file():
        raise EngineError(f"the drafter's weights {folder / 'model.safetensors'} do not exist")
    return config


def plan_drafter(options: EngineOptions, config: DrafterConfig, target: TargetConfig) -> DrafterPlan:
    """Hold a drafter's configuration against the target it shall draft for.

    Raises:
        EngineError: they do not fit.
    """
    folder = options.draft_path or PACKAGED_DRAFTER
    shape = TargetShape("the target", target.hidden_size, target.num_hidden_layers, target.vocab_size)
    found = check_drafter(config, shape, None)
    errors = [finding.message for finding in found if finding.severity is Severity.ERROR]
    if config.rope_scaling_type is not None:
        errors.append(f"it uses {config.rope_scaling_type} RoPE scaling, which the embedded engine does not run.")
    if config.architecture != "DFlashDraftModel":
        errors.append(f"{config.architecture} is not run by the embedded engine.")
    if errors or config.mask_token_id is None:
        raise EngineError(f"the drafter {folder} does not fit: {errors[0]}")
    window = {"config": config.sliding_window or 0, "off": 0}.get(str(options.layers_window))
    layers_window = int(options.layers_window) if window is None else window
    return DrafterPlan(
        folder=folder,
        config=config,
        taps=taps(config, shape),
        mask_token_id=config.mask_token_id,
        block_size=config.block_size if options.block_size is None else options.block_size,
        layers_window=layers_window if config.sliding_layers else 0,
    )


def build_engine(options: EngineOptions, log: EngineLog) -> EmbeddedEngine:
    """Check, load and start.

    Raises:
        EngineError: something is wrong with the options or the files; one sentence for the user.
    """
    draft_config = check_options(options)
    gguf = resolve_model(options.model)
    dtype = _dtype(options.dtype)
    found = find_prepared(gguf, dtype)
    # With the dequantised copy at hand the drafter can be held against the target before torch is even imported.
    plan = plan_drafter(options, draft_config, found.config) if draft_config and found else None

    # Threads that wait for each other by spinning make a step five times slower as soon as anything else wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from engine_launch.embedded.engine import EmbeddedEngine
    from engine_launch.embedded.prefix_cache import MAX_BYTES
    from engine_launch.embedded.target_loader import load_target
    from engine_launch.embedded.tokenizer import Tokenizer

    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    begin = time.monotonic()
    log.loading(LoadProgress(ModelPart.TARGET, 0, 1))
    prepared = found or prepare(gguf, dtype, lambda done, total: log.loading(LoadProgress(ModelPart.TARGET, done, total)))
    if draft_config and plan is None:
        plan = plan_drafter(options, draft_config, prepared.config)
    context = options.context_length or prepared.config.max_position_embeddings
    if context > prepared.config.max_position_embeddings:
        raise EngineError(
            f"context-length is {context}; the model was trained for at most {prepared.config.max_position_embeddings} tokens"
        )
    target = load_target(prepared, lambda done, total: log.loading(LoadProgress(ModelPart.TARGET, done, total)))
    log.loaded(LoadEnd(ModelPart.TARGET, time.monotonic() - begin, "LlamaForCausalLM", dtype, target.weight_bytes))
    tokenizer = Tokenizer.load(prepared.folder)
    drafter = None if plan is None else _load_drafter(plan, target, context, log)
    settings = _settings(options, plan)
    if drafter is not None and plan is not None:
        log.draft_runner(_draft_runner(settings, plan, tokenizer.token_text(plan.mask_token_id)))
    dtype_bytes = target.embed.element_size()
    pool = _pool_tokens(prepared.config.kv_bytes_per_token(dtype_bytes), options.max_running_requests * context, context)
    _log_pools(log, dtype, pool, prepared.config, plan, dtype_bytes)
    log.scheduler(SchedulerReady(pool, CHUNKED_PREFILL_SIZE, context, options.max_running_requests, context))
    limits = EngineLimits(
        context_length=context,
        max_running_requests=options.max_running_requests,
        max_total_num_tokens=pool,
        chunked_prefill_size=CHUNKED_PREFILL_SIZE,
        decode_log_interval=options.decode_log_interval,
        random_seed=options.random_seed,
        prefix_cache_bytes=int(min(MAX_BYTES, _available_bytes() * PREFIX_SHARE)) if options.prefix_cache else 0,
    )
    return EmbeddedEngine(target, drafter, tokenizer, settings, limits, log)


def cpu_has_fast_bf16(cpuinfo: str) -> bool:
    """Whether ``/proc/cpuinfo`` lists instructions that make bf16 products faster than fp32 ones."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _dtype(asked: str) -> str:
    if asked != "auto":
        return asked
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "float32"
    return "bfloat16" if cpu_has_fast_bf16(cpuinfo) else "float32"


def _settings(options: EngineOptions, plan: DrafterPlan | None) -> Settings:
    if plan is None:
        return Settings(Algorithm.PLAIN, False, 0, 0, 0, 0, 0)
    tree = options.algorithm is Algorithm.DDTREE
    return Settings(
        algorithm=options.algorithm,
        speculation=True,
        block_size=plan.block_size,
        tree_budget=int(options.tree_budget) if tree and options.tree_budget != AUTO else 0,
        tree_topk=options.tree_topk if tree else 0,
        draft_window=options.draft_window,
        layers_window=plan.layers_window,
    )


def _load_drafter(plan: DrafterPlan, target: TargetModel, context: int, log: EngineLog) -> DFlashDrafter:
    from engine_launch.embedded.drafter_loader import load_drafter

    begin = time.monotonic()
    log.loading(LoadProgress(ModelPart.DRAFT, 0, 1))
    drafter = load_drafter(plan, target, context)
    log.loading(LoadProgress(ModelPart.DRAFT, 1, 1))
    dtype = str(drafter.dtype).removeprefix("torch.")
    log.loaded(LoadEnd(ModelPart.DRAFT, time.monotonic() - begin, plan.config.architecture, dtype, drafter.weight_bytes))
    return drafter


def _draft_runner(settings: Settings, plan: DrafterPlan, mask_token: str) -> DraftRunnerReady:
    return DraftRunnerReady(
        algorithm=settings.algorithm,
        attention_backend=BACKEND,
        model_class=plan.config.architecture,
        block_size=settings.block_size,
        tree_budget=settings.budget_text,
        tree_topk=settings.tree_topk,
        layers_window=settings.layers_window,
        draft_window=settings.draft_window,
        mask_token=mask_token,
        mask_token_id=plan.mask_token_id,
    )


def _pool_tokens(bytes_per_token: int, wanted: int, least: int) -> int:
    """How many tokens of target KV running requests may reserve: what they could use, within the memory there is."""
    available = _available_bytes()
    return max(min(wanted, int(available * POOL_SHARE) // bytes_per_token), least) if available < math.inf else wanted


def _available_bytes() -> float:
    """Memory that could be taken without swapping; infinite where ``/proc/meminfo`` does not tell."""
    try:
        meminfo = Path("/proc/meminfo").read_text(encoding="utf-8")
        lines = dict(line.split(":", 1) for line in meminfo.splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return math.inf


def _log_pools(log: EngineLog, dtype: str, tokens: int, target: TargetConfig, plan: DrafterPlan | None, dtype_bytes: int) -> None:
    half = target.kv_bytes_per_token(dtype_bytes) // 2 * tokens
    log.kv_pool(KvPoolReady(ModelPart.TARGET, dtype, tokens, half, half))
    if plan is not None:
        half = plan.config.kv_bytes_per_token_and_layer(dtype_bytes) // 2 * plan.config.num_layers * tokens
        log.kv_pool(KvPoolReady(ModelPart.DRAFT, dtype, tokens, half, half))
