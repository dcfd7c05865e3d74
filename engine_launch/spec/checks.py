"""Rules between flags: what a command line may not ask for together, found before anything is loaded.

Pure. The launcher refuses to start on these; the console's plan can show them before it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from engine_launch.spec.flags import FlagError, ParsedFlags

SUPPORTED_ALGORITHMS: tuple[str, ...] = ("DFLASH", "DDTREE")
"""What the embedded engine drafts with; without a name it decodes plainly."""
GPU_DEVICES: tuple[str, ...] = ("/dev/nvidiactl", "/dev/kfd")
"""Device files of NVIDIA's and AMD's drivers: without either of them ``--engine auto`` is the embedded engine."""

_NEEDS_DRAFTER: tuple[str, ...] = (
    "--speculative-draft-model-path",
    "--speculative-num-draft-tokens",
    "--speculative-dflash-block-size",
    "--speculative-draft-window-size",
    "--speculative-draft-layers-window",
)
_MAXIMA: Mapping[str, int] = MappingProxyType({"--port": 65535, "--random-seed": (1 << 62) - 1, "--max-running-requests": 1024})
"""A seed counts up from request to request and has 63 bits; every running request holds caches of its own."""
_NEEDS_TREE: tuple[str, ...] = ("--speculative-ddtree-budget", "--speculative-ddtree-topk")


class EngineKind(Enum):
    """Which engine a command line is for."""

    AUTO = "auto"
    SGLANG = "sglang"
    EMBEDDED = "embedded"


def algorithm(parsed: ParsedFlags) -> str | None:
    """The speculative algorithm in capitals, ``None`` for plain decoding (no flag, or ``none``)."""
    name = parsed.value("--speculative-algorithm")
    if name is None or str(name).upper() in ("NONE", "PLAIN"):
        return None
    return str(name).upper()


def block_size(parsed: ParsedFlags) -> int | None:
    """The block size that the flags ask for; ``None`` leaves it to the drafter.

    Raises:
        FlagError: the two flags for it disagree.
    """
    tokens = parsed.value("--speculative-num-draft-tokens")
    block = parsed.value("--speculative-dflash-block-size")
    if tokens is not None and block is not None and tokens != block:
        raise FlagError(
            f"--speculative-num-draft-tokens {tokens} and --speculative-dflash-block-size {block} are one setting: "
            "give one of them, or the same value."
        )
    size = tokens if tokens is not None else block
    return None if size is None else int(size)


def check_window(window: int | None, block: int) -> None:
    """The compact draft cache must hold at least one block (SGLang's rule as well).

    Raises:
        FlagError: it does not.
    """
    if window is not None and window < block:
        raise FlagError(
            f"--speculative-draft-window-size {window} is below the block size {block}: give at least {block}, or leave "
            "the flag out to keep the whole context."
        )


def check_embedded(parsed: ParsedFlags) -> tuple[str, ...]:
    """Everything that the flags alone tell about a start of the embedded engine; returns warnings, one sentence each.

    Raises:
        FlagError: the first thing that cannot be served.
    """
    name = algorithm(parsed)
    if name is not None and name not in SUPPORTED_ALGORITHMS:
        raise FlagError(
            f"--speculative-algorithm {name} is not one that the embedded engine has: it knows "
            f"{' and '.join(SUPPORTED_ALGORITHMS)}, and plain decoding without the flag."
        )
    for flag, most in _MAXIMA.items():
        number = parsed.value(flag)
        if isinstance(number, int) and abs(number) > most:
            raise FlagError(f"{flag} must be at most {most}, but {number} was given.")
    for flag in ("--api-key", "--admin-api-key"):
        key = parsed.value(flag)
        if isinstance(key, str) and not _fits_header(key):
            raise FlagError(f"{flag} cannot be sent in an Authorization header: use printable ASCII characters without blanks.")
    block = block_size(parsed)
    window = parsed.value("--speculative-draft-window-size")
    if block is not None and isinstance(window, int):
        check_window(window, block)
    warnings = []
    for group, needed in ((_NEEDS_DRAFTER, SUPPORTED_ALGORITHMS), (_NEEDS_TREE, ("DDTREE",))):
        for flag in group:
            if parsed.was_given(flag) and name not in needed:
                warnings.append(
                    f"{flag} has no effect with speculative_algorithm={name} (honoured by {' and '.join(needed)} only)."
                )
    return tuple(warnings)


def _fits_header(key: str) -> bool:
    return all(33 <= ord(character) <= 126 for character in key)
