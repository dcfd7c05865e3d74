"""DDTREE's flags in SGLang's own parser, and the way of their values to the schedulers.

``ServerArgs.add_cli_args`` and ``ServerArgs.from_cli_args`` are wrapped: the first gets the flags, the second leaves their
values in the environment (see :mod:`~engine_launch.sglang_plugin.options`) before ``ServerArgs`` checks itself.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

from engine_launch.sglang_plugin.options import DRAFT_POOLS, Options
from engine_launch.spec.tree_sizes import (
    DEFAULT_BUDGET,
    DEFAULT_CEILING,
    DEFAULT_TOPK,
    DEFAULT_TOPK_CEILING,
    OptionError,
    parse_widths,
)

ALGORITHM = "DDTREE"
_SERVER_ARGS = "sglang.srt.server_args.ServerArgs"
_logger = logging.getLogger(__name__)


def install() -> None:
    """Wrap the two functions through SGLang's own registry of hooks."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{_SERVER_ARGS}.add_cli_args", _add_flags, HookType.AROUND)
    HookRegistry.register(f"{_SERVER_ARGS}.from_cli_args", _take_values, HookType.AROUND)
    logging.getLogger("sglang.srt.arg_groups.speculative_hook").addFilter(_without_window_warning)


def asked_for(algorithm: object) -> bool:
    """Whether a ``speculative_algorithm`` is DDTREE."""
    return isinstance(algorithm, str) and algorithm.upper() == ALGORITHM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, as a group of their own in ``--help``."""
    group = parser.add_argument_group("DDTREE (ddtree-console)")
    group.add_argument(
        "--speculative-ddtree-budget",
        type=int,
        default=None,
        help=f"DDTREE only. Nodes of the tree, root not counted. Default {DEFAULT_BUDGET}.",
    )
    group.add_argument(
        "--speculative-ddtree-topk",
        type=int,
        default=None,
        help=f"DDTREE only. Candidates per position. Default {DEFAULT_TOPK}.",
    )
    group.add_argument(
        "--speculative-ddtree-max-budget",
        type=int,
        default=None,
        help="DDTREE only. Largest budget that can be set while the server runs; KV slots for it are reserved per running "
        f"request. Default: the budget, at least {DEFAULT_CEILING}.",
    )
    group.add_argument(
        "--speculative-ddtree-max-topk",
        type=int,
        default=None,
        help="DDTREE only. Largest top-k that can be set while the server runs. "
        f"Default: the top-k, at least {DEFAULT_TOPK_CEILING}.",
    )
    group.add_argument(
        "--speculative-ddtree-verify-widths",
        type=_widths,
        nargs="+",
        default=None,
        metavar="N,N,…",
        help="DDTREE only. Rows of a verify pass (nodes and root) for which CUDA graphs are captured; a smaller tree takes the "
        "next larger one. 1 and the largest budget's width are always captured.",
    )
    group.add_argument(
        "--speculative-ddtree-draft-pool",
        choices=DRAFT_POOLS,
        default=None,
        help="DDTREE only. stock: a row of draft KV for every token of the target's pool. ring: rows for "
        "--speculative-draft-window-size and one block per running request; what that saves becomes tokens of the target, and a "
        "prefix-cache hit leaves the last tokens of the prompt, as many as the window has, to be computed again. Default stock.",
    )
    group.add_argument(
        "--ddtree-self-test",
        action="store_true",
        help="DDTREE only. Before the server is ready, decode a few prompts plainly and as trees; end it if they do not agree.",
    )


def _widths(text: str) -> tuple[int, ...]:
    """For argparse, which makes a sentence of its own of any other error, with the function's name in it."""
    try:
        return parse_widths(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def values(args: argparse.Namespace) -> Options:
    """The flags' values in a parsed command line."""
    widths = getattr(args, "speculative_ddtree_verify_widths", None)
    return Options(
        budget=getattr(args, "speculative_ddtree_budget", None),
        topk=getattr(args, "speculative_ddtree_topk", None),
        max_budget=getattr(args, "speculative_ddtree_max_budget", None),
        max_topk=getattr(args, "speculative_ddtree_max_topk", None),
        widths=None if widths is None else tuple(sorted({width for group in widths for width in group})),
        self_test=bool(getattr(args, "ddtree_self_test", False)),
        draft_pool=getattr(args, "speculative_ddtree_draft_pool", None),
    )


def _add_flags(original: Callable[..., Any], parser: argparse.ArgumentParser) -> None:
    original(parser)
    add_arguments(parser)


def _take_values(original: Callable[..., Any], cls: type, args: argparse.Namespace) -> Any:
    options = values(args)
    if asked_for(getattr(args, "speculative_algorithm", None)):
        options.store()
    elif options != Options():
        _logger.warning(
            "%s has no effect with speculative_algorithm=%s (DDTREE only).",
            "--ddtree-self-test" if options == Options(self_test=True) else "--speculative-ddtree-*",
            getattr(args, "speculative_algorithm", None),
        )
    return original(cls, args)


def _without_window_warning(record: logging.LogRecord) -> bool:
    """SGLang warns that a draft window has no effect for algorithms that it does not know; for DDTREE it has."""
    window = isinstance(record.msg, str) and record.msg.startswith("--speculative-draft-window-size has no effect")
    return not (window and isinstance(record.args, tuple) and any(asked_for(value) for value in record.args))
