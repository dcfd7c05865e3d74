"""Reading a draft checkpoint's folder without torch: its configuration and the header of its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from engine_launch.spec.drafter_check import Shapes
from engine_launch.spec.drafter_config import DrafterConfig, DrafterConfigError, load_drafter_config

WEIGHTS_FILE = "model.safetensors"
MAX_HEADER = 100 << 20
"""The safetensors format's own bound on its header, in bytes."""


class CheckpointError(Exception):
    """The checkpoint cannot be read; the message is one sentence."""


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    config: DrafterConfig
    shapes: Shapes
    weight_bytes: int


def read_checkpoint(folder: Path) -> Checkpoint:
    """Configuration and tensor shapes of a checkpoint folder.

    Raises:
        CheckpointError: a file is missing, cut short, or not what its name says.
    """
    if not folder.is_dir():
        raise CheckpointError(f"the drafter's folder {folder} does not exist.")
    try:
        config = load_drafter_config(folder)
    except DrafterConfigError as error:
        raise CheckpointError(f"{error}.") from None
    path = folder / WEIGHTS_FILE
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise CheckpointError(f"{path} is not a whole safetensors file ({size} bytes).")
            header = json.loads(file.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        shapes = {name: tuple(int(side) for side in entry["shape"]) for name, entry in entries.items()}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise CheckpointError(f"{path} does not begin with a safetensors header.") from None
    if 8 + length + end > size:
        raise CheckpointError(f"{path} is cut short: {size} bytes of {8 + length + end}.")
    return Checkpoint(folder, config, shapes, end)
