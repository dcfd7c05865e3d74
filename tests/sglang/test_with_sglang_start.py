"""The plugin in real SGLang on the CPU, as far as a start goes there: in a process of its own, as a server is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)  # importing SGLang takes a quarter of a minute, on a busy machine minutes
DRAFTER = Path(__file__).parents[2] / "engine_launch" / "weights" / "smollm2-135m-dflash" / "config.json"
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
ASK = """
import json, logging, sys
lines = []
class Keep(logging.Handler):
    def emit(self, record): lines.append(record.getMessage())
for name in ("sglang", "engine_launch"):  # SGLang replaces the root's handlers
    logging.getLogger(name).addHandler(Keep())
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.server_args import prepare_server_args
from engine_launch.refusals import is_refusal
answers = []
for command in json.load(sys.stdin):
    lines.clear()
    said = {"error": "", "refusal": False}
    try:
        args = prepare_server_args(command)
        for name in ("speculative_algorithm", "speculative_num_draft_tokens", "speculative_dflash_block_size",
                     "speculative_draft_window_size", "max_running_requests", "speculative_draft_attention_backend"):
            said[name] = getattr(args, name)
    except ValueError as error:
        said["error"], said["refusal"] = str(error), is_refusal(error, error.__traceback__)
    said["front"] = hasattr(TokenizerManager.resolved_config_dict, "__wrapped__")
    said["lines"] = list(lines)
    answers.append(said)
print("\\n" + json.dumps(answers))
"""
ENGINE = """
import json, os, sys
from types import SimpleNamespace as Some
target, drafter = sys.argv[1:]
os.environ["DDTREE_SGLANG_OPTIONS"] = json.dumps({"budget": 12})
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.server_args import ServerArgs

def made(algorithm):
    arguments = ServerArgs(model_path=target, speculative_algorithm=algorithm, speculative_draft_model_path=drafter,
                           device="cuda", attention_backend="triton", sampling_backend="pytorch", grammar_backend="none",
                           skip_tokenizer_init=True)
    manager = TokenizerManager.__new__(TokenizerManager)
    manager.__dict__.update(server_args=arguments, _config_updates=[], model_path=target, served_model_name="m")
    return manager

def said(manager):
    meta = {}
    counts = Some(spec_verify_ct=[4], completion_tokens=[13], spec_num_correct_drafts=[8], spec_correct_drafts_histogram=[[]])
    manager._calculate_spec_decoding_metrics(meta, counts, 0)
    return [manager.resolved_config_dict({}).get("speculative_ddtree_budget"), meta["spec_num_proposed_drafts"]]

tree = made("ddtree")
print(json.dumps([said(tree), said(made("DFLASH")), said(made("DDTREE"))]))
"""
DDTREE = ("--speculative-algorithm", "DDTREE")
REFUSED = (
    (("--attention-backend", "fa3"), "--attention-backend triton (it is fa3)"),
    (("--page-size", "16"), "--page-size 1, not 16"),
    (("--speculative-draft-window-size", "4"), "must be >="),
    (("--speculative-ddtree-budget", "64", "--speculative-ddtree-max-budget", "32"), "max-budget 32"),
    (("--speculative-accept-threshold-single", "0.5"), "--speculative-accept-threshold-single"),
    (("--ddtree-self-test", "--skip-server-warmup"), "--skip-server-warmup"),
    (("--speculative-num-draft-tokens", "1"), "the drafter's block"),
    (("--speculative-num-draft-tokens", "16", "--speculative-dflash-block-size", "8"), "For DDTREE they must match"),
    (("--attn-cp-size", "2", "--tp-size", "2"), "--attn-cp-size"),
    (("--ddtree-self-test", "--tokenizer-worker-num", "2"), "--tokenizer-worker-num above 1"),
    (("--preferred-sampling-params", '{"repetition_penalty": 1.1}'), "would have every request refused: DDTREE speculative"),
    (
        ("--preferred-sampling-params", '{"custom_params": {"ddtree_budget": 0}}'),
        "would have every request refused: the tree budget is 0; 1 to 32 nodes are possible",
    ),
    (("--kv-canary", "log"), "--kv-canary (it does not know"),
    (("--speculative-ddtree-draft-pool", "ring"), "ring needs --speculative-draft-window-size"),
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "chain": ("--speculative-algorithm", "DFLASH"),
    "chain with a tree's flag": ("--speculative-algorithm", "DFLASH", "--speculative-ddtree-budget", "16"),
    "n-grams with a window": ("--speculative-algorithm", "NGRAM", "--speculative-draft-window-size", "512"),
    **{words: (*DDTREE, *flags) for flags, words in REFUSED},
    "not ours": (*DDTREE, "--dcp-replicate-q-proj"),
    "preferred": (*DDTREE, "--preferred-sampling-params", '{"temperature": 0.5}'),
    "tree with another's flags": (*DDTREE, "--speculative-num-steps", "3", "--enable-mixed-chunk"),
    "tree": ("--speculative-algorithm", "ddtree", "--speculative-ddtree-budget", "16", "--speculative-draft-window-size", "512"),
}
"""In this order, because what a start with DDTREE has put in place stays for the rest of a process."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of a target and its drafter that have a configuration and no weights."""
    target, drafter = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("drafter")
    (target / "config.json").write_text(json.dumps(TARGET), encoding="utf-8")
    (drafter / "config.json").write_bytes(DRAFTER.read_bytes())
    return target, drafter


@pytest.fixture(scope="module")
def said(models: tuple[Path, Path]) -> dict[str, dict[str, Any]]:
    """What SGLang made of each command line."""
    target, drafter = models
    common = ["--model-path", str(target), "--speculative-draft-model-path", str(drafter), "--device", "cuda"]
    common += [
        "--attention-backend",
        "triton",
        "--sampling-backend",
        "pytorch",
        "--grammar-backend",
        "none",
        "--skip-tokenizer-init",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASK],
        input=json.dumps([[*common, *command] for command in COMMANDS.values()]),
        capture_output=True,
        text=True,
        timeout=500,
        env={key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(COMMANDS, json.loads(done.stdout.strip().splitlines()[-1]), strict=True))


def test_ddtree_reserves_the_trees_width_and_keeps_the_drafters_block(said: dict[str, dict[str, Any]]) -> None:
    tree = said["tree"]
    assert tree["error"] == ""
    assert tree["speculative_algorithm"] == "DDTREE"
    assert (tree["speculative_num_draft_tokens"], tree["speculative_dflash_block_size"]) == (33, 8)
    assert tree["speculative_draft_window_size"] == 512
    assert tree["max_running_requests"] == 48
    assert tree["speculative_draft_attention_backend"] == "triton"
    assert tree["front"] is True
    assert not [line for line in tree["lines"] if "no effect" in line]
    assert [line for line in said["n-grams with a window"]["lines"] if "no effect" in line], "SGLang still warns others"


def test_what_sglang_says_of_such_flags_names_ddtree(said: dict[str, dict[str, Any]]) -> None:
    lines = said["tree with another's flags"]["lines"]
    assert [line for line in lines if line.startswith("DDTREE only supports speculative_num_steps == 1")]
    assert [line for line in lines if "because of using DDTREE speculative decoding" in line]
    assert not [line for line in lines if "dflash" in line.lower()]


def test_stock_dflash_is_untouched(said: dict[str, dict[str, Any]]) -> None:
    chain = said["chain"]
    assert chain["error"] == ""
    assert (chain["speculative_num_draft_tokens"], chain["speculative_dflash_block_size"]) == (8, None)
    assert chain["front"] is False


def test_flags_of_the_tree_without_ddtree_are_a_warning(said: dict[str, dict[str, Any]]) -> None:
    assert [line for line in said["chain with a tree's flag"]["lines"] if "--speculative-ddtree-* has no effect" in line]


@pytest.mark.parametrize("words", [words for _, words in REFUSED])
def test_what_cannot_run_is_refused_at_the_start(said: dict[str, dict[str, Any]], words: str) -> None:
    assert words in said[words]["error"]
    assert said[words]["refusal"], "with the launcher its sentence stands alone"


def test_what_sglang_itself_cannot_take_is_no_refusal_of_ours(said: dict[str, dict[str, Any]]) -> None:
    assert "requires --dcp-size" in said["not ours"]["error"]
    assert not said["not ours"]["refusal"]


def test_preferred_parameters_that_trees_serve_are_taken(said: dict[str, dict[str, Any]]) -> None:
    assert said["preferred"]["error"] == ""


def test_an_engine_without_a_command_line_reports_as_a_server_does(models: tuple[Path, Path]) -> None:
    """As ``sglang.Engine`` is made; one of DFLASH in the same process is as it was."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENGINE, *map(str, models)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    tree, chain, again = json.loads(done.stdout.strip().splitlines()[-1])
    assert tree == again == [12, 4 * 7]
    assert chain == [None, 4 * 7]


def test_every_name_that_the_plugin_uses_is_there() -> None:
    from engine_launch.sglang_plugin import gate

    assert gate.sglang_version() == gate.TESTED_VERSION
    assert gate.check() == []


def test_a_registration_that_breaks_ends_no_server(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import engine_launch.sglang_plugin as plugin
    from engine_launch.sglang_plugin import flags

    def breaks() -> None:
        raise TypeError("register() takes 2 positional arguments")

    monkeypatch.setattr(sys, "argv", ["launch_server.py", "--speculative-algorithm", "DDTREE"])
    monkeypatch.setattr(flags, "install", breaks)
    plugin.register()
    assert "failed (TypeError: register() takes 2 positional arguments)" in caplog.text
    assert "install that version" in caplog.text
