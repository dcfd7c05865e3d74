"""Back from files of which no engine can be started: the last kept configuration takes their place.

They cannot be read, the service manager does not load them, the unit is masked or gone, or what they start is no engine. Nothing
of such texts counts, so they need no reading; they are not shown either, because where their secrets stand is not known. As with
every change they are kept on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..evidence.command import find_engine, no_engine
from ..evidence.file_edits import FileEdit, Texts, edits_between
from ..evidence.secrets import mask_argv
from ..formats import shorten
from ..hosts.service import ServiceConfig
from ..hosts.transport import HostError, HostFileError, HostUnreachable
from ..plan import Finding, Mode, Plan, PlanError, Predictions
from ..plan.maker import unified_diff
from ..plan.masking import mask_values, secret_values
from ..session import HostSession
from .asked import asked_changes, dialect_of
from .earlier import BEFORE, WayBack, all_ways_back
from .edited import port_findings
from .writing import texts_now

LONGEST_REASON = 200
"""Characters of why the files cannot be used."""


@dataclass(frozen=True)
class Spoilt:
    """What is written is no configuration that could be started or changed."""

    reason: str
    """In words that can stand in a sentence."""
    config: ServiceConfig | None
    """``None``: the unit is not there."""
    only_unnamed: bool = False
    """The one thing that is wrong is that the command names no engine."""


async def find_spoilt(session: HostSession) -> Spoilt | None:
    """Why nothing can be made of what is written; ``None`` when something can. Raises: HostError: it may not be read."""
    state = await session.service.state()
    try:
        config = await session.service.configuration()
    except HostFileError as error:
        if not error.missing:
            raise
        return Spoilt(str(error), None)
    reason = next(iter(config.problems), state.unloaded)
    if reason:
        return Spoilt(reason, config)
    return None if find_engine(config.command) is not None else Spoilt(no_engine(config.command), config, only_unnamed=True)


async def plan_from_spoilt(session: HostSession, spoilt: Spoilt) -> Plan | None:
    """The plan that puts the last kept configuration in the place of what is there.

    Of the files that came since, those are removed that make another command of it, or none.

    Returns:
        ``None``: the files are what was kept, so they are not what is wrong.

    Raises:
        PlanError: nothing that is kept can be put back; the message says why and what to do.
        HostError
    """
    reason, why = shorten(spoilt.reason, LONGEST_REASON), ""
    async for back in all_ways_back(session):
        found, problem = await _way(session, back)
        if found is not None:
            # An engine behind a script names none and is not spoilt by that: what was confirmed named none either.
            usual = spoilt.only_unnamed and find_engine(found.config.command) is None
            return await _plan(session, spoilt, back, found) if found.edits and not usual else None
        why = why or f"{back.name} cannot be put back: {problem}"
    if not why and spoilt.only_unnamed:
        return None
    raise PlanError(f"{reason}; {why or 'no configuration is kept to go back to'}, so it has to be mended by hand")


async def plan_whole(session: HostSession, back: WayBack, reason: str) -> Plan | None:
    """The plan that puts the unit's own file back together with the others, where these do not work beside the one that is there.

    Returns:
        ``None``: all of them together do not either.

    Raises:
        PlanError, HostError
    """
    found, _ = await _way(session, back)
    if found is None or not found.edits:
        return None
    return await _plan(session, Spoilt(reason, await session.service.configuration()), back, found)


@dataclass(frozen=True)
class _Way:
    """One that leads somewhere."""

    config: ServiceConfig
    """What the files will make."""
    edits: tuple[FileEdit, ...]


async def _way(session: HostSession, back: WayBack) -> tuple[_Way | None, str]:
    """The edits that make what is there the kept configuration, or why it would start no engine."""
    kept = {**back.unit, **back.texts}
    try:
        now = {**await session.service.ours(), **await texts_now(session.service, kept)}
    except HostUnreachable:
        raise
    except HostError as error:
        return None, str(error)
    gone = [path for path, text in now.items() if path not in kept and _came_since(back, path, text)]
    config, why = await _works(session, back, {**kept, **dict.fromkeys(gone)})
    if config is None:
        return None, why
    for path in tuple(gone):
        others = [each for each in gone if each != path]
        beside, _ = await _works(session, back, {**kept, **dict.fromkeys(others)})
        if beside is not None and beside.command == config.command:
            config, gone = beside, others
    return _Way(config, edits_between(now, {**kept, **dict.fromkeys(gone)})), ""


def _came_since(back: WayBack, path: str, text: str | None) -> bool:
    """Whether a file that is not kept may have come since. Of what was confirmed every drop-in of the unit's own is kept; that a
    unit file was not kept is no reason to remove the one that is there, unless it is a mask."""
    return text == "" or (text is not None and path.endswith(".conf") and back.name != BEFORE)


async def _works(session: HostSession, back: WayBack, texts: Texts) -> tuple[ServiceConfig | None, str]:
    """The configuration that these files would make, or why it would start no engine."""
    try:
        config = await session.service.preview(texts)
    except HostUnreachable:
        raise
    except HostError as error:
        return None, str(error)
    if config.problems:
        return None, config.problems[0]
    # What was confirmed is an engine, be it behind somebody's script.
    named = back.name != BEFORE or find_engine(config.command) is not None
    return (config, "") if named else (None, no_engine(config.command))


async def _plan(session: HostSession, spoilt: Spoilt, back: WayBack, way: _Way) -> Plan:
    if session.embedded and any(edit.lossy for edit in way.edits):
        raise PlanError(f"{shorten(spoilt.reason, LONGEST_REASON)}. {back.name} is kept in {session.service.keep}")
    edits = tuple(replace(edit, mode=back.modes.get(edit.path)) for edit in way.edits)
    command, now = way.config.command, spoilt.config
    await session.watcher.refresh()
    try:
        drafter = await session.sources.drafter(command, None)
    except HostError:
        drafter = None
    secrets = secret_values(command, way.config.environment)
    times = await session.history.stage_seconds(session.key)
    plan = Plan(
        host=session.host,
        unit=session.unit,
        mode=Mode.RESTART,
        target=", ".join(edit.path for edit in edits),
        edits=edits,
        diff=mask_values("\n".join(unified_diff(edit.path, "", edit.new) for edit in edits if edit.new), secrets),
        command=command,
        old_command=now.command if now is not None else (),
        shown_command=mask_argv(command),
        changes=asked_changes(command, (now.loaded if now is not None else None) or command, dialect_of(session)),
        predictions=Predictions(restart_s=sum(times.values()) if times else None, stage_seconds=times),
        findings=(*await _missing_rights(session), *_findings(spoilt, back, edits)),
        digests={source.path: source.digest for source in now.sources} if now is not None else {},
        invocation_id=(await session.service.state()).invocation_id,
        drafter=drafter,
    )
    return replace(plan, findings=(*await port_findings(session, plan), *plan.findings))


def _findings(spoilt: Spoilt, back: WayBack, edits: tuple[FileEdit, ...]) -> tuple[Finding, ...]:
    reason = shorten(spoilt.reason, LONGEST_REASON)
    found = [Finding.info("goes_back_to", f"goes back to {back.name}")]
    if replaced := [edit.path for edit in edits if edit.old and edit.new is not None]:
        said = f"replaces a text that cannot be used ({reason}), which is kept and not shown: {', '.join(replaced)}"
        found.append(Finding.warning("replaces_unread", said))
    for edit in edits:
        # systemd takes an empty unit file for a mask, and so is a link to /dev/null read.
        masks = edit.old == "" and edit.path.endswith(".service")
        if masks:
            instead = "" if edit.new is None else ", and puts the kept unit file there"
            found.append(Finding.warning("unmasks", f"takes away {edit.path}, which masks the unit{instead}"))
        elif edit.new is None:
            found.append(Finding.warning("removes_file", f"removes {edit.path}, which came since; its text is kept"))
        elif not edit.old:
            found.append(
                Finding.info(
                    "file_is_gone", f"{edit.path} is {'not there' if edit.old is None else 'empty'}, and is written again"
                )
            )
    return tuple(found)


async def _missing_rights(session: HostSession) -> tuple[Finding, ...]:
    """What this user may not do there; of a service of this machine only the file itself would be complained about."""
    if session.embedded:
        return ()
    return tuple(Finding.error("unit_broken", problem) for problem in await session.service.preflight())
