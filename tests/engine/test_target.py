"""The target's forward pass: equal to transformers', row by row independent of who shares the pass, exact for trees."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine_launch import tree as ddtree
from engine_launch.embedded.rotary import RotaryTable
from engine_launch.embedded.target import Segment, TargetModel
from engine_launch.embedded.target_kv import TargetKV
from engine_launch.tree import Tree
from tests.engine.models import prompts, target_config, target_weights, tiny_target, transformers_config

TAPS = (0, 2)
# root ─ 1 ─ 3 ─ 6;  root ─ 2 ─ 4;  1 ─ 5
BRANCHED = Tree((5, 6, 7, 8, 9, 10), (0, 0, 1, 2, 1, 3), (1, 1, 2, 2, 2, 3), (-1.0,) * 6)


def transformers_logits(dtype: torch.dtype, ids: Sequence[int], tie: bool) -> Tensor:
    """The same weights in transformers' LlamaForCausalLM."""
    from transformers import LlamaForCausalLM

    config = target_config()
    model = LlamaForCausalLM(transformers_config(config, tie=tie))
    model.to(dtype=dtype)  # type: ignore[call-arg]
    ours = target_weights(config, dtype)
    theirs = {"model.embed_tokens.weight": ours["embed"], "model.norm.weight": ours["norm"], "lm_head.weight": ours["embed"]}
    for layer in range(config.num_hidden_layers):
        mine, prefix = f"layers.{layer}.", f"model.layers.{layer}."
        q, k, v = ours[mine + "qkv"].split([config.q_size, config.kv_size, config.kv_size])  # type: ignore[no-untyped-call]
        gate, up = ours[mine + "gate_up"].chunk(2)
        theirs |= {
            prefix + "input_layernorm.weight": ours[mine + "attn_norm"],
            prefix + "post_attention_layernorm.weight": ours[mine + "mlp_norm"],
            prefix + "self_attn.q_proj.weight": q,
            prefix + "self_attn.k_proj.weight": k,
            prefix + "self_attn.v_proj.weight": v,
            prefix + "self_attn.o_proj.weight": ours[mine + "o"],
            prefix + "mlp.gate_proj.weight": gate,
            prefix + "mlp.up_proj.weight": up,
            prefix + "mlp.down_proj.weight": ours[mine + "down"],
        }
    model.load_state_dict(theirs)
    with torch.inference_mode():
        return model(torch.tensor([list(ids)])).logits[0]  # type: ignore[no-any-return]


@torch.inference_mode()
def run(target: TargetModel, kv: TargetKV, ids: Sequence[int], start: int) -> tuple[Tensor, Tensor]:
    """Causal pass: logits and features; nothing is committed."""
    positions = torch.arange(start, start + len(ids))
    out = target.forward(torch.tensor(ids), positions, [Segment(kv, len(ids))], TAPS)
    assert out.features is not None
    return target.logits(out.hidden), out.features


@torch.inference_mode()
def run_tree(
    target: TargetModel, kv: TargetKV, root: int, tree: Tree, visible: Tensor | None = None, positions: list[int] | None = None
) -> tuple[Tensor, Tensor]:
    ids = torch.tensor([root, *tree.tokens])
    at = torch.tensor(positions or ddtree.positions(tree, kv.length))
    seen = ddtree.visibility(tree) if visible is None else visible
    out = target.forward(ids, at, [Segment(kv, tree.width, seen)], TAPS)
    assert out.features is not None
    return target.logits(out.hidden), out.features


def filled(target: TargetModel, prompt: Sequence[int], capacity: int = 64) -> TargetKV:
    kv = target.new_kv(capacity)
    run(target, kv, prompt, 0)
    kv.commit(range(len(prompt)))
    return kv


def path_to(tree: Tree, node: int) -> list[int]:
    path = [node]
    while path[0]:
        path.insert(0, tree.parents[path[0] - 1])
    return path


# transformers rotates and normalises in fp32 whatever the model's dtype, so fp64 cannot bring more than that.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.float32, 1e-4)])
def test_logits_equal_transformers_llama(dtype: torch.dtype, tolerance: float) -> None:
    ids = prompts(1, 40)[0]
    target = tiny_target(dtype)
    logits, _ = run(target, target.new_kv(40), ids, 0)
    theirs = transformers_logits(dtype, ids, tie=True)
    assert (logits - theirs).abs().max() < tolerance
    assert theirs.abs().max() > 1


def test_bf16_stays_near_fp32() -> None:
    ids = prompts(1, 40)[0]
    exact, _ = run(tiny_target(torch.float32), tiny_target(torch.float32).new_kv(40), ids, 0)
    target = tiny_target(torch.bfloat16)
    kv = filled(target, ids[:20])
    rough, _ = run(target, kv, ids[20:], 20)
    assert rough.dtype is torch.bfloat16
    assert (rough.float() - exact[20:]).abs().mean() < 0.05 * exact.std()


@pytest.mark.parametrize("cuts", [(40,), (1, 39), (17, 1, 22), (1,) * 40])
def test_a_prompt_in_pieces_gives_the_logits_of_the_whole(cuts: tuple[int, ...]) -> None:
    ids, target = prompts(1, 40)[0], tiny_target()
    whole, _ = run(target, target.new_kv(40), ids, 0)
    kv, parts, start = target.new_kv(40), [], 0
    for cut in cuts:
        parts.append(run(target, kv, ids[start : start + cut], start)[0])
        kv.commit(range(cut))
        start += cut
    assert (torch.cat(parts) - whole).abs().max() < 1e-10


def test_requests_of_any_length_and_width_share_a_pass_without_touching_each_other() -> None:
    target = tiny_target()
    texts = prompts(3, 9)
    caches = [filled(target, text) for text in texts]
    alone = [
        run_tree(target, caches[0], 3, BRANCHED),
        run(target, caches[1], [4], caches[1].length),
        run(target, caches[2], [5, 6, 7], caches[2].length),
    ]
    segments = [
        Segment(caches[0], BRANCHED.width, ddtree.visibility(BRANCHED)),
        Segment(caches[1], 1),
        Segment(caches[2], 3),
    ]
    start = [cache.length for cache in caches]
    positions = [*ddtree.positions(BRANCHED, start[0]), start[1], *range(start[2], start[2] + 3)]
    with torch.inference_mode():
        out = target.forward(torch.tensor([3, *BRANCHED.tokens, 4, 5, 6, 7]), torch.tensor(positions), segments, TAPS)
        logits = target.logits(out.hidden)
    assert (logits - torch.cat([part[0] for part in alone])).abs().max() < 1e-10
    assert out.features is not None
    assert (out.features - torch.cat([part[1] for part in alone])).abs().max() < 1e-10


def test_tree_logits_and_features_equal_those_of_each_path_decoded_alone() -> None:
    target, prompt = tiny_target(), prompts(1, 20)[0]
    kv = filled(target, prompt)
    logits, features = run_tree(target, kv, 3, BRANCHED)
    for node in range(BRANCHED.width):
        path = path_to(BRANCHED, node)
        tokens = [3, *(BRANCHED.tokens[step - 1] for step in path[1:])]
        alone, alone_features = run(target, filled(target, prompt), tokens, len(prompt))
        assert (logits[node] - alone[-1]).abs().max() < 1e-10
        assert (features[node] - alone_features[-1]).abs().max() < 1e-10


@pytest.mark.parametrize("node", range(1, BRANCHED.width))
def test_keys_and_values_after_a_commit_equal_those_of_decoding_the_path(node: int) -> None:
    target, prompt = tiny_target(), prompts(1, 20)[0]
    kv = filled(target, prompt)
    run_tree(target, kv, 3, BRANCHED)
    path = path_to(BRANCHED, node)
    kv.commit(path)
    plain = filled(target, prompt)
    run(target, plain, [3, *(BRANCHED.tokens[step - 1] for step in path[1:])], len(prompt))
    plain.commit(range(len(path)))
    assert kv.length == plain.length
    assert (kv.keys[:, :, : kv.length] - plain.keys[:, :, : kv.length]).abs().max() < 1e-10
    assert (kv.values[:, :, : kv.length] - plain.values[:, :, : kv.length]).abs().max() < 1e-10


def test_one_wrong_mask_bit_shows_in_the_logits() -> None:
    target, prompt = tiny_target(), prompts(1, 20)[0]
    kv = filled(target, prompt)
    right, _ = run_tree(target, kv, 3, BRANCHED)
    mask = ddtree.visibility(BRANCHED)
    mask[5, 2] = True  # node 5 must not see its uncle
    wrong, _ = run_tree(target, kv, 3, BRANCHED, visible=mask)
    assert (right - wrong)[5].abs().max() > 1e-4


def test_one_wrong_position_shows_in_the_logits() -> None:
    target, prompt = tiny_target(), prompts(1, 20)[0]
    kv = filled(target, prompt)
    right, _ = run_tree(target, kv, 3, BRANCHED)
    at = ddtree.positions(BRANCHED, kv.length)
    at[4] += 1  # as if the row index were the position
    wrong, _ = run_tree(target, kv, 3, BRANCHED, positions=at)
    assert (right - wrong)[4].abs().max() > 1e-4


def test_a_cache_that_must_grow_keeps_what_it_holds() -> None:
    target, prompt = tiny_target(), prompts(1, 20)[0]
    roomy, tight = filled(target, prompt, 64), filled(target, prompt, 20)
    logits, _ = run_tree(target, tight, 3, BRANCHED)
    expected, _ = run_tree(target, roomy, 3, BRANCHED)
    assert tight.capacity > 20
    assert torch.equal(logits, expected)


def test_rotary_tables_cover_positions_without_drift() -> None:
    cos, sin = RotaryTable(8, 10000.0, 100, torch.float64).at(torch.tensor([0, 99]))
    assert torch.equal(cos[0], torch.ones_like(cos[0]))
    assert float(sin[1, 0, 1, 0]) == pytest.approx(math.sin(99.0), abs=1e-12)
