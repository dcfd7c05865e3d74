"""Reading a draft checkpoint's folder without torch: its configuration and the header of its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from engine_launch.local_paths import is_file, is_folder, unreachable
from engine_launch.spec.drafter_check import Shapes
from engine_launch.spec.drafter_config import DrafterConfig, DrafterConfigError, load_drafter_config

WEIGHTS_FILE = "model.safetensors"
OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf")
"""Formats that SGLang loads as well."""
QUANTISED = ("weight_scale", "weight_scale_inv", "weight_packed", "qweight")
"""Endings of tensors that stand for weights of other shapes."""
LFS_POINTER = b"version https://git-lfs"
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
    if not is_folder(folder):
        problem = unreachable(folder)
        if problem:
            raise CheckpointError(f"the drafter's folder {folder} cannot be looked at: {problem}.")
        if folder.exists():
            raise CheckpointError(f"{folder} is a file: name the folder that holds the drafter's config.json.")
        raise CheckpointError(f"the drafter's folder {folder} does not exist.")
    try:
        config = load_drafter_config(folder)
    except DrafterConfigError as error:
        raise CheckpointError(f"{error}.") from None
    shapes, weight_bytes = _header(folder / WEIGHTS_FILE)
    return Checkpoint(folder, config, shapes, weight_bytes)


def read_shapes(folder: Path) -> Shapes | None:
    """Tensor shapes of all safetensors files of a checkpoint that SGLang loads, one or several.

    ``None`` when its weights are quantised or of another format, which SGLang reads and this does not. SGLang takes a leading
    ``model.`` off the names of a drafter's tensors, and so does this.

    Raises:
        CheckpointError: there are no weights, a file of the index is missing, or a file is not whole.
    """
    files = _loaded(folder)
    if not files:
        if any(file for pattern in OTHER_WEIGHTS for file in folder.glob(pattern)):
            return None
        raise CheckpointError(f"{folder} holds no weights: there is no *.safetensors file in it.")
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        shapes.update((name.removeprefix("model."), shape) for name, shape in _header(file)[0].items())
    return None if any(name.endswith(QUANTISED) for name in shapes) else shapes


def _loaded(folder: Path) -> list[Path]:
    """The safetensors files that SGLang takes (0.5.17, ``filter_duplicate_safetensors_files``): those of the index where there is
    one, whatever else lies beside them; without it all, but for Mistral's second form of the same weights."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / f"{WEIGHTS_FILE}.index.json"
    if files and is_file(index):
        return sorted(folder / name for name in _indexed(index))
    if [file.name for file in files] == ["consolidated.safetensors", WEIGHTS_FILE]:
        return files[1:]
    return files


def _indexed(index: Path) -> set[str]:
    """Names of the files that an index lists."""
    try:
        files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return {str(file) for file in files}
    except OSError as error:
        raise CheckpointError(f"{index} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{index} is not an index of safetensors files.") from None


def _header(path: Path) -> tuple[dict[str, tuple[int, ...]], int]:
    """Shapes of a safetensors file, and the bytes of its tensors. Raises CheckpointError when it is not one, or not whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            begin = file.read(8)
            length = int.from_bytes(begin, "little")
            if begin == LFS_POINTER[:8]:
                raise CheckpointError(f"{path} is a pointer of Git LFS and not the weights: run git lfs pull in its repository.")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise CheckpointError(f"{path} is not a whole safetensors file ({size} bytes).")
            header = json.loads(file.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        shapes = {name: tuple(int(side) for side in entry["shape"]) for name, entry in entries.items()}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise CheckpointError(f"{path} does not begin with a safetensors header.") from None
    if 8 + length + end > size:
        raise CheckpointError(f"{path} is cut short: {size} bytes of {8 + length + end}.")
    return shapes, end
