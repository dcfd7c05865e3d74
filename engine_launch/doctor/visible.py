"""Which of the listed GPUs a server will have: what ``CUDA_VISIBLE_DEVICES`` leaves of them, and on which of those its ranks go.

Source: CUDA's programming guide, "CUDA Environment Variables": numbers or beginnings of UUIDs with commas between; what stands
behind the first that names nothing does not count. ``nvidia-smi`` itself does not read the variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.doctor.gpus import Gpu, asked_ranks
from engine_launch.spec.nvidia_smi import whole
from engine_launch.spec.sglang_checks import number

VARIABLE = "CUDA_VISIBLE_DEVICES"
SLICES = "MIG-"
"""How the UUID of a slice of a GPU begins (``nvidia-smi -L`` lists them)."""


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Those of ``gpus`` that a process sees, in its order. Slices are none of them."""
    given = environment.get(VARIABLE)
    if given is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for entry in _entries(given):
        gpu = _named(entry, gpus)
        if gpu is None or gpu in found:
            break
        found.append(gpu)
    return tuple(found)


def used(flags: Mapping[str, str], seen: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Those of ``seen`` that a server with these flags runs on, as many as there are; all of them without flags."""
    if not flags:
        return tuple(seen)
    first, step = number(flags, "--base-gpu-id") or 0, number(flags, "--gpu-id-step") or 1
    if first < 0 or step < 1:
        return tuple(seen)
    return tuple(seen[first::step][: asked_ranks(flags)])


def check_visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Check | None:
    """What the variable and slices do to the list; ``None`` where every GPU is seen whole."""
    name, given = "gpus seen", environment.get(VARIABLE)
    sliced = [str(gpu.index) for gpu in gpus if gpu.sliced]
    if given is not None:
        if any(entry.startswith(SLICES) for entry in _entries(given)):
            return warn(name, f"{VARIABLE} names slices of GPUs (MIG), whose memory is not looked at here.")
        seen, entries = visible(gpus, environment), _entries(given)
        listed = f"{len(gpus)} that nvidia-smi lists" if len(gpus) > 1 else "one that nvidia-smi lists"
        if not seen:
            return fail(name, f"{VARIABLE}={given} hides every GPU of the {listed}: unset it, or name one of them.")
        named = ", ".join(str(gpu.index) for gpu in seen)
        if len(seen) < len(entries):
            what = entries[len(seen)]
            return fail(
                name,
                f"{VARIABLE}={given}: {what} is none of the {listed}, or stands there twice; CUDA stops at it and sees only "
                f"GPU {named}. Correct it.",
            )
        if not sliced:
            return ok(name, f"GPU {named} of the {listed}, by {VARIABLE}")
    if sliced:
        return warn(
            name,
            f"GPU {', '.join(sliced)} is cut into slices (MIG is on): a server sees one slice, with less memory than is listed "
            f"here, and cannot run over several. Name it, {VARIABLE}=MIG-… (nvidia-smi -L lists them), or end the slicing: "
            f"nvidia-smi -i {sliced[0]} -mig 0.",
        )
    return None


def _entries(given: str) -> list[str]:
    return [entry.strip() for entry in given.split(",") if entry.strip()]


def _named(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    place = whole(entry)
    if place is not None:
        return next((gpu for gpu in gpus if gpu.index == place), None)
    found = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None
