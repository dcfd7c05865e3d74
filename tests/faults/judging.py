"""Running one fault and judging what came of it: the console's answer, and the host's own testimony."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from dflash_console.apply import Verdict

from .console import Ended, Missed
from .records import NOT_BEGUN, WANTED, Fault, Given, Old, Outcome
from .scene import SECRET, Scene, open_scene

NOTHING_CHANGED = (Verdict.REFUSED, Verdict.WRITE_FAILED)


async def run_fault(fault: Fault) -> Outcome:
    """Boot, break, ask, judge. Never raises; what the harness could not do is a problem of the outcome."""
    with contextlib.ExitStack() as stack:
        try:
            scene = await asyncio.to_thread(stack.enter_context, open_scene(fault.setup))
            if fault.setup.started:
                await scene.start()
            scene.note_old()
            ended = await fault.run(scene)
            return await judge(fault, scene, ended)
        except Exception as problem:
            return Outcome(fault, None, "", None, 0.0, (f"harness: {type(problem).__name__}: {problem}",))
        finally:
            # Hosts that hang or are cut would take their time to go.
            await asyncio.to_thread(stack.close)


@dataclass
class _Judgement:
    given: Given | None
    reason: str
    problems: list[str]
    false_confirmed: bool = False


async def judge(fault: Fault, scene: Scene, ended: Ended) -> Outcome:
    """Hold the answer and the host against what the fault must come to."""
    found = read_answer(ended)
    if found.given not in fault.expected:
        wanted = " or ".join(given.value for given in fault.expected)
        found.problems.append(f"the verdict is {found.given.value if found.given else 'missing'}, not {wanted}")
    for word in fault.words:
        if not any(part.lower() in found.reason.lower() for part in word.split("|")):
            found.problems.append(f"the reason does not say {word!r}")
    if found.given is Verdict.CONFIRMED or ended.code == 0:
        found.false_confirmed = Verdict.CONFIRMED not in fault.expected
        # What a roll-back confirms is the old configuration: that is looked at below.
        rolled_back = (ended.document or {}).get("rolled_back") is True
        if not rolled_back and (wrong := lies(scene, ended.document or {})):
            found.false_confirmed = True
            found.problems.append(f"FALSE CONFIRMED: {wrong}")
    found.problems += leaks(scene, ended)
    old, said = await look_at_old(scene, ended)
    if found.given in NOTHING_CHANGED and old is not Old.IN_PLACE:
        found.problems.append(f"the verdict is {found.given.value if found.given else ''}, and the configuration was changed")
    if old not in fault.old:
        found.problems.append(f"the old configuration is {old.value}{f' ({said})' if said else ''}, "
                              f"not {' or '.join(kind.value for kind in fault.old)}")  # fmt: skip
    return Outcome(fault, found.given, found.reason, old, ended.seconds, tuple(found.problems), found.false_confirmed)


def read_answer(ended: Ended) -> _Judgement:
    """The verdict, the reason, and whether exit status, JSON and verdict agree."""
    document = ended.document
    if document is None or "verdict" not in document:
        reason = " ".join(ended.err.split())
        problems = [] if ended.code in (1, 2) else [f"exit status {ended.code} without an answer"]
        if "Traceback" in ended.err or "internal error" in ended.err:
            problems.append("a traceback was shown")
        if not reason:
            problems.append("nothing was said")
        return _Judgement(NOT_BEGUN if not problems else None, reason, problems)
    verdict = Verdict(str(document["verdict"]))
    reason = str(document.get("reason", ""))
    wanted = 0 if verdict is Verdict.CONFIRMED else 1 if verdict in NOTHING_CHANGED else 4
    problems = [] if ended.code == wanted else [f"exit status {ended.code} with the verdict {verdict.value}, not {wanted}"]
    if (document.get("confirmed") is True) != (verdict is Verdict.CONFIRMED):
        problems.append("'confirmed' and the verdict contradict each other")
    if "Traceback" in ended.err:
        problems.append("a traceback was shown")
    return _Judgement(verdict, reason, problems)


def lies(scene: Scene, document: Mapping[str, object], wanted: Mapping[str, str] = WANTED) -> str:
    """What is wrong with a confirmation, by the host itself; empty when it is true."""
    if document.get("invocation_id") != scene.invocation:
        return f"the start that was confirmed is {document.get('invocation_id')}, the one that runs {scene.invocation}"
    argv = scene.argv()
    settings = {"--speculative-ddtree-budget": wanted["tree_budget"], "--speculative-draft-window-size": wanted["draft_window"]}
    words = " ".join(argv).split()
    for flag, value in settings.items():
        if flag not in words or words[len(words) - 1 - words[::-1].index(flag) + 1] != value:
            return f"the running process has no {flag} {value}: {' '.join(argv).replace(SECRET, '•••')}"
    effect = scene.in_effect()
    if any(str(effect.get(name, value)) != value for name, value in wanted.items() if effect.get("tree_budget") is not None):
        return f"the engine uses {effect}"
    return ""


def leaks(scene: Scene, ended: Ended) -> list[str]:
    """Where the engine's key shows although it must not: in the output, and in what the console keeps on this machine."""
    found = ["the engine's key is in the output"] if SECRET in ended.out + ended.err else []
    for state in (console.state for console in scene.consoles):
        kept = [path for path in state.rglob("*") if path.is_file()]
        found += [f"the engine's key is in {path.relative_to(state)}" for path in kept if SECRET.encode() in path.read_bytes()]
    return found


async def look_at_old(scene: Scene, ended: Ended) -> tuple[Old, str]:
    """What became of the old configuration; when it is not in place, whether ``rollback`` brings it back. And why it did not."""
    rolled_back = (ended.document or {}).get("rolled_back") is True
    scene.heal()
    if difference(scene) == "":
        if not rolled_back:
            return Old.IN_PLACE, ""
        return (Old.RESTORED, "") if runs_old(scene) else (Old.LOST, "said to be rolled back, and the old command does not run")
    if rolled_back:
        return Old.LOST, f"said to be rolled back: {difference(scene)}"
    try:
        back = await scene.console.run("rollback", "--yes")
    except Missed as problem:
        return Old.LOST, str(problem)
    document = back.document or {}
    said = f"rollback ended with {back.code}: {document.get('verdict')}: {document.get('reason') or back.err.strip()}"
    if wrong := difference(scene):
        return Old.LOST, f"{wrong}; {said}"
    # What an engine cannot prove is not confirmed when it is old, either: the host's own testimony counts.
    if back.code not in (0, 4):
        return Old.LOST, said
    return (Old.RESTORABLE, "") if runs_old(scene) else (Old.LOST, f"the old command does not run; {said}")


def difference(scene: Scene) -> str:
    """How the configuration on the host differs from the one before; empty when it does not."""
    now, before = scene.snapshot(), scene.before
    changed = [path for path in sorted({*now.files, *before.files}) if now.files.get(path) != before.files.get(path)]
    if changed:
        return f"changed: {', '.join(changed)}"
    if now.loaded != before.loaded:
        return f"the manager has another command loaded: {json.dumps(now.loaded).replace(SECRET, '•••')}"
    return ""


def runs_old(scene: Scene) -> bool:
    """The old command runs and answers; a unit that was not started has nothing to run."""
    return not scene.old_argv or (scene.argv() == scene.old_argv and scene.healthy())
