"""Nothing is broken: every apply must be confirmed."""

from __future__ import annotations

import itertools

from dflash_console.apply import Verdict

from ..console import Ended
from ..judging import lies
from ..records import WANTED, Engine, Setup, Where, fault
from ..scene import Scene

TIMES = 20


@fault(
    "clean-20-over-a-jump",
    Where.CLEAN,
    f"{TIMES} applies in a row on the embedded engine, over SSH and a jump host",
    Verdict.CONFIRMED,
    setup=Setup(engine=Engine.EMBEDDED, jump=True),
)
async def twenty(scene: Scene) -> Ended:
    values = itertools.cycle(itertools.product(("12", "24", "16"), ("256", "1024", "512")))
    for number, (budget, window) in zip(range(TIMES - 1), values, strict=False):
        wanted = {"tree_budget": budget, "draft_window": window}
        ended = await scene.console.apply(**wanted)
        document = ended.document or {}
        assert ended.code == 0, (
            f"apply {number + 1} of {wanted}: {document.get('verdict')}: {document.get('reason') or ended.err}"
        )
        assert not (wrong := lies(scene, document, wanted)), f"apply {number + 1}: FALSE CONFIRMED: {wrong}"
    # What the last of them replaces is what a roll-back goes back to.
    scene.note_old()
    return await scene.console.apply(**WANTED)


@fault(
    "clean-direct",
    Where.CLEAN,
    "one apply on the embedded engine, over SSH",
    Verdict.CONFIRMED,
    setup=Setup(engine=Engine.EMBEDDED),
)
async def direct(scene: Scene) -> Ended:
    return await scene.console.apply()


@fault("clean-stand-in", Where.CLEAN, "one apply on the stand-in engine, over SSH", Verdict.CONFIRMED)
async def stand_in(scene: Scene) -> Ended:
    return await scene.console.apply()
