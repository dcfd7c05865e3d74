"""Re-scoring answers with the target in fp32, by transformers: how far was each emitted token behind the best one?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.gpu.client import Answer, Prompt


class Scorer:
    """The target in fp32 on this machine's GPU (or CPU)."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = False
        loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.model = loaded.to(self.device).eval()

    @torch.inference_mode()
    def gaps(self, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[float]:
        """For every emitted token, in order: the best logit at its place less its own; 0 when it is the best."""
        found: list[float] = []
        for prompt, answer in zip(prompts, answers, strict=True):
            ids = torch.tensor([[*prompt, *answer.ids]], device=self.device)
            logits = self.model(ids).logits[0, len(prompt) - 1 : -1].float()
            chosen = logits.gather(1, ids[0, len(prompt) :, None])[:, 0]
            found += (logits.max(dim=1).values - chosen).tolist()
        return found
