"""Attention backends against the GPUs' compute capability and against DDTREE.

Sources: SGLang 0.5.17's argument handler and attention registry; fa3 is written for SM80 to SM90 only, and the first Blackwell
workstation cards (SM120) have FlashInfer and Triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.doctor.gpus import Gpu

Capability = tuple[int, int]
RUNS_ON: Mapping[str, tuple[Capability, Capability]] = {
    "fa3": ((8, 0), (9, 0)),
    "fa4": ((9, 0), (10, 3)),
    "flashinfer": ((7, 5), (12, 1)),
    "triton": ((7, 0), (12, 1)),
    "trtllm_mha": ((10, 0), (10, 3)),
    "trtllm_mla": ((10, 0), (10, 3)),
    "cutlass_mla": ((10, 0), (10, 3)),
    "flashmla": ((9, 0), (10, 3)),
}
"""Backend → lowest and highest compute capability that it has kernels for."""
NEWEST = max(high for _, high in RUNS_ON.values())
"""The newest GPU that the table knows: of a newer one nothing is claimed."""
FLAGS = (
    "--attention-backend",
    "--prefill-attention-backend",
    "--decode-attention-backend",
    "--speculative-draft-attention-backend",
)


def check_backends(flags: Mapping[str, str], gpus: Sequence[Gpu]) -> Check:
    """The backends that the flags choose on the GPUs that are there."""
    chosen = {name: flags[name] for name in FLAGS if flags.get(name)}
    capabilities = sorted({gpu.capability for gpu in gpus if gpu.capability is not None})
    if not chosen:
        usable = [name for name in ("fa3", "fa4", "flashinfer", "triton") if all(_runs(name, one) for one in capabilities)]
        known = f"these GPUs have kernels in {', '.join(usable)}" if capabilities else "the GPUs' compute capability is not known"
        return ok("backends", f"none chosen by flags; {known}; DDTREE needs --attention-backend triton")
    wrong = [
        f"{flag} {name} has no kernels for compute capability {one[0]}.{one[1]} (it runs on {_range(name)})"
        for flag, name in chosen.items()
        for one in capabilities
        if not _runs(name, one)
    ]
    if wrong:
        triton = all(_runs("triton", one) for one in capabilities)
        advice = "Give triton, which runs on all of them." if triton else "No backend that DDTREE works with runs there."
        return fail("backends", f"{'; '.join(wrong)}. {advice}")
    said = ", ".join(f"{flag} {name}" for flag, name in chosen.items())
    return ok("backends", said) if capabilities else warn("backends", f"{said}; the GPUs' compute capability is not known")


def _runs(name: str, capability: Capability) -> bool:
    """What this table does not know is taken to run."""
    low, high = RUNS_ON.get(name, ((0, 0), (99, 9)))
    return low <= capability and (capability <= high or capability > NEWEST)


def _range(name: str) -> str:
    (low, low_minor), (high, high_minor) = RUNS_ON[name]
    return f"{low}.{low_minor} to {high}.{high_minor}"
