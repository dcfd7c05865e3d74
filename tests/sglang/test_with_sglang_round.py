"""One round of the worker on the CPU: drafter and target are tables, the kernels run in Triton's interpreter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from torch import Tensor, nn

from engine_launch.sglang_plugin import kernels, plants
from engine_launch.sglang_plugin import worker as workers
from engine_launch.sglang_plugin.batch_sizes import SizeTensors
from engine_launch.sglang_plugin.candidates import CandidateHead
from engine_launch.sglang_plugin.commit_graphs import CommitGraphs
from engine_launch.sglang_plugin.options import Options
from engine_launch.sglang_plugin.settings import Settings
from engine_launch.sglang_plugin.stages import StageClock
from engine_launch.sglang_plugin.switches import Switches
from engine_launch.sglang_plugin.verify import TreeVerifyInput, VerifyGraphs

BLOCK, VOCABULARY, MASK = 4, 16, 15
LENGTHS = (5, 3)
ANCHORS = (2, 7)
WINDOW = 4


class Lengths(Tensor):
    """Committed lengths; the CPU has no streams to record."""

    def record_stream(self, stream: Any) -> None:
        pass


class Round:
    """A worker whose drafter proposes the token after each position, ``drafted``, and whose target counts upwards."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, drafted: list[list[int]], sizes: tuple[int, ...] = ()) -> None:
        self.drafted = drafted
        self.appended: dict[str, Any] = {}
        self.verified: dict[str, Any] = {}
        table = torch.arange(2 * 40, dtype=torch.int32).view(2, 40)
        backend = SimpleNamespace(verify_mask=None)
        self.keys = torch.arange(80.0).view(80, 1)
        head = nn.Linear(VOCABULARY, VOCABULARY, bias=False)
        with torch.no_grad():
            head.weight.copy_(torch.eye(VOCABULARY))
        model = SimpleNamespace(get_input_embeddings=lambda: nn.Embedding(VOCABULARY, VOCABULARY))
        runner = SimpleNamespace(
            attn_backend=backend,
            req_to_token_pool=SimpleNamespace(req_to_token=table),
            decode_cuda_graph_runner=None,
            model=model,
        )
        self.worker = worker = workers.DDTreeWorker.__new__(workers.DDTreeWorker)
        worker.__dict__.update(
            _target_worker=SimpleNamespace(model_runner=runner, forward_batch_generation=self.verify),
            model_runner=runner,
            limits=Options(budget=3, topk=1).resolve(BLOCK),
            current=Settings(3, 1, 0),
            block_size=BLOCK,
            device="cpu",
            ps=SimpleNamespace(tp_rank=0),
            plant=plants.PLANT_NONE,
            stages=StageClock(None),
            draft_model_runner=SimpleNamespace(
                forward=self.draft, req_to_token_pool=SimpleNamespace(req_to_token=torch.zeros_like(table))
            ),
            draft_window_size=WINDOW,
            _group=None,
            _head=CandidateHead(head, SimpleNamespace(world_size=1), block=BLOCK, topk=1, max_bs=2),
            _graphs=VerifyGraphs(runner, (4,)),
            _mover=kernels.RowMover([self.keys]),
            _size_tensors=SizeTensors("cpu"),
            _switches=Switches(None),
            _ring=None,
            _prefill_rows=None,
            _first_verify_logged=False,
            _mask_token_id=MASK,
            _draft_sampler=None,
            _draft_block_ids_buf=None,
            _draft_block_spec_info=None,
            _fill_compact_seq_lens_cpu_bound=lambda *, out, **given: out.copy_(given["batch_seq_lens_cpu"]),
            _make_next_draft_input_decode=lambda **given: given,
        )
        worker._commit_graphs = CommitGraphs(
            worker._append_accepted, sizes, block=BLOCK, features=1, dtype=torch.float32, device="cpu"
        )
        worker._commit_graphs.record(lambda call: call)
        monkeypatch.setattr(DFlashWorkerV2, "_append_target_hidden_to_draft_kv_by_loc", lambda _, **given: self.append(given))
        monkeypatch.setattr(TreeVerifyInput, "prepare_for_verify", lambda own, batch, _: self.prepare_for_verify(own, batch))

    def append(self, given: dict[str, Any]) -> None:
        self.appended = given

    def draft(self, forward_batch: Any) -> Any:
        assert forward_batch.input_ids.view(2, BLOCK)[:, 0].tolist() == list(ANCHORS)
        assert forward_batch.positions.view(2, BLOCK)[:, 0].tolist() == list(LENGTHS)
        assert forward_batch.seq_lens.tolist() == [WINDOW, 3]
        assert forward_batch.out_cache_loc.view(2, BLOCK)[:, 0].tolist() == [5, 43]
        table = self.worker.draft_model_runner.req_to_token_pool.req_to_token
        assert table[0, : WINDOW + BLOCK].tolist() == list(range(5 - WINDOW, 5 + BLOCK)), "the last tokens, then the block"
        hidden = torch.zeros(2, BLOCK, VOCABULARY)
        for row, tokens in enumerate(self.drafted):
            for place, token in enumerate(tokens):
                hidden[row, place + 1, token] = 9.0
        output = SimpleNamespace(hidden_states=hidden.view(2 * BLOCK, -1))
        return SimpleNamespace(can_run_graph=False, logits_output=output)

    def prepare_for_verify(self, own: TreeVerifyInput, batch: Any) -> tuple[Any, bool]:
        self.verified = {"lens": batch.seq_lens_cpu.tolist(), "sum": batch.seq_lens_sum, "slots": batch.out_cache_loc.tolist()}
        return own, False

    def verify(self, *, forward_batch: Any, **_: Any) -> Any:
        """The token after each node is the node's, plus one; a node's feature is its row."""
        tokens = forward_batch.draft_token
        logits = nn.functional.one_hot((tokens.long() + 1) % VOCABULARY, VOCABULARY).float()
        features = torch.arange(float(len(tokens))).unsqueeze(1)
        output = SimpleNamespace(next_token_logits=logits, hidden_states=features)
        return SimpleNamespace(logits_output=output, can_run_cuda_graph=False)

    def run(self) -> Any:
        lens = torch.tensor(LENGTHS).as_subclass(Lengths)
        batch = SimpleNamespace(
            seq_lens=lens,
            seq_lens_cpu=torch.tensor(LENGTHS),
            seq_lens_sum=sum(LENGTHS),
            req_pool_indices=torch.tensor([0, 1]),
            reqs=[SimpleNamespace(sampling_params=SimpleNamespace(custom_params=None))] * 2,
            sampling_info=None,
            spec_info=SimpleNamespace(bonus_tokens=torch.tensor(ANCHORS), reserved_seq_lens_cpu=None, reserved_seq_lens_sum=0),
            forward_mode=SimpleNamespace(is_extend=lambda: False, is_idle=lambda: False),
            is_extend_in_batch=False,
        )
        self.batch = batch
        return self.worker.forward_batch_generation(batch)


@pytest.mark.parametrize(
    ("drafted", "committed"),
    [
        ([[3, 4, 5], [8, 9, 10]], [[3, 4, 5, 6], [8, 9, 10, 11]]),
        ([[3, 4, 9], [9, 9, 9]], [[3, 4, 5], [8]]),
    ],
)
@pytest.mark.parametrize("sizes", [(), (1, 2), (4,)], ids=["no graphs", "a graph of this size", "a larger graph"])
def test_what_the_target_agrees_with_is_committed_and_its_features_go_to_the_drafter(
    monkeypatch: pytest.MonkeyPatch, drafted: list[list[int]], committed: list[list[int]], sizes: tuple[int, ...]
) -> None:
    a_round = Round(monkeypatch, drafted, sizes)
    result = a_round.run()
    lengths = [len(tokens) for tokens in committed]
    assert result.accept_lens.tolist() == lengths
    assert [row[:count] for row, count in zip(result.next_token_ids.view(2, BLOCK).tolist(), lengths, strict=True)] == committed
    assert result.new_seq_lens.tolist() == [5 + lengths[0], 3 + lengths[1]]
    assert result.next_draft_input["bonus_tokens"].tolist() == [committed[0][-1], committed[1][-1]]
    features = a_round.appended["target_hidden"].view(-1, BLOCK)
    for row, count in enumerate(lengths):
        assert features[row, :count].tolist() == [4.0 * row + place for place in range(count)]
    padding = max(sizes, default=2) - 2
    assert a_round.appended["commit_lens"].tolist() == [*lengths, *[0] * padding]
    assert a_round.appended["positions"].view(-1, BLOCK)[:2, 0].tolist() == list(LENGTHS)
    assert a_round.appended["cache_loc_2d"][:2, 0].tolist() == [5, 43]


def test_the_verify_pass_is_told_lengths_that_no_request_outgrows_and_the_batch_gets_its_own_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_round = Round(monkeypatch, [[3, 4, 5], [8, 9, 10]])
    a_round.run()
    assert a_round.verified["lens"] == [5 + BLOCK, 3 + BLOCK]
    assert a_round.verified["sum"] == 5 + 3 + 2 * BLOCK
    assert a_round.verified["slots"] == [5, 6, 7, 8, 43, 44, 45, 46]
    assert (a_round.batch.seq_lens_cpu.tolist(), a_round.batch.seq_lens_sum) == (list(LENGTHS), sum(LENGTHS))


def test_a_tests_own_candidates_take_the_place_of_the_drafters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_PROPOSER", f"{__name__}:right_ones")
    assert Round(monkeypatch, [[9, 9, 9], [9, 9, 9]]).run().accept_lens.tolist() == [BLOCK, BLOCK]


def right_ones(_: list[Any], lens: Tensor, ids: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
    assert lens.tolist() == list(LENGTHS)
    return torch.tensor([[3, 4, 5], [8, 9, 10]]).unsqueeze(-1), torch.zeros_like(logprobs)


def test_ranks_with_other_trees_are_told_apart_where_a_test_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(mine: Tensor, dim: int) -> Tensor:
        return torch.cat([mine, mine + 1])

    tree = torch.tensor([1, 2]), torch.tensor([0, 0])
    Switches(SimpleNamespace(all_gather=other)).compare_ranks(*tree)
    monkeypatch.setenv("DDTREE_CHECK_RANKS", "1")
    Switches(None).compare_ranks(*tree)
    Switches(SimpleNamespace(all_gather=lambda mine, dim: torch.cat([mine, mine]))).compare_ranks(*tree)
    with pytest.raises(RuntimeError, match="different trees"):
        Switches(SimpleNamespace(all_gather=other)).compare_ranks(*tree)
