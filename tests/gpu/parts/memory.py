"""More requests than a graph holds and then fewer; the KV cache's memory given away and taken back."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.gpu.client import Answer, Client, ServerError
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import EQUAL, differing
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, Json, judged

SERVER = "tree32-saver"
FEW = 8
TOGETHER = 48
"""Requests at once: more than the 32 of that server's largest CUDA graph."""
KV_CACHE = {"tags": ["kv_cache"]}
LESS_BYTES = 2**30
"""What the server must use less, at least, while its KV cache is away."""


def used_bytes(device: int) -> int:
    """Memory in use on a GPU, as nvidia-smi says.

    Raises:
        OSError, subprocess.SubprocessError: there is no nvidia-smi, or it does not answer.
    """
    command = ["nvidia-smi", f"--id={device}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout) * 2**20


def run(context: Context) -> Findings:
    client, device = context.client(SERVER), context.devices[0]
    prompts = held_out(context.store, "code", "chat")[: context.share_of(64, FEW)]
    tokens = context.share_of(64, 16)
    few = prompts[:FEW]
    client.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
    before = client.generate_all(few, tokens, 4)
    many = client.generate_all(prompts, tokens, TOGETHER)
    client.set_state(speculation=0)
    plain = client.generate_all(prompts, tokens, TOGETHER)
    client.set_state(speculation=1)
    checks = [
        _equal(f"{TOGETHER} requests at once, trees = plain decoding", plain, many),
        _equal("few of them after it, against the beginning", before, client.generate_all(few, tokens, 4)),
        _weights_stay(client),
    ]
    client.flush()
    there = used_bytes(device)
    client.command("/release_memory_occupation", KV_CACHE)
    gone = used_bytes(device)
    client.command("/resume_memory_occupation", KV_CACHE)
    back = used_bytes(device)
    said = ", ".join(f"{value / 2**30:.1f}" for value in (there, gone, back)) + " GiB in use before, meanwhile and after"
    checks.append(judged("memory of the KV cache given away and taken back", "1 GiB and more", said, there - gone >= LESS_BYTES))
    after = client.generate_all(few, tokens, 4)
    checks.append(_equal("few of them after it, against the beginning, KV cache given away between", before, after))
    verifies = [sum(answer.verifies for answer in answers) for answers in (before, after)]
    near = abs(verifies[0] - verifies[1]) <= 0.01 * verifies[0]
    checks.append(judged("their verifies", "within 1 %", f"{verifies[0]} and {verifies[1]}", near))
    again = client.generate_all(prompts, tokens, TOGETHER)
    checks.append(_equal(f"{TOGETHER} at once after it", plain, again))
    data: dict[str, Json] = {"used_bytes": [there, gone, back], "verifies": list(verifies)}
    return Findings(checks, data)


def _equal(name: str, expected: Sequence[Answer], got: Sequence[Answer]) -> Check:
    parted = len(differing(expected, got))
    return judged(name, EQUAL, f"{len(got) - parted} of {len(got)} equal", not parted)


def _weights_stay(client: Client) -> Check:
    """Without a copy in main memory the drafter's weights would be lost."""
    try:
        said = client.command("/release_memory_occupation", {"tags": ["weights"]})
    except ServerError as error:
        return judged(
            "memory of the weights", "refused, and said why", str(error)[:200], error.status == 400 and "DDTREE" in str(error)
        )
    return judged("memory of the weights", "refused, and said why", f"taken: {said}"[:200], False)


MEMORY = Part("memory", "more requests than graphs hold; the KV cache's memory given away and back", (SERVER,), run)
