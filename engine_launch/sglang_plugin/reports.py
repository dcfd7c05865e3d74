"""The front end's part: start values in ``/server_info``, a request's ``spec_*`` figures in ``meta_info``, the self-test, and
that no memory is released which would not come back.

The first two are put together in the front end's process, where the plugin's flags are not fields of ``ServerArgs`` and where
SGLang takes ``speculative_num_draft_tokens - 1`` for the drafts of a round, which is no tree's number of anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping
from typing import Any

from engine_launch.sglang_plugin import self_test, weights
from engine_launch.sglang_plugin.options import Limits, Options


def install_in_front_end(server_args: Any) -> None:
    """Wrap the tokenizer manager's functions, and the warm-up if a self-test is asked for, of a server that runs DDTREE."""
    from sglang.srt.managers.tokenizer_manager import TokenizerManager
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    options = Options.load()
    limits = options.resolve(int(server_args.speculative_dflash_block_size), server_args.speculative_draft_window_size)
    start = start_values(limits)

    def with_start_values(original: Callable[..., dict[str, Any]], *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**original(*args, **kwargs), **start}

    def with_block(original: Callable[..., None], manager: Any, meta: MutableMapping[str, Any], *args: Any) -> None:
        original(manager, meta, *args)
        count_by_block(meta, limits.block)

    target = f"{TokenizerManager.__module__}.{TokenizerManager.__qualname__}"
    HookRegistry.register(f"{target}.resolved_config_dict", with_start_values, HookType.AROUND)
    HookRegistry.register(f"{target}._calculate_spec_decoding_metrics", with_block, HookType.AROUND)
    HookRegistry.register(f"{target}.release_memory_occupation", weights.release, HookType.AROUND)
    if options.self_test:
        HookRegistry.register("sglang.srt.entrypoints.http_server._wait_and_warmup", with_self_test, HookType.AROUND)
    HookRegistry.apply_hooks()


def with_self_test(
    original: Callable[..., None],
    server_args: Any,
    launch_callback: Callable[[], None] | None = None,
    execute_warmup_func: Callable[[Any], bool] | None = None,
) -> None:
    """Make the self-test a part of the warm-up, which the server's *ready* line waits for."""
    from sglang.srt.entrypoints.http_server import _execute_server_warmup
    from sglang.srt.utils import kill_process_tree

    warm_up = execute_warmup_func or _execute_server_warmup

    def checked(args: Any) -> bool:
        if not warm_up(args):
            return False
        if self_test.check(args.url(), args.api_key, args.skip_tokenizer_init):
            return True
        kill_process_tree(os.getpid())
        return False

    original(server_args, launch_callback, checked)


def start_values(limits: Limits) -> dict[str, Any]:
    """The plugin's flags as fields of ``/server_info``."""
    return {
        "speculative_ddtree_budget": limits.budget,
        "speculative_ddtree_topk": limits.topk,
        "speculative_ddtree_max_budget": limits.max_budget,
        "speculative_ddtree_max_topk": limits.max_topk,
        "speculative_ddtree_verify_widths": list(limits.widths),
        "speculative_ddtree_draft_pool": "ring" if limits.ring_window else "stock",
    }


def count_by_block(meta: MutableMapping[str, Any], block: int) -> None:
    """Proposed drafts of a tree: the positions that it could have filled, so that its accept rate compares with a chain's."""
    rounds = meta.get("spec_verify_ct")
    if not rounds or "spec_num_correct_drafts" not in meta:
        return
    proposed = int(rounds) * (block - 1)
    meta["spec_num_proposed_drafts"] = meta["spec_proposed_drafts"] = proposed
    meta["spec_accept_rate"] = meta["spec_num_correct_drafts"] / proposed if proposed else 0.0
