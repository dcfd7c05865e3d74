"""The trees' sizes of a batch: the server's settings, and what a request has chosen for itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine_launch.sglang_plugin import settings
from engine_launch.sglang_plugin.options import Limits

Sizes = tuple[tuple[int, int], ...]
"""Budget and top-k of each request of a batch; budget 0 is plain decoding."""


def sizes_of(reqs: list[Any], current: settings.Settings, limits: Limits) -> Sizes:
    """Sizes of the trees of these requests."""
    shared = settings.own(None, current, limits)
    sizes = []
    for req in reqs:
        custom = req.sampling_params.custom_params
        try:
            sizes.append(settings.own(custom, current, limits) if custom else shared)
        except ValueError:  # refused at admission; what slips through decodes with the server's settings
            sizes.append(shared)
    return tuple(sizes)


class SizeTensors:
    """Sizes on the device, kept while the batch stays: a copy to the device costs more than a round can spare."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._key: Sizes = ()
        self._kept: tuple[Tensor, Tensor] | None = None

    def of(self, sizes: Sizes) -> tuple[Tensor, Tensor]:
        """Budgets and top-ks, ``[bs]`` int32 each."""
        if self._kept is None or sizes != self._key:
            # Two tensors and no views of one: the kernel is compiled for aligned addresses.
            budgets, topks = (torch.tensor(column, dtype=torch.int32).to(self._device) for column in zip(*sizes, strict=True))
            self._key, self._kept = sizes, (budgets, topks)
        return self._kept
