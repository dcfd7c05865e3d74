"""The target from its dequantised copy on disk."""

from __future__ import annotations

from safetensors import SafetensorError, safe_open

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.model_files import PreparedModel, Progress
from engine_launch.embedded.target import TargetModel


def load_target(prepared: PreparedModel, progress: Progress) -> TargetModel:
    """Map the weights into memory and build the model.

    Raises:
        EngineError: the copy is damaged; deleting the folder makes the next start write it anew.
    """
    weights = {}
    try:
        with safe_open(prepared.weights, framework="pt") as file:
            names = list(file.keys())
            for done, name in enumerate(names, start=1):
                weights[name] = file.get_tensor(name)
                progress(done, len(names))
        return TargetModel(prepared.config, weights)
    except (OSError, SafetensorError, KeyError) as error:
        raise EngineError(f"the dequantised copy {prepared.folder} is damaged ({error}); delete that folder") from error
