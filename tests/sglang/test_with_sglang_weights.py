"""Weight updates while the server runs, through SGLang's own managers: what arrives, what is refused and what is held."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sglang.srt.managers import io_struct
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.model_runner_components import weight_updater as updater
from sglang.srt.model_loader import loader
from sglang.srt.sampling.sampling_params import SamplingParams
from torch import Tensor, nn

from engine_launch.sglang_plugin import gate, weights
from engine_launch.sglang_plugin import scheduler_hooks as hooks
from engine_launch.sglang_plugin import worker as workers
from engine_launch.sglang_plugin.candidates import CandidateHead
from engine_launch.sglang_plugin.options import Options
from engine_launch.sglang_plugin.verify import VerifyGraphs


class Target(nn.Module):
    """A target of one head that loads weights as SGLang's models do: into the parameters that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.lm_head = nn.Linear(4, 8, bias=False)
        self.derived = torch.zeros(2)

    def load_weights(self, named: Any) -> None:
        for name, value in named:
            dict(self.named_parameters())[name].data.copy_(value)


class Server:
    """The parts of a scheduler that a weight update goes through."""

    def __init__(self) -> None:
        self.model = Target()
        self.busy = False
        self.flushed: list[bool] = []
        self.recaptured = False
        config = SimpleNamespace(
            quantization=None,
            model_path="old",
            dtype=torch.float32,
            revision=None,
            model_weights=None,
            hf_config=SimpleNamespace(),
        )
        self.runner = SimpleNamespace(
            model=self.model,
            model_config=config,
            server_args=SimpleNamespace(weight_cache_mode="off"),
            decode_cuda_graph_runner=SimpleNamespace(max_bs=8),
        )
        self.runner.weight_updater = updater.WeightUpdater(
            tp_rank=0,
            device="cpu",
            gpu_id=0,
            model_config=config,
            custom_weight_loaders={},
            get_model=lambda: self.model,
            update_model_fields=lambda *_, **__: None,
            recapture_cuda_graph=lambda: setattr(self, "recaptured", True),
            get_model_runner=lambda: self.runner,
        )
        target = TpModelWorker.__new__(TpModelWorker)
        target.__dict__.update(_model_runner=self.runner, ps=SimpleNamespace(tp_rank=0))
        self.worker = workers.DDTreeWorker.__new__(workers.DDTreeWorker)
        self.graphs = VerifyGraphs(self.runner, (17,))
        self.worker.__dict__.update(
            _target_worker=target,
            held="",
            lost_graphs="",
            _graphs=self.graphs,
            _commit_graphs=SimpleNamespace(give_up=lambda: None),
            limits=Options(budget=16).resolve(8),
        )
        self.manager = SchedulerWeightUpdaterManager(
            tp_worker=target,
            draft_worker=self.worker,
            tp_cpu_group=None,
            memory_saver_adapter=None,
            flush_cache=self.flush,
            is_fully_idle=lambda: not self.busy,
        )

    def flush(self, empty_cache: bool) -> bool:
        self.flushed.append(empty_cache)
        return not self.busy

    def send(self, how: str, **fields: Any) -> Any:
        """A request to one of the four functions, as the scheduler passes it on; what the route then answers."""
        original = getattr(SchedulerWeightUpdaterManager, f"update_weights_from_{how}")
        request = REQUESTS[how](**fields)
        answer = getattr(io_struct, weights.UPDATES[f"update_weights_from_{how}"])
        return partial(weights.update, answer)(original, self.manager, request)

    def refused(self) -> str | None:
        """What a client's request is told."""
        found: str | None = hooks._validate_request(lambda *_: None, ORDINARY, True)
        return found

    def head(self) -> list[float]:
        return self.model.lm_head.weight.detach().flatten().tolist()


REQUESTS: dict[str, Callable[..., Any]] = {
    "disk": io_struct.UpdateWeightFromDiskReqInput,
    "tensor": io_struct.UpdateWeightsFromTensorReqInput,
    "distributed": io_struct.UpdateWeightsFromDistributedReqInput,
    "ipc": io_struct.UpdateWeightsFromIPCReqInput,
}
ORDINARY = SimpleNamespace(return_logprob=False, sampling_params=SamplingParams())
LOADING = SimpleNamespace(
    model_checksum=None,
    weight_loader_disable_mmap=False,
    weight_loader_prefetch_checkpoints=False,
    weight_loader_prefetch_num_threads=1,
    weight_loader_drop_cache_after_load=False,
)
NEW = torch.arange(32.0).view(8, 4)


def sent(value: Tensor = NEW) -> dict[str, Any]:
    """Fields of an update from a tensor. SGLang's way between processes is for tensors on a GPU: see the fixture."""
    return {"serialized_named_tensors": [("lm_head.weight", value)], "load_format": "direct"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(torch.distributed, "barrier", lambda **_: None)
    monkeypatch.setattr(TpModelWorker, "_deserialize_own_rank", lambda _, named: named)
    monkeypatch.setattr(updater, "monkey_patch_torch_reductions", lambda: None)
    monkeypatch.setattr(loader, "get_server_args", lambda: SimpleNamespace())
    monkeypatch.setattr(loader, "get_model", lambda: LOADING)
    made = Server()
    monkeypatch.setattr(workers, "_running", made.worker)
    return made


def checkpoint(folder: Path, value: Tensor = NEW) -> str:
    save_file({"lm_head.weight": value}, folder / "model.safetensors")
    return str(folder)


def test_new_weights_from_disk_reach_target_and_head_and_the_drafter_keeps_its_own(server: Server, tmp_path: Path) -> None:
    head = CandidateHead(server.model.lm_head, SimpleNamespace(world_size=1), block=8, topk=2, max_bs=1)
    said = server.send("disk", model_path=checkpoint(tmp_path), load_format="safetensors")
    assert said.success
    assert "The drafter keeps its own" in said.message
    assert server.head() == NEW.flatten().tolist()
    ids, _ = head.take(torch.ones(8, 4))
    assert ids[0].tolist() == [7, 6]
    assert server.flushed == [False]
    assert server.refused() is None


def test_tensors_reach_the_target_once_and_the_cache_is_flushed_or_kept_as_asked(server: Server) -> None:
    assert server.send("tensor", **sent()).success
    assert server.head() == NEW.flatten().tolist()
    assert server.send("tensor", flush_cache=False, **sent(NEW + 1)).success
    assert server.head() == (NEW + 1).flatten().tolist()
    assert server.flushed == [False]


def test_checkpoint_engines_weights_go_to_the_target_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def taken(own: Any, request: Any) -> tuple[bool, str]:
        asked.append(own)
        return True, "done"

    monkeypatch.setattr(updater.WeightUpdater, "update_weights_from_ipc", taken)
    assert server.send("ipc", zmq_handles={}).success
    assert asked == [server.runner.weight_updater]
    assert server.flushed == [False]


def test_recapture_is_refused_before_anything_changes(server: Server, tmp_path: Path) -> None:
    before = server.head()
    said = server.send("disk", model_path=checkpoint(tmp_path), load_format="safetensors", recapture_cuda_graph=True)
    assert (said.success, server.recaptured, server.head() == before, server.flushed) == (False, False, True, [])
    assert "leave recapture_cuda_graph out" in said.message
    assert server.refused() is None


@pytest.mark.parametrize(
    ("how", "fields"),
    [
        ("disk", {"model_path": "m"}),
        ("tensor", {"serialized_named_tensors": []}),
        ("distributed", {"names": [], "dtypes": [], "shapes": []}),
        ("ipc", {"zmq_handles": {}}),
    ],
)
def test_each_way_is_refused_for_a_quantised_target_and_under_running_requests(
    server: Server, how: str, fields: dict[str, Any]
) -> None:
    server.busy = True
    server.runner.weight_updater._model_update_group["weight_update_group"] = None
    said = server.send(how, **fields)
    assert (said.success, server.flushed) == (False, [])
    assert "abort_all_requests" in said.message
    server.busy = False
    server.runner.model_config.quantization = "fp8"
    said = server.send(how, **fields)
    assert not said.success
    assert "quantised target (fp8)" in said.message
    assert "Restart the server" in said.message


def test_what_would_end_sglangs_scheduler_is_refused_before_anything_changes(server: Server) -> None:
    said = server.send("distributed", names=[], dtypes=[], shapes=[], group_name="g")
    assert not said.success
    assert "no group 'g': call /init_weights_update_group first" in said.message
    server.runner.server_args.weight_cache_mode = "ipc"
    said = server.send("tensor", **sent())
    assert not said.success
    assert "--weight-cache-mode off" in said.message
    assert server.refused() is None


def test_running_requests_may_go_on_with_their_cache_when_the_caller_says_so(server: Server) -> None:
    server.busy = True
    assert server.send("tensor", flush_cache=False, **sent()).success
    assert server.head() == NEW.flatten().tolist()


@pytest.mark.parametrize("moved", ["parameter", "derived"])
def test_weights_that_moved_give_up_the_graphs_and_hold_requests_for_good(
    server: Server, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    def load(_: Any, named: Any) -> None:
        if moved == "parameter":
            server.model.lm_head.weight = nn.Parameter(NEW.clone())
        else:
            server.model.derived = torch.ones(2)

    stock = updater._model_load_weights_direct
    monkeypatch.setattr(updater, "_model_load_weights_direct", load)
    said = server.send("tensor", **sent())
    assert not said.success
    assert "restart the server" in said.message
    assert ("lm_head.weight" if moved == "parameter" else "derived") in said.message
    assert server.refused() == said.message
    server.graphs.use(17)
    assert server.runner.decode_cuda_graph_runner is None, "what runs already is verified without graphs"
    monkeypatch.setattr(updater, "_model_load_weights_direct", stock)
    assert server.send("tensor", **sent()).message == said.message
    assert server.refused() == said.message


def test_an_update_that_is_cut_off_answers_and_holds_requests_until_one_succeeds(server: Server, tmp_path: Path) -> None:
    said = server.send("disk", model_path=checkpoint(tmp_path, torch.zeros(3, 3)), load_format="safetensors")
    assert not said.success
    assert "RuntimeError" in said.message
    assert "send complete weights" in said.message
    assert server.refused() == said.message
    assert server.send("tensor", **sent()).success
    assert server.refused() is None


def test_a_path_that_is_not_there_is_sglangs_own_refusal_and_holds_nothing(server: Server, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = server.send("disk", model_path=str(tmp_path / "empty"), load_format="safetensors")
    assert not said.success
    assert "weights iterator" in said.message
    assert server.refused() is None


def test_an_update_that_says_no_after_it_has_begun_holds_requests(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (False, "Failed to update parameter online: no memory. Please discard the whole weights.")
    monkeypatch.setattr(TpModelWorker, "update_weights_from_distributed", lambda *_: said)
    server.runner.weight_updater._model_update_group["weight_update_group"] = None
    answer = server.send("distributed", names=[], dtypes=[], shapes=[])
    assert not answer.success
    assert "cut off (Failed to update parameter online: no memory." in answer.message
    assert server.refused() == answer.message


def test_the_drafters_weights_are_not_made_random(server: Server) -> None:
    def sglangs(_: Any, request: Any) -> str:
        return str(request.action)

    def asked(action: str) -> Any:
        return weights.check(
            io_struct.CheckWeightsReqOutput, sglangs, server.manager, io_struct.CheckWeightsReqInput(action=action)
        )

    assert asked("snapshot") == "snapshot"
    assert not asked("reset_tensors").success


@pytest.mark.parametrize(
    ("tags", "arguments", "refused"),
    [
        (None, {"enable_memory_saver": True}, True),
        ([], {"enable_memory_saver": True}, True),
        (["weights"], {"enable_memory_saver": True}, True),
        (["kv_cache"], {"enable_memory_saver": True}, False),
        (None, {"enable_memory_saver": True, "enable_draft_weights_cpu_backup": True}, False),
        (None, {"enable_memory_saver": True, "enable_weights_cpu_backup": True}, False),
        (None, {}, False),
    ],
)
def test_memory_of_weights_is_released_only_where_the_drafters_come_back(
    tags: list[str] | None, arguments: dict[str, bool], refused: bool
) -> None:
    asked: list[Any] = []

    async def communicator(request: Any) -> None:
        asked.append(request)

    flags = {"enable_memory_saver": False, "enable_weights_cpu_backup": False, "enable_draft_weights_cpu_backup": False}
    manager = TokenizerManager.__new__(TokenizerManager)
    manager.__dict__.update(
        server_args=SimpleNamespace(**{**flags, **arguments}),
        auto_create_handle_loop=lambda: None,
        release_memory_occupation_communicator=communicator,
    )
    request = io_struct.ReleaseMemoryOccupationReqInput(tags=tags)
    released = weights.release(TokenizerManager.release_memory_occupation, manager, request, None)
    if refused:
        with pytest.raises(ValueError, match="--enable-draft-weights-cpu-backup"):
            asyncio.run(released)
    else:
        asyncio.run(released)
    assert asked == ([] if refused else [request])


ASK = """
import asyncio
from types import SimpleNamespace as Some
from sglang.srt.managers import io_struct
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager as Manager
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from engine_launch.sglang_plugin import reports, scheduler_hooks

scheduler_hooks.install()
runner = Some(model_config=Some(quantization="fp8"), server_args=Some(weight_cache_mode="off"))
parts = [Some(model_runner=runner), Some(lost_graphs=""), None, None, None, lambda: True]
names = ["tp_worker", "draft_worker", "tp_cpu_group", "memory_saver_adapter", "flush_cache", "is_fully_idle"]
manager = Manager(**dict(zip(names, parts)))
print("SAID", manager.update_weights_from_disk(io_struct.UpdateWeightFromDiskReqInput(model_path="m")).message)
print("SAID", manager.check_weights(io_struct.CheckWeightsReqInput(action="reset_tensors")).message)
reports.install_in_front_end()
front = TokenizerManager.__new__(TokenizerManager)
front.server_args = Some(speculative_algorithm="DDTREE", enable_memory_saver=True, enable_weights_cpu_backup=False,
                         enable_draft_weights_cpu_backup=False)
async def release():
    try:
        await front.release_memory_occupation(io_struct.ReleaseMemoryOccupationReqInput(), None)
    except ValueError as error:
        print("SAID", error)
asyncio.run(release())
"""


@pytest.mark.timeout(600)  # importing SGLang takes a quarter of a minute, on a busy machine minutes
def test_a_ddtree_servers_own_functions_are_replaced() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert len(said) == 3, done.stderr[-2000:]
    for line, words in zip(said, ("quantised target (fp8)", "reset_tensors", "--enable-draft-weights-cpu-backup"), strict=True):
        assert words in line


def test_the_gate_looks_for_each_function_that_is_replaced() -> None:
    looked_for = {need.name.rpartition(":")[2].rpartition(".")[2] for need in gate.RUNNING}
    assert {*weights.UPDATES, *weights.UPDATES.values(), "check_weights", "release_memory_occupation"} <= looked_for
