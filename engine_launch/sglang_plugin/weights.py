"""The target's weights, changed while the server runs: what goes on working, what is refused, what is held back afterwards.

SGLang 0.5.17 copies new weights into the target's parameters. Whatever holds their addresses then reads the new ones: the CUDA
graphs of every width, and the candidate head, which borrows the target's ``lm_head``. Three things would break that:

- *recapture* makes one set of graphs, of the widest tree, in the place of all; it is refused;
- *preparing* weights after loading may put them elsewhere. Quantised targets are refused for that; where it is found with
  another target after the fact, its graphs are given up and requests are refused until the server is restarted;
- ``/update_weights_from_disk`` and ``_from_ipc`` hand the target's checkpoint to the drafter too, through a list of runners that
  a DFLASH worker does not have, and the scheduler ends by an AttributeError. The drafter keeps its own weights instead.

The prefix cache and, through it, the draft KV are flushed as SGLang flushes them.

With tensor parallelism each rank is told of an update by itself, and only the first one's answer reaches the client. SGLang lets
a rank that has failed answer for itself alone: the others then wait for it in a collective operation, or serve with it although
its weights are not theirs. Here the ranks say to each other what they find, before anything is changed and again afterwards, so
that all of them refuse, take or hold alike. An exchange ends by the group's own timeout when a rank is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_logger = logging.getLogger(__name__)

UPDATES = {
    "update_weights_from_disk": "UpdateWeightFromDiskReqOutput",
    "update_weights_from_distributed": "UpdateWeightsFromDistributedReqOutput",
    "update_weights_from_tensor": "UpdateWeightsFromTensorReqOutput",
    "update_weights_from_ipc": "UpdateWeightsFromIPCReqOutput",
}
"""Functions of SGLang's ``SchedulerWeightUpdaterManager``, and the messages that they answer with."""

TARGET_ONLY = (
    "Succeeded to update model weights. The drafter keeps its own: commit lengths may fall if the target has become another."
)
_UNCHANGED, _TAKEN, _CUT_OFF, _MOVED = range(4)
"""What came of an update on one rank."""
_BEFORE_ANY_CHANGE = (
    "Failed to get weights iterator",
    "Failed to get model loader",
    "Online weight updates are not supported",
    "IPC weight update failed: ImportError",
)
"""How SGLang's refusals begin that come before it has written anything; after another one the target may hold a part."""
_END_IN_A_BARRIER = ("update_weights_from_tensor", "update_weights_from_ipc")
_MOST_OF_A_CAUSE = 500
"""Characters of another's message that are passed on."""


def update_refusal(request: Any, runner: Any, busy: bool) -> str:
    """Why an update cannot be, or an empty text. ``runner`` is the target's; ``busy``: requests are running or waiting."""
    quantization, cache = runner.model_config.quantization, runner.server_args.weight_cache_mode
    group = getattr(request, "group_name", None)
    if getattr(request, "recapture_cuda_graph", False):
        return (
            "DDTREE does not recapture CUDA graphs while it runs: it holds those of several widths, and SGLang makes one set. "
            "Weights are copied to where the graphs read them: leave recapture_cuda_graph out. Nothing has been changed."
        )
    if quantization is not None:
        return (
            f"DDTREE does not take new weights for a quantised target ({quantization}): preparing them may put them elsewhere "
            "than its CUDA graphs read them. Restart the server with the new weights. Nothing has been changed."
        )
    if cache != "off":
        return (
            f"Weights that are shared with other servers (--weight-cache-mode {cache}) cannot be changed: start the server with "
            "--weight-cache-mode off. Nothing has been changed."
        )
    if group is not None and group not in runner.weight_updater._model_update_group:
        return f"There is no group {group!r}: call /init_weights_update_group first. Nothing has been changed."
    if request.flush_cache and busy:
        return (
            "Requests are running or waiting, so that the cache of the old weights cannot be flushed: wait for them, end them "
            "(abort_all_requests), or keep the cache (flush_cache: false). Nothing has been changed."
        )
    return ""


def update(answer: Callable[..., Any], original: Callable[..., Any], manager: Any, request: Any) -> Any:
    """In the place of ``original``, one of :data:`UPDATES`: the same, where graphs and head survive it on every rank."""
    worker, runner, group = manager.draft_worker, manager.tp_worker.model_runner, manager.tp_cpu_group
    problem = _refusal_of_ranks(group, worker.lost_graphs or update_refusal(request, runner, not manager.is_fully_idle()))
    if problem:
        _logger.warning("Weights not updated: %s", problem)
        return answer(success=False, message=problem)
    before = addresses(runner.model)
    said: Any = None
    try:
        said = original(manager, request)
        outcome = _TAKEN if said.success else _UNCHANGED if said.message.startswith(_BEFORE_ANY_CHANGE) else _CUT_OFF
        cause = "" if said.success else said.message
    except Exception as error:  # SGLang's own way back loads the same files again, and fails again; the scheduler would end
        _logger.exception("A weight update was cut off.")
        outcome, cause = _CUT_OFF, f"{type(error).__name__}: {error}"
        if original.__name__ in _END_IN_A_BARRIER:  # which the error has left out, and where the other ranks wait
            torch.distributed.barrier(group=group)
    moved = moved_since(before, runner.model)
    if moved:
        outcome, cause = _MOVED, f"{len(moved)}, among them {moved[0]}"
    outcomes = _of_all_ranks(group, (outcome, " ".join(cause.split())[:_MOST_OF_A_CAUSE]))
    found = {number for number, _ in outcomes}
    if found <= {_TAKEN}:
        worker.hold("")
        return said
    if found <= {_UNCHANGED}:
        return said
    if _MOVED in found:
        where = _first_other_than(outcomes, _UNCHANGED, _TAKEN, _CUT_OFF)
        problem = (
            f"New weights are not where DDTREE's CUDA graphs and candidate head read them{where}. No request is served any more: "
            "restart the server with the new weights."
        )
        worker.give_up_graphs(problem)
    else:
        where = _first_other_than(outcomes, _TAKEN)
        problem = (
            f"A weight update was cut off{where}, and the target may hold a part of it. No request is served until an update "
            "succeeds: send complete weights, or restart the server."
        )
        worker.hold(problem)
    _logger.error("%s", problem)
    return answer(success=False, message=problem)


def _of_all_ranks(group: Any, mine: Any) -> list[Any]:
    """What each rank gives, in their order; every rank must ask equally often. ``group`` is ``None`` where there is one rank."""
    if group is None:
        return [mine]
    everyone: list[Any] = [None] * torch.distributed.get_world_size(group=group)
    torch.distributed.all_gather_object(everyone, mine, group=group)
    return everyone


def _refusal_of_ranks(group: Any, mine: str) -> str:
    """The refusal of the first rank that has one, so that none goes on without it; empty when none has."""
    refusals = _of_all_ranks(group, mine)
    first = next((rank for rank, refusal in enumerate(refusals) if refusal), 0)
    return refusals[first] if not refusals[first] or all(refusals) else f"Rank {first}: {refusals[first]}"


def _first_other_than(outcomes: Sequence[tuple[int, str]], *passed_over: int) -> str:
    """Where and why an update went wrong first, to be put behind the words that say so."""
    rank, cause = next((rank, cause) for rank, (number, cause) in enumerate(outcomes) if number not in passed_over)
    alone = all(other == outcomes[rank][0] for other, _ in outcomes)
    return f" ({cause})" if alone else f" on rank {rank} ({cause})"


def check(answer: Callable[..., Any], original: Callable[..., Any], manager: Any, request: Any) -> Any:
    """In the place of ``check_weights``: the drafter's weights are not made random, for no update would bring them back."""
    if request.action == "reset_tensors":
        return answer(success=False, message="DDTREE does not take reset_tensors: no update brings the drafter's weights back.")
    return original(manager, request)


def release_refusal(tags: Sequence[str] | None, server_args: Any) -> str:
    """Why memory cannot be released (``/release_memory_occupation``), or an empty text. No tags are all tags."""
    backed_up = server_args.enable_weights_cpu_backup or server_args.enable_draft_weights_cpu_backup
    if not server_args.enable_memory_saver or backed_up or (tags and "weights" not in tags):
        return ""
    return (
        "DDTREE cannot release the memory of weights: the drafter's would be lost, and no update brings them back. Start the "
        'server with --enable-draft-weights-cpu-backup, or release "kv_cache" alone (tags).'
    )


async def release(original: Callable[..., Any], manager: Any, request: Any, *args: Any) -> Any:
    """In the place of the front end's ``release_memory_occupation``. Raises ValueError, which the route answers with a 400."""
    problem = release_refusal(request.tags, manager.server_args)
    if problem:
        raise ValueError(problem)
    return await original(manager, request, *args)


def addresses(model: nn.Module) -> dict[str, tuple[int, torch.Size]]:
    """Where the tensors of a model are that its passes may read: parameters, buffers, and tensors that modules keep as such."""
    return {
        f"{path}.{name}": (value.data_ptr(), value.shape)
        for path, module in model.named_modules()
        for name, value in (*module._parameters.items(), *module._buffers.items(), *vars(module).items())
        if isinstance(value, Tensor)
    }


def moved_since(before: dict[str, tuple[int, torch.Size]], model: nn.Module) -> list[str]:
    """Names of tensors that are elsewhere, of another shape, or gone; new ones are in no graph."""
    now = addresses(model)
    return [name for name, place in before.items() if now.get(name) != place]
