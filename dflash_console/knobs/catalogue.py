"""Every engine setting, once, as data; finding one by its name.

A new setting is a new entry here: its flags, fields and log keys are spelt nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .knob import Knob, Source
from .values import CONFIG, OFF, PLAIN, KnobError, KnobKind, Value

_CATALOGUE = (
    Knob(
        "algorithm",
        "Algorithm",
        KnobKind.ALGORITHM,
        "",
        "How drafts are proposed and verified. DFLASH verifies one chain of drafts, DDTREE a tree of them; PLAIN decodes "
        "one token per step.",
        ("--speculative-algorithm",),
        server_fields=("speculative_algorithm",),
        internal_fields=("algorithm",),
        log_keys=("algorithm",),
        default_text="plain decoding",
        default=PLAIN,
    ),
    Knob(
        "speculation",
        "Speculation",
        KnobKind.SWITCH,
        "",
        "Whether the running engine drafts at all. Off goes on feeding the drafter, so that it can be switched on again; "
        "its speed is 'plain, in place', not the plain baseline.",
        (),
        internal_fields=("speculation",),
        hot_name="speculation",
        request_param="speculative",
        evidence=(Source.SERVER,),
        default_text="on when an algorithm is set",
    ),
    Knob(
        "draft_window",
        "Compact draft cache",
        KnobKind.WINDOW,
        "tokens",
        "The worker shows the drafter only the last so many committed tokens. Bounds draft attention (and, in the embedded "
        "engine, draft KV memory); the target and therefore the output are untouched.",
        ("--speculative-draft-window-size", "--speculative-dflash-draft-window-size"),
        server_fields=("speculative_draft_window_size", "speculative_dflash_draft_window_size"),
        internal_fields=("speculative_draft_window_size",),
        log_keys=("draft_window_size",),
        hot_name="speculative_draft_window_size",
        variables=r"(?<!LAYER_)(?<!LAYERS_)(?<!CONTEXT_)WINDOW",
        minimum=1,
        steps=(OFF, 512, 1024, 2048, 4096),
        default_text="off",
        default=OFF,
    ),
    Knob(
        "layers_window",
        "Drafter layers' window",
        KnobKind.LAYERS_WINDOW,
        "tokens",
        "The drafter's own sliding attention layers. 'config' runs them as trained; 'off' lets them attend to everything.",
        ("--speculative-draft-layers-window",),
        server_fields=("speculative_draft_layers_window",),
        internal_fields=("layers_window",),
        log_keys=("layers_window",),
        variables="LAYERS?_WINDOW",
        minimum=1,
        steps=(CONFIG, OFF),
        default_text="as trained (config)",
        default=CONFIG,
    ),
    Knob(
        "tree_budget",
        "Tree budget",
        KnobKind.BUDGET,
        "nodes",
        "Drafts in the tree, root not counted; the verify pass is budget + 1 rows wide. More nodes commit more tokens per "
        "verify, and each verify costs more. 'auto' lets the engine size each tree by what a verify costs.",
        ("--speculative-ddtree-budget",),
        server_fields=("speculative_ddtree_budget",),
        internal_fields=("speculative_ddtree_budget",),
        log_keys=("tree_budget",),
        hot_name="speculative_ddtree_budget",
        most_flag="--speculative-ddtree-max-budget",
        variables="BUDGET",
        request_param="ddtree_budget",
        minimum=1,
        maximum=1024,
        steps=(1, 2, 4, 7, 8, 12, 16, 24, 32, 48, 64),
        default_text="chosen by the engine",
    ),
    Knob(
        "tree_topk",
        "Top-k per position",
        KnobKind.COUNT,
        "candidates",
        "How many of the drafter's candidates per position may enter the tree.",
        ("--speculative-ddtree-topk",),
        server_fields=("speculative_ddtree_topk",),
        internal_fields=("speculative_ddtree_topk",),
        log_keys=("tree_topk",),
        hot_name="speculative_ddtree_topk",
        most_flag="--speculative-ddtree-max-topk",
        variables="TOPK|TOP_K",
        request_param="ddtree_topk",
        minimum=1,
        maximum=64,
        steps=(1, 2, 3, 4, 6, 8, 16),
        default_text="chosen by the engine",
    ),
    Knob(
        "block_size",
        "Block size",
        KnobKind.COUNT,
        "tokens",
        "Anchor and mask slots of the drafter's one pass: it proposes block size − 1 positions. A drafter trained on one "
        "block is a different drafter on another.",
        ("--speculative-num-draft-tokens", "--speculative-dflash-block-size"),
        server_fields=("speculative_dflash_block_size", "speculative_num_draft_tokens"),
        internal_fields=("block_size",),
        log_keys=("block_size",),
        variables="BLOCK_SIZE|DRAFT_TOKENS",
        minimum=2,
        maximum=64,
        default_text="the drafter's own",
    ),
    Knob(
        "drafter",
        "Drafter",
        KnobKind.TEXT,
        "path",
        "The DFlash draft model's folder.",
        ("--speculative-draft-model-path", "--speculative-draft-model"),
        server_fields=("speculative_draft_model_path",),
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="the engine's own",
    ),
    Knob(
        "max_running_requests",
        "Max running requests",
        KnobKind.COUNT,
        "requests",
        "Requests decoded at once; the rest wait in the queue.",
        ("--max-running-requests",),
        server_fields=("max_running_requests",),
        internal_fields=("effective_max_running_requests_per_dp",),
        log_keys=("max_running_requests",),
        minimum=1,
        default_text="chosen by the engine",
    ),
    Knob(
        "context_length",
        "Context length",
        KnobKind.COUNT,
        "tokens",
        "Longest prompt with its answer.",
        ("--context-length",),
        server_fields=("context_length",),
        log_keys=("context_len",),
        minimum=16,
        default_text="the model's own",
    ),
    Knob(
        "attention_backend",
        "Attention backend",
        KnobKind.TEXT,
        "",
        "Kernels of the target's attention; trees need one that takes a mask (Triton, FlashInfer).",
        ("--attention-backend",),
        server_fields=("attention_backend",),
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="chosen by the engine",
    ),
    Knob(
        "tp_size",
        "Tensor parallel",
        KnobKind.COUNT,
        "GPUs",
        "GPUs that share the target.",
        ("--tensor-parallel-size", "--tp-size", "--tp"),
        server_fields=("tp_size",),
        minimum=1,
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="1",
        default=1,
    ),
    Knob(
        "mem_fraction",
        "Static memory fraction",
        KnobKind.FRACTION,
        "",
        "Share of GPU memory for weights and KV pools.",
        ("--mem-fraction-static",),
        server_fields=("mem_fraction_static",),
        minimum=0.05,
        maximum=0.99,
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="chosen by the engine",
    ),
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in _CATALOGUE}
"""All settings by name, in the order in which screens list them."""

TRUTH_KNOBS = ("algorithm", "draft_window", "layers_window", "tree_budget", "tree_topk", "block_size", "drafter")
"""Rows of the truth table that are always there, in order."""

FLAG_PREFIX = "flag:"

_BY_FLAG = {flag: knob for knob in _CATALOGUE for flag in knob.flags}


def find_knob(name: str) -> Knob:
    """The setting called ``name``; ``flag:--its-name`` makes one for any other flag.

    A flag of the catalogue is the catalogue's setting under whichever spelling it is named: it has the same bounds, and above all
    needs the same evidence.

    Raises:
        KnobError: there is no such setting; the message lists the names.
    """
    knob = KNOBS.get(name)
    if knob is not None:
        return knob
    if name.startswith(FLAG_PREFIX) and re.fullmatch(r"--[a-z0-9][a-z0-9-]*", name[len(FLAG_PREFIX) :]):
        flag = name[len(FLAG_PREFIX) :]
        return _BY_FLAG.get(flag) or _other_flag(name, flag)
    raise KnobError(f"there is no setting called {name}; known: {', '.join(KNOBS)}, and flag:--any-other-flag")


def _other_flag(name: str, flag: str) -> Knob:
    # The flags' list is long and hardly ever needed here.
    from engine_launch.spec.flags import BY_SPELLING, Kind

    known = BY_SPELLING.get(flag)
    if known is None and (longer := sorted(full for full in BY_SPELLING if full.startswith(flag))):
        # argparse would take it for the longer flag, whose evidence it would then escape.
        raise KnobError(f"{flag} is short for {' or '.join(longer[:3])}: write the flag whole")
    switch = known is not None and known.kind is Kind.SWITCH
    return Knob(
        name,
        flag,
        KnobKind.SWITCH if switch else KnobKind.TEXT,
        "",
        f"The engine's flag {flag}.",
        known.spellings if known is not None else (flag,),
        server_fields=((known.key if known is not None else flag[2:].replace("-", "_")),),
        evidence=(Source.SERVER, Source.PROCESS),
        default_text="not given",
        default=False if switch else None,
    )


def parse_settings(items: Sequence[str]) -> dict[str, Value]:
    """``["draft_window=512", …]`` → values by setting; a later item wins.

    Raises:
        KnobError: an item without ``=``, an unknown setting or a bad value.
    """
    values: dict[str, Value] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise KnobError(f"write NAME=VALUE, not {item}")
        knob = find_knob(name.strip())
        values[knob.name] = knob.parse(text)
    return values
