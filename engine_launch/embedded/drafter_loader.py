"""The drafter from its checkpoint folder, with every tensor's name and shape checked first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.drafter import DFlashDrafter
from engine_launch.embedded.target import TargetModel
from engine_launch.spec.drafter_check import expected_shapes

if TYPE_CHECKING:
    from engine_launch.embedded.factory import DrafterPlan


def load_drafter(plan: DrafterPlan, target: TargetModel, context_length: int) -> DFlashDrafter:
    """Read the weights, in the target's dtype.

    Raises:
        EngineError: the file is damaged, or a tensor is missing or has another shape.
    """
    path = plan.folder / "model.safetensors"
    try:
        raw = load_file(path)
    except (OSError, SafetensorError) as error:
        raise EngineError(f"the drafter's weights {path} cannot be read: {error}") from error
    weights: dict[str, Tensor] = {}
    for name, shape in expected_shapes(plan.config, len(plan.taps), target.config.hidden_size).items():
        tensor = raw.get(name)
        if tensor is None:
            raise EngineError(f"the drafter's weights {path} lack the tensor {name}")
        if tuple(tensor.shape) != shape:
            raise EngineError(f"the drafter's tensor {name} has shape {list(tensor.shape)}, its config.json says {list(shape)}")
        weights[name] = tensor.to(target.dtype)
        if not weights[name].isfinite().all():
            raise EngineError(f"the drafter's tensor {name} in {path} holds values that are no numbers")
    return DFlashDrafter(
        plan.config,
        weights,
        target,
        mask_token_id=plan.mask_token_id,
        taps=plan.taps,
        block_size=plan.block_size,
        layers_window=plan.layers_window,
        positions=context_length + plan.block_size,
    )
