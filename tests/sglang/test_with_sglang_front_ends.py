"""Front ends that are processes of their own (``--tokenizer-worker-num``): the plugin has its part in them too."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt import server_args as stock

from engine_launch.sglang_plugin import front_end
from tests.sglang.test_with_sglang_start import DRAFTER, TARGET

pytestmark = pytest.mark.timeout(600)  # importing SGLang takes a quarter of a minute, on a busy machine minutes
SERVER = """
import json, pickle, subprocess, sys
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.server_args import prepare_server_args
command, front_end, pickled = sys.argv[1:]
for more in (["DFLASH"], ["DDTREE", "--speculative-ddtree-budget", "12"]):
    args = prepare_server_args([*json.loads(command), "--speculative-algorithm", *more])
    args.override("test", max_running_requests=7)
    print("LOGGED", repr(args)[:11], args.max_running_requests, flush=True)
    with open(pickled, "wb") as file:
        pickle.dump(args, file)
    subprocess.run([sys.executable, "-W", "ignore", "-c", front_end, pickled], check=True)
"""
FRONT_END = """
import asyncio, json, pickle, sys
from types import SimpleNamespace as Some
import sglang.srt.entrypoints.http_server
from sglang.srt.managers import io_struct, multi_tokenizer_mixin
with open(sys.argv[1], "rb") as file:
    args = pickle.load(file)
made = multi_tokenizer_mixin.get_tokenizer_worker_class(args)
manager = made.__new__(made)
args.override("test", enable_memory_saver=True)
manager.__dict__.update(server_args=args, _config_updates=[], model_path="m", served_model_name="m",
                        auto_create_handle_loop=lambda: None)
async def released(request):
    pass
manager.release_memory_occupation_communicator = released
meta = {}
counts = Some(spec_verify_ct=[4], completion_tokens=[13], spec_num_correct_drafts=[8], spec_correct_drafts_histogram=[[]])
manager._calculate_spec_decoding_metrics(meta, counts, 0)
try:
    asyncio.run(manager.release_memory_occupation(io_struct.ReleaseMemoryOccupationReqInput(), None))
    refused = ""
except ValueError as error:
    refused = str(error)
print("SAID", json.dumps({"class": made.__name__, "budget": manager.resolved_config_dict({}).get("speculative_ddtree_budget"),
                          "proposed": meta["spec_num_proposed_drafts"], "refused": refused}), flush=True)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[dict[str, Any]]]:
    """What is logged of the arguments, and what a front end has; for DFLASH and for DDTREE."""
    target, drafter = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("drafter")
    (target / "config.json").write_text(json.dumps(TARGET), encoding="utf-8")
    (drafter / "config.json").write_bytes(DRAFTER.read_bytes())
    command = ["--model-path", str(target), "--speculative-draft-model-path", str(drafter), "--device", "cuda"]
    command += ["--attention-backend", "triton", "--sampling-backend", "pytorch", "--grammar-backend", "none"]
    command += ["--skip-tokenizer-init", "--tokenizer-worker-num", "2"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER, json.dumps(command), FRONT_END, str(target / "pickled")],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    return (
        [line[7:] for line in lines if line.startswith("LOGGED ")],
        [json.loads(line[5:]) for line in lines if line.startswith("SAID ")],
    )


def test_a_front_end_of_its_own_reports_counts_and_refuses_as_the_only_one_does(
    said: tuple[list[str], list[dict[str, Any]]],
) -> None:
    _, (chain, tree) = said
    assert (tree["class"], tree["budget"], tree["proposed"]) == ("TokenizerWorker", 12, 4 * 7)
    assert "--enable-draft-weights-cpu-backup" in tree["refused"]
    assert (chain["class"], chain["budget"], chain["refused"]) == ("TokenizerWorker", None, "")


def test_the_arguments_are_logged_and_changed_as_sglangs_own(said: tuple[list[str], list[dict[str, Any]]]) -> None:
    assert said[0] == ["ServerArgs( 7"] * 2


def test_a_class_that_somebody_else_has_derived_is_refused_and_not_replaced() -> None:
    class Derived(stock.ServerArgs):  # type: ignore[misc]
        pass

    with pytest.raises(ValueError, match="Leave --tokenizer-worker-num out"):
        front_end.carry(Derived.__new__(Derived))
    with pytest.raises(ValueError, match="SimpleNamespace"):
        front_end.carry(SimpleNamespace())
