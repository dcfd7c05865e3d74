"""Does this SGLang have every name that the plugin touches, with the parameters that it passes?

A list of versions would be wrong as soon as somebody patches a build, and says nothing about a newer one. So each name is
looked up and each function's parameters are compared; what is missing is named, and DDTREE then refuses to start.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

TESTED_VERSION = "0.5.17"
"""The release against which the plugin was written and measured."""


@dataclass(frozen=True)
class Need:
    """One name: ``module:attribute.path``, and parameters that it must take (none to look for the name alone)."""

    name: str
    parameters: tuple[str, ...] = ()
    called: bool = True
    """The plugin gives just these parameters, so that no other may be required; else SGLang's own caller gives the others."""


@dataclass(frozen=True)
class Finding:
    """A need that this SGLang does not meet."""

    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.name.replace(':', '.')} {self.problem}"


_S = "sglang.srt."
_UPDATER = _S + "managers.scheduler_components.weight_updater:SchedulerWeightUpdaterManager."
_FIELDS: tuple[str, ...] = (
    "attn_cp_size",
    "dcp_size",
    "device",
    "disaggregation_mode",
    "enable_deterministic_inference",
    "enable_dp_attention",
    "enable_hierarchical_cache",
    "enable_multi_layer_eagle",
    "enable_page_major_kv_layout",
    "enable_pdmux",
    "enable_strict_thinking",
    "enable_two_batch_overlap",
    "enable_unified_memory",
    "kv_canary",
    "kv_cache_dtype",
    "max_running_requests",
    "page_size",
    "pp_size",
    "preferred_sampling_params",
    "skip_server_warmup",
    "speculative_accept_threshold_acc",
    "speculative_accept_threshold_single",
    "speculative_adaptive",
    "speculative_dflash_block_size",
    "speculative_draft_attention_backend",
    "speculative_draft_model_path",
    "speculative_draft_window_size",
    "speculative_num_draft_tokens",
    "speculative_use_rejection_sampling",
    "tokenizer_worker_num",
    "url",
    "ssl_verify",
    "get_tokenizer_worker_class",
    "override",
)
"""Of ``ServerArgs``. One with another name would lift a refusal in silence."""
REGISTRATION: tuple[Need, ...] = (
    Need(_S + "speculative.spec_info:SpeculativeAlgorithm.register", ("name", "supports_overlap", "spec_class")),
    Need(_S + "speculative.spec_info:SpeculativeAlgorithm.create_future_map"),
    Need(_S + "speculative.spec_registry:get_spec"),
    Need(_S + "speculative.spec_registry:CustomSpecAlgo.handle_server_args", ("server_args",)),
    Need(_S + "speculative.spec_registry:CustomSpecAlgo.create_worker", ("server_args",)),
    Need(
        _S + "speculative.spec_registry:CustomSpecAlgo.get_num_tokens_per_req_for_target_verify",
        ("num_draft_tokens", "is_draft_worker"),
    ),
    Need(_S + "server_args:ServerArgs.add_cli_args", ("parser",)),
    Need(_S + "server_args:ServerArgs.from_cli_args", ("args",)),
    Need(_S + "plugins.hook_registry:HookRegistry.register", ("target", "hook", "hook_type")),
    Need(_S + "plugins.hook_registry:HookType.AROUND"),
)
"""Without these the algorithm cannot even be registered."""

RUNNING: tuple[Need, ...] = (
    Need(_S + "arg_groups.speculative_hook:_handle_dflash", ("server_args",)),
    Need(_S + "arg_groups.overrides:resolved_view"),
    Need(_S + "arg_groups.overrides:attention_backends_of"),
    Need(_S + "runtime_context:get_exec"),
    Need(_S + "runtime_context:get_parallel"),
    Need(_S + "distributed:get_tp_group"),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2", ("server_args", "gpu_id", "ps", "nccl_port", "target_worker")),
    Need(
        _S + "speculative.dflash_worker_v2:DFlashWorkerV2.forward_batch_generation",
        ("batch", "on_publish", "grammar_barrier"),
    ),
    Need(
        _S + "speculative.dflash_worker_v2:DFlashWorkerV2._append_target_hidden_to_draft_kv_by_loc",
        ("target_hidden", "cache_loc", "positions", "cache_loc_2d", "commit_lens"),
    ),
    Need(
        _S + "speculative.dflash_worker_v2:DFlashWorkerV2._fill_compact_seq_lens_cpu_bound",
        ("batch_seq_lens_cpu", "reserved_seq_lens_cpu", "draft_prefix_lens", "out"),
    ),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2._ensure_draft_block_buffers", ("bs",)),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2._maybe_build_draft_sampler"),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2._make_next_draft_input_decode", ("bonus_tokens", "new_seq_lens")),
    Need(
        _S + "speculative.dflash_info:DFlashVerifyInput",
        ("draft_token", "positions", "draft_token_num", "custom_mask", "capture_hidden_mode"),
    ),
    Need(_S + "speculative.dflash_info_v2:DFlashDraftInputV2.prepare_for_decode", ("batch",)),
    Need(
        _S + "speculative.dflash_utils:apply_dflash_verify_logits_adjustments",
        ("next_token_logits", "sampling_info", "draft_token_num"),
    ),
    Need(
        _S + "speculative.dflash_utils:scale_kv_cell_size_per_token_for_dflash",
        ("target_cell_size_per_token", "target_num_layers", "draft_num_layers", "draft_cell_size_per_token"),
    ),
    Need(
        _S + "speculative.dflash_worker_v2:DFlashWorkerV2.alloc_memory_pool",
        ("memory_pool_config", "req_to_token_pool", "token_to_kv_pool_allocator"),
    ),
    Need(
        _S + "model_executor.pool_configurator:MemoryPoolConfig",
        ("max_total_num_tokens", "max_running_requests"),
    ),
    Need(
        _S + "model_executor.pool_configurator:DefaultPoolConfigurator.calculate_pool_sizes",
        ("available_bytes", "page_size"),
    ),
    Need(_S + "mem_cache.base_prefix_cache:BasePrefixCache.swa_reprefill_tail_tokens"),
    Need(_S + "mem_cache.memory_pool:MHATokenToKVPool.get_kv_size_bytes"),
    Need(_S + "mem_cache.memory_pool:MLATokenToKVPool.get_kv_size_bytes"),
    Need(_S + "speculative.dflash_utils:validate_dflash_request", ("req", "enable_overlap")),
    Need(_S + "speculative.dflash_utils:get_dflash_attention_sliding_window_size", ("config",)),
    Need(_S + "speculative.spec_utils:spec_need_hidden_states", ("server_args",)),
    Need(_S + "mem_cache.allocation_sizing:get_req_to_token_extra_context_len", ("server_args",)),
    Need(
        _S + "model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner",
        ("model_runner", "attn_backend", "speculative_num_draft_tokens"),
    ),
    Need(_S + "model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner.get_spec_info", ("num_tokens",)),
    Need(_S + "model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner.load_batch", ("forward_batch",)),
    Need(_S + "model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner.can_run_graph", ("forward_batch",)),
    Need(_S + "model_executor.model_runner:ModelRunner._extend_forward_kwargs", ("forward_batch", "pp_proxy_tensors")),
    Need(
        _S + "model_executor.forward_batch_info:ForwardBatch.init_new",
        ("batch", "model_runner", "capture_hidden_mode", "return_hidden_states_before_norm"),
    ),
    Need(
        _S + "model_executor.forward_batch_info:ForwardBatch",
        (
            *("forward_mode", "batch_size", "input_ids", "req_pool_indices", "seq_lens", "out_cache_loc", "seq_lens_sum"),
            *("seq_lens_cpu", "positions", "input_embeds", "spec_algorithm", "spec_info", "capture_hidden_mode"),
        ),
    ),
    Need(_S + "model_executor.forward_batch_info:ForwardMode.TARGET_VERIFY"),
    Need(_S + "model_executor.forward_batch_info:CaptureHiddenMode.FULL"),
    Need(_S + "model_executor.forward_batch_info:CaptureHiddenMode.NULL"),
    Need(_S + "speculative.spec_info:SpeculativeAlgorithm.DFLASH"),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2.init_attention_backends"),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2.init_cuda_graphs"),
    Need(
        _S + "managers.tp_worker:TpModelWorker.forward_batch_generation",
        ("batch", "forward_batch", "is_verify", "skip_attn_backend_init"),
    ),
    Need(_S + "sampling.sampling_params:SamplingParams", ("max_new_tokens",)),
    Need(_S + "sampling.sampling_params:SamplingParams.normalize", ("tokenizer",)),
    Need(
        _S + "layers.attention.triton_backend:TritonAttnBackend.init_cuda_graph_state",
        ("max_bs", "max_num_tokens", "kv_indices_buf"),
    ),
    Need(_S + "layers.attention.triton_backend:TritonAttnBackend.verify_mask"),
    Need(_S + "layers.attention.triton_backend:TritonAttnBackend.init_forward_metadata", ("forward_batch",)),
    Need(_S + "layers.attention.verify_mask:VerifyMask"),
    Need(
        "sglang.kernels.ops.attention.extend_attention:extend_attention_fwd",
        ("custom_mask", "skip_prefix_custom_mask"),
        called=False,
    ),
    Need(
        _S + "layers.sampler:top_k_top_p_min_p_sampling_from_probs_torch",
        ("probs", "top_ks", "top_ps", "min_ps", "need_min_p_sampling", "sampling_seed", "positions"),
    ),
    Need(
        _S + "managers.utils:GenerationBatchResult",
        ("logits_output", "next_token_ids", "accept_lens", "next_draft_input", "speculative_num_draft_tokens", "new_seq_lens"),
    ),
    Need(_S + "managers.schedule_batch:Req.update_finish_state", ("new_accepted_len",)),
    Need(_S + "managers.scheduler:Scheduler.set_internal_state", ("recv_req",)),
    Need(_S + "managers.scheduler:Scheduler.get_internal_state", ("recv_req",)),
    Need(_S + "managers.scheduler:Scheduler.init_metrics_reporter"),
    Need(_S + "managers.scheduler:Scheduler.init_req_max_new_tokens", ("req",)),
    Need(_S + "utils.async_probe:sanitize_nan_logits", ("logits", "msg")),
    Need(_UPDATER + "update_weights_from_disk", ("recv_req",)),
    Need(_UPDATER + "update_weights_from_distributed", ("recv_req",)),
    Need(_UPDATER + "update_weights_from_tensor", ("recv_req",)),
    Need(_UPDATER + "update_weights_from_ipc", ("recv_req",)),
    Need(_UPDATER + "check_weights", ("recv_req",)),
    Need(_S + "model_executor.model_runner_components.weight_updater:WeightUpdater._model_update_group"),
    Need(_S + "managers.io_struct:UpdateWeightFromDiskReqOutput"),
    Need(_S + "managers.io_struct:UpdateWeightsFromDistributedReqOutput"),
    Need(_S + "managers.io_struct:UpdateWeightsFromTensorReqOutput"),
    Need(_S + "managers.io_struct:UpdateWeightsFromIPCReqOutput"),
    Need(_S + "managers.io_struct:CheckWeightsReqOutput"),
    Need(_S + "managers.tp_worker:TpModelWorker.update_weights_from_tensor", ("recv_req",)),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2.update_weights_from_disk", ("recv_req",)),
    Need(_S + "speculative.dflash_worker_v2:DFlashWorkerV2.update_weights_from_ipc", ("recv_req",)),
    Need(_S + "managers.tokenizer_manager:TokenizerManager.release_memory_occupation", ("obj", "request")),
    Need(_S + "managers.io_struct:SetInternalStateReqOutput"),
    Need(_S + "managers.tokenizer_manager:TokenizerManager.resolved_config_dict", ("base",)),
    Need(_S + "managers.tokenizer_manager:TokenizerManager._calculate_spec_decoding_metrics", ("meta_info",), called=False),
    Need(_S + "entrypoints.http_server:_wait_and_warmup", ("server_args", "launch_callback", "execute_warmup_func")),
    Need(_S + "entrypoints.http_server:_execute_server_warmup", ("server_args",)),
    Need(_S + "utils:kill_process_tree", ("parent_pid",)),
    *(Need(f"{_S}server_args:ServerArgs.{name}") for name in _FIELDS),
    Need(_S + "managers.multi_tokenizer_mixin:get_tokenizer_worker_class", ("server_args",)),
)
"""What the worker and its hooks use."""


def check(needs: Iterable[Need] = (*REGISTRATION, *RUNNING)) -> list[Finding]:
    """What is missing, in the order of the list; empty when DDTREE can run. Imports SGLang's modules."""
    return [finding for need in needs if (finding := _look(need)) is not None]


def sglang_version() -> str | None:
    """Version of the installed SGLang, or ``None``."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def refusal(findings: Iterable[Finding]) -> str:
    """One sentence for the user: what is missing and what to do."""
    missing = "; ".join(str(finding) for finding in findings)
    return (
        f"DDTREE cannot run on this SGLang ({sglang_version() or 'version unknown'}): {missing}. "
        f"The plugin is tested with SGLang {TESTED_VERSION}: install that version, or a newer ddtree-console."
    )


def _look(need: Need) -> Finding | None:
    module, _, path = need.name.partition(":")
    try:
        found: object = importlib.import_module(module)
    except Exception as error:  # an import may fail in any way: a missing package, a missing library, no GPU
        return Finding(need.name, f"cannot be imported ({type(error).__name__}: {error})")
    for part in path.split("."):
        try:
            found = inspect.getattr_static(found, part)
        except AttributeError:
            return Finding(need.name, "is not there")
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
    if not need.parameters:
        return None
    if not callable(found):
        return Finding(need.name, "is not callable")
    try:
        known = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return Finding(need.name, "has no signature that can be read")
    absent = [name for name in need.parameters if name not in known]
    if absent:
        return Finding(need.name, f"does not take {', '.join(absent)}")
    more = [name for name, parameter in known.items() if _required(parameter) and name not in (*need.parameters, "self", "cls")]
    return Finding(need.name, f"asks for {', '.join(more)}") if more and need.called else None


def _required(parameter: inspect.Parameter) -> bool:
    collects = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not collects
