"""``ddtree-launch drafter PATH``: a DFlash checkpoint in words, and whether it fits the target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from engine_launch.commands.checkpoint import Checkpoint, CheckpointError, read_checkpoint
from engine_launch.commands.line_parser import LineParser
from engine_launch.commands.output import complain
from engine_launch.spec.drafter_check import Finding, Severity, TargetShape, check_drafter
from engine_launch.spec.kv import draft_kv_bytes

DEFAULT_TARGET = TargetShape(name="SmolLM2-135M-Instruct", hidden_size=576, num_layers=30, vocab_size=49152)
"""The embedded engine's own target, so that a drafter can be checked before the model is fetched."""
HELP = (
    f"A DFlash checkpoint in words, and whether it fits the embedded engine's target, {DEFAULT_TARGET.name}. Exit codes: 0 it "
    "fits, 1 it does not, 2 it cannot be read. Against another target: ddtree-launch doctor -- FLAGS OF SERVE."
)
CONTEXTS = (2048, 8192, 32768)
"""Contexts at which draft KV is shown, in tokens."""


def drafter(argv: Sequence[str]) -> int:
    """Exit code 0: it fits; 1: it does not; 2: it cannot be read."""
    parser = LineParser(prog="ddtree-launch drafter", description=HELP)
    parser.add_argument("path", type=Path, metavar="PATH", help="folder with config.json and model.safetensors")
    parser.add_argument("--json", action="store_true", help="print JSON")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        checkpoint = read_checkpoint(arguments.path)
    except CheckpointError as error:
        return complain(str(error))
    findings = check_drafter(checkpoint.config, DEFAULT_TARGET, checkpoint.shapes)
    print(_json(checkpoint, findings) if arguments.json else _text(checkpoint, findings))
    return 1 if any(finding.severity is Severity.ERROR for finding in findings) else 0


def _draft_kv(checkpoint: Checkpoint, context: int, draft_window: int) -> int:
    """Bytes in bfloat16 with the layers' window as trained."""
    config = checkpoint.config
    return draft_kv_bytes(config, context, layers_window=config.sliding_window or 0, draft_window=draft_window, dtype_bytes=2)


def _text(checkpoint: Checkpoint, findings: Sequence[Finding]) -> str:
    config = checkpoint.config
    taps = ", ".join(map(str, config.target_layer_ids)) if config.target_layer_ids else "not given"
    lines = [
        f"{checkpoint.folder}",
        f"  layers        {config.window_text}",
        f"  block size    {config.block_size} ({config.block_size - 1} drafts a round)",
        f"  target layers {taps}",
        f"  mask token    {config.mask_token_id}",
        f"  size          hidden {config.hidden_size}, {config.num_attention_heads} heads, "
        f"{config.num_key_value_heads} KV heads of {config.head_dim}",
        f"  weights       {checkpoint.weight_bytes / 1e6:.1f} MB, {len(checkpoint.shapes)} tensors",
        "  draft KV of one request (bfloat16), windows as trained:",
    ]
    lines += [f"    {context:>6} tokens  {_draft_kv(checkpoint, context, 0) / 1e6:8.2f} MB" for context in CONTEXTS]
    lines += [f"  {finding.severity.value}: {finding.message}" for finding in findings]
    errors = any(finding.severity is Severity.ERROR for finding in findings)
    lines.append(f"  {'does not fit' if errors else 'fits'} {DEFAULT_TARGET.name}")
    return "\n".join(lines)


def _json(checkpoint: Checkpoint, findings: Sequence[Finding]) -> str:
    config = checkpoint.config
    return json.dumps(
        {
            "path": str(checkpoint.folder),
            "architecture": config.architecture,
            "layers": config.num_layers,
            "layer_types": [kind.value for kind in config.layer_types],
            "sliding_window": config.sliding_window,
            "window_text": config.window_text,
            "block_size": config.block_size,
            "target_layer_ids": config.target_layer_ids,
            "mask_token_id": config.mask_token_id,
            "hidden_size": config.hidden_size,
            "vocab_size": config.vocab_size,
            "weight_bytes": checkpoint.weight_bytes,
            "draft_kv_bytes": {str(context): _draft_kv(checkpoint, context, 0) for context in CONTEXTS},
            "target": DEFAULT_TARGET.name,
            "fits": not any(finding.severity is Severity.ERROR for finding in findings),
            "findings": [{"severity": finding.severity.value, "message": finding.message} for finding in findings],
        },
        indent=2,
    )
