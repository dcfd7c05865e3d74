"""DDTREE as SGLang sees it: the object behind ``--speculative-algorithm DDTREE``.

It takes the branches of the DFLASH family (features captured at the same layers, draft KV counted in, verify graphs), with
one difference: the verify pass is as wide as the tree while the drafter's block stays as trained.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from engine_launch.sglang_plugin import gate
from engine_launch.sglang_plugin.flags import ALGORITHM


class DDTreeAlgorithm(CustomSpecAlgo):  # type: ignore[misc]
    """Answers SGLang's questions about the algorithm."""

    block: int | None = None
    """The drafter's block, known once the arguments are resolved (front end) or the worker is made (scheduler)."""

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    def need_topk(self) -> bool:
        """EAGLE's relay of candidates from round to round; a DFlash drafter starts afresh."""
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(
        self, device: Any, req_to_token_pool: Any, needs_cpu_seq_lens: bool = True, needs_confidence_relay: bool = False
    ) -> Any:
        # CustomSpecAlgo of 0.5.17 lacks this one although the scheduler calls it for every algorithm.
        return SpeculativeAlgorithm.create_future_map(self, device, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def handle_server_args(self, server_args: Any) -> None:
        findings = gate.check()
        if findings:
            raise ValueError(gate.refusal(findings))
        from engine_launch.sglang_plugin import arguments, reports

        self.block = arguments.settle(server_args).block
        reports.install_in_front_end()

    def create_worker(self, server_args: Any) -> type:
        findings = gate.check()
        if findings:
            raise ValueError(gate.refusal(findings))
        from engine_launch.sglang_plugin import arguments, scheduler_hooks
        from engine_launch.sglang_plugin.worker import DDTreeWorker

        self.block = arguments.block_of(server_args)
        scheduler_hooks.install()
        return DDTreeWorker

    def get_num_tokens_per_req_for_target_verify(self, num_draft_tokens: int, is_draft_worker: bool) -> int:
        if not is_draft_worker:
            return num_draft_tokens
        if self.block is None:
            raise RuntimeError("DDTREE was asked for the draft's width before its worker was made")
        return self.block


def register() -> None:
    """Make the name known to SGLang, once per process."""
    from sglang.srt.speculative.spec_registry import get_spec

    if get_spec(ALGORITHM) is None:
        SpeculativeAlgorithm.register(ALGORITHM, supports_overlap=True, spec_class=DDTreeAlgorithm)(_worker_class)


def _worker_class(server_args: Any) -> type:
    """SGLang's factory slot; :meth:`DDTreeAlgorithm.create_worker` answers before it is asked."""
    from engine_launch.sglang_plugin.worker import DDTreeWorker

    return DDTreeWorker
