"""Which tokens of a conversation the assistant wrote, read off the chat template's own tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from engine_launch.training.target import IM_END, IM_START

ASSISTANT_HEADER = (IM_START, 520, 9531, 198)
"""``<|im_start|>``, ``ass``, ``istant``, newline."""


def split_at_answers(transcript: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The pieces of a transcript, each up to the end of an assistant header (where an answer belongs)."""
    size = len(ASSISTANT_HEADER)
    ends = [i + size for i in range(len(transcript) - size + 1) if transcript[i : i + size] == ASSISTANT_HEADER]
    return [transcript[first:end] for first, end in zip([0, *ends], ends, strict=False)]


def answer_mask(ids: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
    """Which of ``ids [B, S]`` belong to an answer: the first begins at ``starts [B]``, later ones after an assistant header.

    The end of an answer belongs to it; whatever comes after it, up to the next assistant header, does not.
    """
    at = torch.arange(ids.shape[1], device=ids.device)
    inside = (at >= starts[:, None]) & (at < lengths[:, None])
    opened = torch.where(inside & (ids == IM_START), at, -1).cummax(dim=1).values
    ended = torch.where(inside & (ids == IM_END), at, -1).cummax(dim=1).values
    ended_before = torch.cat([torch.full_like(ended[:, :1], -1), ended[:, :-1]], dim=1)
    by_assistant = opened >= 0
    for j, token in enumerate(ASSISTANT_HEADER):
        by_assistant &= ids.gather(1, (opened + j).clamp(min=0, max=ids.shape[1] - 1)) == token
    later = by_assistant & (at >= opened + len(ASSISTANT_HEADER)) & (ended_before < opened)
    return inside & torch.where(opened < 0, ended_before < 0, later)
