"""New weights for the target of a running server: taken in place, refused where they cannot be, and given back."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from tests.gpu.client import Answer, Client, ServerError
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import EQUAL, PLAIN, TREE, differing
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, judged

UPDATE = "/update_weights_from_disk"
CHANGED = "mlp.down_proj"
FACTOR = 0.5


def other_weights(target: Path, folder: Path) -> Path:
    """A copy of a checkpoint in which one product of every fourth layer is halved: another text, and still one."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(target, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for file in sorted(target.glob("*.safetensors")):
        tensors = load_file(file)
        for name, tensor in tensors.items():
            parts = name.split(".")
            if CHANGED in name and int(parts[parts.index("layers") + 1]) % 4 == 3:
                tensors[name] = tensor * FACTOR
        save_file(tensors, folder / file.name, metadata={"format": "pt"})
    return folder


def update(client: Client, folder: Path, **more: bool) -> tuple[bool, str]:
    """Whether the server took the weights, and what it said."""
    try:
        body = client.post(UPDATE, {"model_path": str(folder), **more})
    except ServerError as error:
        if error.status != 400:
            raise
        return False, str(error)
    return body.get("success") is True, str(body.get("message"))


def run(context: Context) -> Findings:
    tree, plain = context.client(TREE), context.client(PLAIN)
    prompts = held_out(context.store, "code", "chat")[: context.share_of(16, 4)]
    tokens = context.share_of(64, 16)

    def answers(client: Client) -> list[Answer]:
        return client.generate_all(prompts, tokens, 8)

    def equal(name: str, a: list[Answer], b: list[Answer]) -> Check:
        parted = len(differing(a, b))
        return judged(name, EQUAL, f"{len(a) - parted} of {len(a)} equal", not parted)

    tree.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
    before = answers(tree)
    checks = [_refused("recaptured graphs", *update(tree, context.store / "target", recapture_cuda_graph=True))]
    checks.append(_while_busy(tree, prompts[0], context))
    checks.append(equal("trees after these two", before, answers(tree)))
    other = other_weights(context.store / "target", context.out / "other-weights")
    try:
        taken = [update(client, other) for client in (plain, tree)]
        said = "; ".join(f"{success}: {message}" for success, message in taken)
        checks.append(judged("other weights from disk, plain server and tree", "taken", said[:300], all(ok for ok, _ in taken)))
        wanted, got = answers(plain), answers(tree)
        changed = len(differing(before, wanted))
        checks.append(judged("their text is another", "at least half of the answers", f"{changed}", 2 * changed >= len(wanted)))
        checks.append(equal("trees with other weights = plain decoding with them", wanted, got))
        back = [update(client, context.store / "target")[0] for client in (plain, tree)]
        checks.append(judged("the first weights again", "taken", str(back), all(back)))
        checks.append(equal("trees after it, against the beginning", before, answers(tree)))
    finally:
        shutil.rmtree(other, ignore_errors=True)
    return Findings(checks, {})


def _refused(what: str, success: bool, message: str) -> Check:
    return judged(f"weight update: {what}", "refused, and said why", message[:200], not success and "DDTREE" in message)


def _while_busy(tree: Client, prompt: tuple[int, ...], context: Context) -> Check:
    """The same weights again, asked for while a request runs: SGLang waits for it."""
    done: list[float] = []

    def load() -> None:
        tree.generate(prompt, context.share_of(1500, 200))
        done.append(time.monotonic())

    running = threading.Thread(target=load)
    running.start()
    time.sleep(0.5)
    early = running.is_alive()
    success, message = update(tree, context.store / "target")
    ended = time.monotonic()
    running.join()
    waited = early and bool(done) and done[0] <= ended
    said = f"the request ran when it was asked for: {early}, and had ended when it was done: {waited}; {message[:160]}"
    return judged("weight update under a running request", "waits for it, and is taken", said, success and waited)


WEIGHTS = Part("weights", "weights changed while running", (TREE, PLAIN), run)
