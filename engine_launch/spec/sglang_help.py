"""The text of ``serve --engine sglang --help``: what the launcher and the plugin read, and where the rest is listed."""

from __future__ import annotations

import textwrap

from engine_launch.spec.flags import Flag, Kind, Use, resolve
from engine_launch.spec.flags_help import flag_lines, within_bounds
from engine_launch.spec.tree_sizes import DEFAULT_BUDGET, DEFAULT_CEILING, DEFAULT_TOPK, DEFAULT_TOPK_CEILING

SGLANG_HELP = "python -m sglang.launch_server --help"
_WHAT = (
    "Looks at flags, folders, plugin, drafter, GPU and port, says at once what would stop the start later, and then becomes "
    "python -m sglang.launch_server. --engine is the launcher's own; every other word is handed to SGLang as it stands, also "
    "what is not listed here."
)
_ELSEWHERE = (
    (
        "SGLang's own help, which lists all of its flags and these of DDTREE (it imports SGLang first, which takes a while):",
        SGLANG_HELP,
    ),
    ("The embedded engine's flags:", "ddtree-launch serve --engine embedded --help"),
)


def _tree(name: str, kind: Kind, text: str, choices: tuple[str, ...] = ()) -> Flag:
    return Flag(f"--speculative-ddtree-{name}", kind, Use.NONE, text, choices=choices, sglang=False)


TREE_FLAGS: tuple[Flag, ...] = (
    _tree("budget", Kind.INT, f"nodes of the tree, root not counted (default: {DEFAULT_BUDGET})"),
    _tree("topk", Kind.INT, f"candidates per position (default: {DEFAULT_TOPK})"),
    _tree(
        "max-budget",
        Kind.INT,
        f"how far the budget can be raised while the server runs (default: the budget, at least {DEFAULT_CEILING})",
    ),
    _tree(
        "max-topk",
        Kind.INT,
        f"how far the top-k can be raised while the server runs (default: the top-k, at least {DEFAULT_TOPK_CEILING})",
    ),
    _tree("verify-widths", Kind.ANY, "rows of a verify (nodes and root) for which CUDA graphs are captured: 9,17,33 or 9 17 33"),
    _tree(
        "draft-pool",
        Kind.CHOICE,
        "ring: draft KV for --speculative-draft-window-size tokens and one block per running request, and no more "
        "(default: stock)",
        choices=("stock", "ring"),
    ),
    Flag(
        "--ddtree-self-test",
        Kind.SWITCH,
        Use.NONE,
        "decode a few prompts plainly and as trees before the server is ready, and end it when they do not agree",
        sglang=False,
    ),
)
"""The plugin's flags, as SGLang takes them."""

NEEDED_FLAGS: tuple[Flag, ...] = (
    Flag("--model-path", Kind.TEXT, Use.NONE, "folder of the target, or its name on a hub (ORG/NAME)"),
    Flag("--speculative-algorithm", Kind.CHOICE, Use.NONE, "trees of drafts; SGLang has others", choices=("DDTREE",)),
    Flag("--speculative-draft-model-path", Kind.TEXT, Use.NONE, "folder of the DFlash drafter, or its name on a hub"),
    Flag("--attention-backend", Kind.CHOICE, Use.NONE, "the one that has tree masks", choices=("triton",)),
    Flag("--page-size", Kind.CHOICE, Use.NONE, "a tree's branches cannot share a page", choices=("1",)),
    Flag(
        "--speculative-draft-window-size",
        Kind.INT,
        Use.NONE,
        "compact draft cache: the drafter sees the last N tokens; without it, all",
    ),
)
"""Flags of SGLang without which there is no DDTREE, and the one that people set most."""


def sglang_help(columns: int = 80) -> str:
    """The text for a terminal of so many columns."""
    columns = within_bounds(columns)

    def paragraph(text: str) -> list[str]:
        return textwrap.wrap(text, columns, break_on_hyphens=False)

    lines = ["usage: ddtree-launch serve --engine sglang [flags]", "", *paragraph(_WHAT)]
    for title, flags in (
        ("The launcher's own:", (resolve("--engine"),)),
        ("What DDTREE needs of SGLang's flags:", NEEDED_FLAGS),
        ("DDTREE's own, which this package adds to SGLang:", TREE_FLAGS),
    ):
        lines += ["", title]
        for flag in flags:
            lines += flag_lines(flag, columns)
    for what, command in _ELSEWHERE:
        # On a line of its own, to be copied whole.
        lines += ["", *paragraph(what), f"  {command}"]
    return "\n".join(lines)
