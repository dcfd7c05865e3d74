"""One of two ranks that take weight updates together, as a process: ``python -m tests.sglang.weights_of_a_rank RANK FOLDER``.

SGLang's managers are real, and so is the group between the ranks (gloo). Each case is a fresh server, and may go wrong on one
rank alone. A line of JSON says what came of each.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.model_runner_components import weight_updater as updater
from sglang.srt.model_loader import loader
from torch import nn

from engine_launch.sglang_plugin import worker as workers
from tests.sglang.test_with_sglang_weights import LOADING, NEW, Server, checkpoint, sent

WAIT = timedelta(seconds=30)
"""After it a rank that waits for the other one fails, which is what no case may come to."""
GROUP = "weight_update_group"
DISTRIBUTED = {"names": ["lm_head.weight"], "dtypes": ["float32"], "shapes": [[8, 4]], "group_name": GROUP}


class Rank:
    """This process's rank, and a server for each case."""

    def __init__(self, rank: int, folder: Path) -> None:
        self.rank, self.folder = rank, folder
        store = f"file://{folder / 'store'}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=WAIT)
        self.group = torch.distributed.new_group(backend="gloo", timeout=WAIT)
        self.server = Server()

    def anew(self) -> Server:
        self.server = Server()
        self.server.manager.tp_cpu_group = self.group
        workers._running = self.server.worker
        return self.server

    def distributed(self, server: Server) -> Any:
        """An update through the group, which both ranks have joined."""
        server.runner.weight_updater._model_update_group[GROUP] = self.group
        return server.send("distributed", **DISTRIBUTED)

    def case(self, name: str, bad: int) -> Any:
        """What the manager answers. ``bad`` is the rank on which something is wrong, -1 none and 2 both."""
        server, wrong = self.anew(), bad in (self.rank, 2)
        if name == "tensor":
            return server.send("tensor", **sent(torch.zeros(3, 3) if wrong else NEW))
        if name == "busy":
            server.busy = wrong
            return server.send("tensor", **sent())
        if name == "group":
            return server.send("distributed", **DISTRIBUTED) if wrong else self.distributed(server)
        if name == "distributed":
            if wrong:
                server.model.load_weights = lambda _: (_ for _ in ()).throw(RuntimeError("no memory"))  # type: ignore[method-assign, assignment]
            return self.distributed(server)
        if name == "disk":
            folder = self.folder / f"{self.rank}-{name}-{bad}"
            folder.mkdir()
            path = str(folder) if wrong else checkpoint(folder)
            return server.send("disk", model_path=path, load_format="safetensors")
        if wrong:
            server.model.load_weights = lambda _: setattr(server.model.lm_head, "weight", nn.Parameter(NEW.clone()))  # type: ignore[method-assign, assignment]
        return self.distributed(server)

    def tell(self, name: str, bad: int) -> None:
        answer = self.case(name, bad)
        held, new = self.server.refused(), self.server.head() == NEW.flatten().tolist()
        again = self.server.send("tensor", **sent()).success
        said = {"success": answer.success, "message": answer.message, "held": held, "new": new}
        print("SAID", json.dumps({**said, "again": again, "freed": self.server.refused() is None}), flush=True)


CASES = (
    ("tensor", -1),
    ("tensor", 0),
    ("tensor", 1),
    ("busy", 1),
    ("group", 0),
    ("group", 1),
    ("distributed", 1),
    ("disk", 0),
    ("disk", 1),
    ("disk", 2),
    ("moved", 1),
)


def main() -> None:
    TpModelWorker._deserialize_own_rank = lambda _, named: named
    updater.monkey_patch_torch_reductions = lambda: None
    loader.get_server_args = lambda: SimpleNamespace()
    loader.get_model = lambda: LOADING
    own = Rank(int(sys.argv[1]), Path(sys.argv[2]))
    for name, bad in CASES:
        own.tell(name, bad)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
