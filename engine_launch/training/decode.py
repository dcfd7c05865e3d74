"""Decoding with the target in thousands of slots at once, as one step that can be captured in a CUDA graph.

Every slot runs the same small program: read the tokens that are given, let the target write the rest of the user's
turn (or of a document), append the assistant's header, let the target answer, and maybe open another user's turn. Given
tokens pass through the same step as sampled ones, one position per step, so that no shape ever changes; only long given
texts are read in one pass beforehand (:mod:`engine_launch.training.prefill`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.training.prefill import prefill
from engine_launch.training.target import END_OF_TEXT, IM_END, IM_START, Target, rope_table, rotate

PROMPT, ANSWER, DONE, DISCARDED = range(4)
"""Phases of a slot: the target writes the prompt, it answers, it has answered, its prompt was unusable."""

TURN_BREAK = (IM_END, 198, IM_START, 4093, 198)
"""Between an answer and the user's next turn: the end of the answer, newline, ``<|im_start|>``, ``user``, newline."""
LATER_TURN_LIMIT = 160
"""Positions that the target gets for a user's turn after the first."""
PREFILL_FROM = 256
"""Given texts of at least so many tokens are read in one pass; for shorter ones the steps cost less than the passes."""

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Seed:
    """What one sequence begins with.

    ``given`` are the first tokens. With ``open_turn`` the target goes on writing the user's turn until it ends it
    (``suffix`` follows then) or ``prompt_limit`` positions are reached (the sequence is dropped then). Without, it
    writes up to ``prompt_limit`` positions at ``prompt_temperature`` and these count as the prompt; a limit no larger
    than ``len(given)`` means that the prompt is complete. After the answer the conversation goes on for up to ``turns``
    more turns, in which the target writes the user's part too (at ``prompt_temperature``), as long as there is room.
    """

    given: tuple[int, ...]
    open_turn: bool
    prompt_limit: int
    prompt_temperature: float
    answer_temperature: float
    answer_limit: int
    kind: int
    turns: int = 0


def attention_reference(
    qkv: Tensor, k_cache: Tensor, v_cache: Tensor, cos: Tensor, sin: Tensor, pos: Tensor, heads: int
) -> Tensor:
    """The same as :func:`engine_launch.training.kernels.decode_attention`, in plain PyTorch, for any device."""
    b, kv_heads, capacity, d = k_cache.shape
    q, k, v = qkv.view(b, heads + 2 * kv_heads, d).split([heads, kv_heads, kv_heads], dim=1)  # type: ignore[no-untyped-call]
    c, s = cos[pos][:, None].to(qkv.dtype), sin[pos][:, None].to(qkv.dtype)
    rows = torch.arange(b, device=qkv.device)
    k_cache[rows, :, pos] = rotate(k, c, s)
    v_cache[rows, :, pos] = v
    seen = torch.arange(capacity, device=qkv.device) <= pos[:, None]
    out = F.scaled_dot_product_attention(
        rotate(q, c, s)[:, :, None], k_cache, v_cache, attn_mask=seen[:, None, None], enable_gqa=True
    )
    return out.reshape(b, heads * d)


class SlotDecoder:
    """The state of all slots, and the step that moves every slot on by one position."""

    def __init__(
        self,
        target: Target,
        slots: int,
        capacity: int,
        suffix: tuple[int, ...],
        attention: Attention = attention_reference,
        turn_break: tuple[int, ...] = TURN_BREAK,
    ) -> None:
        device, dtype, shape = target.embedding.device, target.embedding.dtype, target.shape
        self.target, self.slots, self.capacity, self._attention = target, slots, capacity, attention
        size = (shape.layers, slots, shape.kv_heads, capacity, shape.head_dim)
        self._k = torch.zeros(size, dtype=dtype, device=device)
        self._v = torch.zeros(size, dtype=dtype, device=device)
        self._cos, self._sin = rope_table(capacity, shape.head_dim, shape.rope_theta, device)
        self._suffix = torch.tensor(suffix, device=device)
        self._turn_break = torch.tensor(turn_break, device=device)
        self._rows = torch.arange(slots, device=device)

        def ints() -> Tensor:
            return torch.zeros(slots, dtype=torch.int64, device=device)

        self.tokens = torch.zeros(slots, capacity, dtype=torch.int64, device=device)
        self.pos, self.given, self.answer_start, self.answer_limit, self.prompt_limit = (ints() for _ in range(5))
        self.turns, self.first_answer = ints(), ints()
        self.phase = torch.full((slots,), DONE, dtype=torch.int64, device=device)
        self.open_turn = torch.zeros(slots, dtype=torch.bool, device=device)
        self.temperature = torch.zeros(slots, 2, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def load(self, slots: list[int], seeds: list[Seed]) -> None:
        """Start ``seeds`` in ``slots``."""
        device = self.tokens.device
        at = torch.tensor(slots, device=device)
        width = max(len(s.given) for s in seeds)
        tokens = torch.tensor([s.given + (0,) * (width - len(s.given)) for s in seeds])
        self.tokens[at, :width] = tokens.to(device)
        length = torch.tensor([len(s.given) for s in seeds])
        limit = torch.tensor([s.prompt_limit for s in seeds])
        ready = torch.tensor([not s.open_turn and s.prompt_limit <= len(s.given) for s in seeds])
        self.pos[at] = 0
        self.given[at] = length.to(device)
        self.answer_start[at] = length.to(device)
        self.first_answer[at] = torch.where(ready, length, 0).to(device)
        self.turns[at] = torch.tensor([s.turns for s in seeds]).to(device)
        self.prompt_limit[at] = limit.to(device)
        self.answer_limit[at] = torch.tensor([s.answer_limit for s in seeds]).to(device)
        self.open_turn[at] = torch.tensor([s.open_turn for s in seeds]).to(device)
        self.phase[at] = torch.where(ready, ANSWER, PROMPT).to(device)
        self.temperature[at] = torch.tensor([[s.prompt_temperature, s.answer_temperature] for s in seeds]).to(device)
        long = [(slot, s.given) for slot, s in zip(slots, seeds, strict=True) if len(s.given) >= PREFILL_FROM]
        if long:
            prefill(self.target, self._k, self._v, (self._cos, self._sin), long)
            self.pos[torch.tensor([slot for slot, _ in long], device=device)] = torch.tensor(
                [len(given) - 1 for _, given in long], device=device
            )

    def logits(self) -> Tensor:
        """Run the token at ``pos`` of every slot through the target; logits ``[slots, vocab]``."""
        t, shape = self.target, self.target.shape
        x = F.embedding(self.tokens[self._rows, self.pos], t.embedding)
        for i, layer in enumerate(t.layers):
            qkv = F.linear(F.rms_norm(x, (shape.hidden,), layer.input_norm, shape.rms_eps), layer.qkv)
            a = self._attention(qkv, self._k[i], self._v[i], self._cos, self._sin, self.pos, shape.heads)
            x = torch.addmm(x, a, layer.out.t())
            gate, up = F.linear(F.rms_norm(x, (shape.hidden,), layer.post_norm, shape.rms_eps), layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate) * up, layer.down.t())
        return F.linear(F.rms_norm(x, (shape.hidden,), t.norm, shape.rms_eps), t.embedding)

    @torch.no_grad()
    def step(self) -> None:
        """Move every running slot on by one position. Only tensor operations, so that a CUDA graph can hold it."""
        answering = self.phase == ANSWER
        running = answering | (self.phase == PROMPT)
        temperature = torch.where(answering, self.temperature[:, 1], self.temperature[:, 0])
        sampled = sample(self.logits(), temperature)
        last = self.capacity - 1
        new = (self.pos + 1).clamp(max=last)
        old = self.tokens[self._rows, new]
        is_given = (self.pos + 1) < self.given
        token = torch.where(is_given | ~running, old, sampled)
        self.tokens[self._rows, new] = token
        fresh = running & ~is_given

        ended = (token == IM_END) | (token == END_OF_TEXT)
        prompting = fresh & (self.phase == PROMPT)
        full = (new + 1) >= self.prompt_limit
        turn_over = prompting & self.open_turn & (token == IM_END) & ~full
        text_over = prompting & ~self.open_turn & full & ~ended
        dropped = prompting & ((self.open_turn & (full | (token == END_OF_TEXT))) | (~self.open_turn & ended))
        self._write(turn_over, new + 1, self._suffix)
        begins = torch.where(turn_over, new + 1 + len(self._suffix), new + 1)
        self.given.copy_(torch.where(turn_over, begins, self.given))
        self.answer_start.copy_(torch.where(turn_over | text_over, begins, self.answer_start))
        first = (turn_over | text_over) & (self.first_answer == 0)
        self.first_answer.copy_(torch.where(first, begins, self.first_answer))

        replying = fresh & answering
        full = ((new + 1 - self.answer_start) >= self.answer_limit) | (new >= last)
        over = replying & (ended | full)
        # An answer that the limit cut off is ended properly, for the conversation to go on.
        at = torch.where(token == IM_END, new, new + 1)
        opens = at + len(self._turn_break)
        room = opens + LATER_TURN_LIMIT + len(self._suffix) + LATER_TURN_LIMIT < self.capacity
        another = over & (self.turns > 0) & (token != END_OF_TEXT) & room
        self._write(another, at, self._turn_break)
        self.given.copy_(torch.where(another, opens, self.given))
        self.prompt_limit.copy_(torch.where(another, opens + LATER_TURN_LIMIT, self.prompt_limit))
        self.turns.sub_(another.long())
        self.open_turn.logical_or_(another)
        phase = torch.where(turn_over | text_over, ANSWER, self.phase)
        # A later turn that came to nothing ends the conversation; the answers before it are good.
        phase = torch.where(dropped, torch.where(self.first_answer > 0, DONE, DISCARDED), phase)
        phase = torch.where(another, PROMPT, phase)
        self.phase.copy_(torch.where(over & ~another, DONE, phase))
        self.pos.copy_(torch.where(running, new, self.pos))

    def _write(self, where: Tensor, first: Tensor, text: Tensor) -> None:
        """Put ``text`` at position ``first`` of the slots marked in ``where``."""
        for j in range(len(text)):
            at = (first + j).clamp(max=self.capacity - 1)
            self.tokens[self._rows, at] = torch.where(where, text[j], self.tokens[self._rows, at])

    def capture(self) -> None:
        """Record :meth:`step` as a CUDA graph; :meth:`run` replays it from then on."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self._graph = graph

    def run(self, steps: int) -> None:
        """Do ``steps`` steps."""
        for _ in range(steps):
            if self._graph is None:
                self.step()
            else:
                self._graph.replay()


def sample(logits: Tensor, temperature: Tensor) -> Tensor:
    """One token per row of ``logits [B, vocab]`` at ``temperature [B]``; 0 is greedy.

    The exponential race: ``argmax p / e`` with ``e`` ~ Exp(1) draws from ``p``.
    """
    greedy = logits.argmax(dim=-1)
    scaled = logits.float() / temperature.clamp(min=1e-3)[:, None]
    scaled = scaled - torch.empty_like(scaled).exponential_().log_()
    return torch.where(temperature > 0, scaled.argmax(dim=-1), greedy)
