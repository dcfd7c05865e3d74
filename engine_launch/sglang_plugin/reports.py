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
from engine_launch.sglang_plugin.arguments import block_of
from engine_launch.sglang_plugin.flags import asked_for
from engine_launch.sglang_plugin.options import Limits, Options

_installed: set[str] = set()
"""Names of SGLang's functions that are wrapped in this process."""


def install_in_front_end() -> None:
    """Wrap the tokenizer manager's functions, and the warm-up if a self-test is asked for.

    They are made for whoever runs DDTREE: a process may hold several engines, and each asks what its own arguments say.
    """
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    manager = f"{TokenizerManager.__module__}.{TokenizerManager.__qualname__}"
    _wrap(f"{manager}.resolved_config_dict", _for_ddtree(with_start_values))
    _wrap(f"{manager}._calculate_spec_decoding_metrics", _for_ddtree(with_block))
    _wrap(f"{manager}.release_memory_occupation", _for_ddtree(weights.release))
    if Options.load().self_test:
        _wrap("sglang.srt.entrypoints.http_server._wait_and_warmup", _for_ddtree(with_self_test))


def _wrap(name: str, around: Callable[..., Any]) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if name not in _installed:
        _installed.add(name)
        HookRegistry.register(name, around, HookType.AROUND)
        HookRegistry.apply_hooks()


def _for_ddtree(around: Callable[..., Any]) -> Callable[..., Any]:
    """``around`` where the server runs DDTREE, else the original alone.

    The first argument is who has the server's arguments, or they are ``server_args``: SGLang starts its warm-up by names alone.
    """

    def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        arguments = getattr(args[0], "server_args", args[0]) if args else kwargs["server_args"]
        return around(original, *args, **kwargs) if asked_for(arguments.speculative_algorithm) else original(*args, **kwargs)

    return hook


def with_start_values(original: Callable[..., dict[str, Any]], manager: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The resolved arguments, and the plugin's flags beside them."""
    arguments = manager.server_args
    limits = Options.load().resolve(block_of(arguments), arguments.speculative_draft_window_size)
    return {**original(manager, *args, **kwargs), **start_values(limits)}


def with_block(
    original: Callable[..., None], manager: Any, meta_info: MutableMapping[str, Any], *args: Any, **kwargs: Any
) -> None:
    """A request's figures, counted as :func:`count_by_block` does."""
    original(manager, meta_info, *args, **kwargs)
    count_by_block(meta_info, block_of(manager.server_args))


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
        if self_test.check(args.url(), args.api_key, args.skip_tokenizer_init, args.ssl_verify()):
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
