"""Switches of the tests, from the environment: another drafter, the tree built on the host, the ranks' trees compared.

In service all are off, and a round is what it would be without this module. The errors that can be planted are in ``plants``.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine_launch.sglang_plugin import kernels

_logger = logging.getLogger(__name__)

Proposer = Callable[[list[Any], Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""A stand-in for the drafter's candidates: requests, committed lengths, ids and log-probabilities → the latter two."""


class Switches:
    """What the environment says at the worker's start: ``DDTREE_PROPOSER``, ``DDTREE_TEST_BUILDER``, ``DDTREE_CHECK_RANKS``."""

    def __init__(self, group: Any) -> None:
        """``group``: the ranks that hold the model, ``None`` where there is one."""
        self._proposer = _load_proposer(os.environ.get("DDTREE_PROPOSER", ""))
        self._build_on_host = os.environ.get("DDTREE_TEST_BUILDER") == "host"
        self._compared_group = group if os.environ.get("DDTREE_CHECK_RANKS") == "1" else None
        self._ranks_logged = False

    def propose(self, reqs: list[Any], prefix_lens: Tensor, ids: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        """The drafter's candidates, or what stands in for them."""
        return (ids, logprobs) if self._proposer is None else self._proposer(reqs, prefix_lens, ids, logprobs)

    def builder(self) -> Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]:
        """What builds the trees: :func:`kernels.build`, or the same on the host."""
        if self._build_on_host:
            from engine_launch.sglang_plugin import host_builder

            return host_builder.build
        return kernels.build

    def compare_ranks(self, tokens: Tensor, parents: Tensor) -> None:
        """Raises RuntimeError when the ranks have built different trees."""
        if self._compared_group is None:
            return
        mine = torch.cat([tokens, parents.to(tokens.dtype)]).unsqueeze(0)
        everyone = self._compared_group.all_gather(mine.contiguous(), dim=0)
        if not bool((everyone == mine).all()):
            raise RuntimeError("DDTREE: the ranks have built different trees")
        if not self._ranks_logged:
            self._ranks_logged = True
            _logger.info("DDTREE tree ranks equal")


def _load_proposer(name: str) -> Proposer | None:
    """``package.module:function``, for tests that need a drafter of known quality."""
    if not name:
        return None
    module, _, function = name.partition(":")
    _logger.warning("DDTREE_PROPOSER=%s replaces the drafter's candidates. This is for tests only.", name)
    proposer: Proposer = getattr(importlib.import_module(module), function)
    return proposer
