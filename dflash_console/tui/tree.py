"""One verify as a picture: the tree that was proposed, the path that was accepted, where the target left it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from ..formats import shorten


@dataclass(frozen=True)
class TreeNode:
    """One proposed draft."""

    parent: int
    """Index of the parent node; 0 is the root."""
    token: str
    probability: float
    """Of the whole path to it, under the drafter."""


@dataclass(frozen=True)
class VerifyPicture:
    """One verify of one request."""

    number: int
    root: str
    """The token that the tree hangs on: the last committed one."""
    nodes: tuple[TreeNode, ...]
    """Node ``i`` of the tree is ``nodes[i - 1]``."""
    path: tuple[int, ...]
    """Accepted nodes from the root on, the root (0) included."""
    bonus: str
    """The target's own token after the path."""
    milliseconds: float | None = None

    @property
    def commit_length(self) -> int:
        """Accepted drafts and the target's own token."""
        return len(self.path)

    @property
    def expected(self) -> float:
        """Commit length if the drafter were right about itself: 1 + the sum of the paths' probabilities."""
        return 1 + sum(node.probability for node in self.nodes)


class PictureError(ValueError):
    """A record of rounds that cannot be read; the message says what is missing."""


def read_pictures(body: object) -> tuple[VerifyPicture, ...]:
    """The engine's ``/ddtree/rounds`` as pictures, oldest first.

    Raises:
        PictureError: the body has another form.
    """
    rounds = body.get("rounds") if isinstance(body, dict) else body
    if not isinstance(rounds, list):
        raise PictureError("the engine's answer has no list of rounds")
    return tuple(_picture(entry) for entry in rounds)


def _picture(entry: object) -> VerifyPicture:
    if not isinstance(entry, dict):
        raise PictureError("a round is not an object")
    try:
        texts = entry.get("texts") or entry.get("token_texts") or [str(token) for token in entry["tokens"]]
        nodes = tuple(
            TreeNode(int(parent), str(text), math.exp(min(0.0, float(logprob))))
            for parent, text, logprob in zip(entry["parents"], texts, entry["logprobs"], strict=True)
        )
        seconds = entry.get("seconds")
        total = sum(float(value) for value in seconds.values()) if isinstance(seconds, dict) and seconds else None
        return VerifyPicture(
            number=int(entry.get("round", 0)),
            root=str(entry.get("root_text", entry.get("root", ""))),
            nodes=nodes,
            path=tuple(int(node) for node in entry["path"]),
            bonus=str(entry.get("bonus_text", entry.get("bonus", ""))),
            milliseconds=None if total is None else total * 1000,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PictureError(f"a round cannot be read: {error}") from None


def draw_tree(picture: VerifyPicture, *, accepted: str, quiet: str, width: int = 100) -> list[Text]:
    """The tree as indented lines, the likelier branch first; accepted nodes carry a filled mark and ``accepted``'s style."""
    on_path = set(picture.path)
    children: dict[int, list[int]] = {}
    for index, node in enumerate(picture.nodes, start=1):
        children.setdefault(node.parent, []).append(index)
    for siblings in children.values():
        siblings.sort(key=lambda index: (index not in on_path, -picture.nodes[index - 1].probability))
    lines = [Text.assemble(("● ", accepted), (visible(picture.root), "bold"), ("  root", quiet))]
    _branch(picture, children, 0, "", lines, on_path, (accepted, quiet), width)
    return lines


def _branch(
    picture: VerifyPicture,
    children: dict[int, list[int]],
    node: int,
    indent: str,
    lines: list[Text],
    on_path: set[int],
    styles: tuple[str, str],
    width: int,
) -> None:
    accepted, quiet = styles
    below = children.get(node, [])
    ends_here = picture.path and picture.path[-1] == node
    if ends_here:
        last = not below
        line = Text(f"{indent}{'└' if last else '├'}─ ", style=quiet)
        line.append(f"◆ {visible(picture.bonus)}", style=f"bold {accepted}")
        line.append("  the target's own token", style=quiet)
        lines.append(line)
    for place, child in enumerate(below):
        last = place == len(below) - 1
        kept = child in on_path
        line = Text(f"{indent}{'└' if last else '├'}─ ", style=quiet, no_wrap=True)
        line.append(f"{'●' if kept else '○'} {visible(picture.nodes[child - 1].token)}", style=f"bold {accepted}" if kept else "")
        line.append(f"  {picture.nodes[child - 1].probability:.3f}", style=quiet)
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
        _branch(picture, children, child, indent + ("   " if last else "│  "), lines, on_path, styles, width)


def visible(token: str) -> str:
    """A token with its white space to be seen."""
    shown = token.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·")
    return shorten(shown, 24) or "∅"


def summary(picture: VerifyPicture) -> str:
    """``verify 12 · 16 nodes · commit 4 (expected 3.2) · 41 ms``."""
    text = (
        f"verify {picture.number} · {len(picture.nodes)} nodes · commit {picture.commit_length} (expected {picture.expected:.1f})"
    )
    return text if picture.milliseconds is None else f"{text} · {picture.milliseconds:.0f} ms"


def mean_lengths(pictures: Sequence[VerifyPicture]) -> tuple[float, float] | None:
    """Realised and expected commit length over the pictures; ``None`` of nothing."""
    if not pictures:
        return None
    count = len(pictures)
    return sum(p.commit_length for p in pictures) / count, sum(p.expected for p in pictures) / count
