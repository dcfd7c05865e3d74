"""Back from a unit file of this machine that cannot be read: what was confirmed last takes its place."""

from __future__ import annotations

from ..evidence.file_edits import edits_between
from ..evidence.secrets import mask_argv
from ..formats import shorten
from ..hosts.service import ServiceConfig
from ..hosts.transport import HostError
from ..hosts.unit_file import UnitFileError, parse_unit_file
from ..plan import Finding, Mode, Plan, PlanError, Predictions
from ..plan.maker import unified_diff
from ..plan.masking import mask_values, secret_values
from ..session import HostSession
from .asked import asked_changes, dialect_of
from .earlier import WayBack

LONGEST_REASON = 200
"""Characters of why the file cannot be read."""


def is_spoilt(session: HostSession, config: ServiceConfig) -> bool:
    """Whether the file of a unit of this machine was read and makes no sense, so that no plan can be made from it."""
    return session.embedded and bool(config.problems) and not config.command


async def plan_from_spoilt(session: HostSession, config: ServiceConfig, back: WayBack) -> Plan:
    """The plan that puts a kept configuration in the place of a text that cannot be read.

    Nothing of that text counts, so it needs no reading; it is not shown either, because where its secrets stand is not known. As
    with every change it is kept beside the unit.

    Raises:
        PlanError: it is not even text, or the kept configuration cannot be used.
    """
    now = session.service.restorable(config)
    if any("\ufffd" in (text or "") for text in now.values()):
        raise PlanError(f"{config.problems[0]}. {back.name} is kept in {session.service.keep}")
    try:
        command = await session.service.command_with(back.texts)
        environment = [dict(parse_unit_file(text).environment) for text in back.texts.values() if text is not None]
        state = await session.service.state()
    except (HostError, UnitFileError) as error:
        raise PlanError(f"{back.name} cannot be put back: {error}") from None
    try:
        drafter = await session.sources.drafter(command, None)
    except HostError:
        drafter = None
    edits = edits_between(now, back.texts)
    secrets = secret_values(command, {name: value for each in environment for name, value in each.items()})
    times = await session.history.stage_seconds(session.key)
    lost = f"replaces a text that cannot be read ({shorten(config.problems[0], LONGEST_REASON)}), which is kept and not shown"
    return Plan(
        host=session.host,
        unit=session.unit,
        mode=Mode.RESTART,
        target=session.service.target(config),
        edits=edits,
        diff=mask_values("\n".join(unified_diff(edit.path, "", edit.new or "") for edit in edits), secrets),
        command=command,
        old_command=config.command,
        shown_command=mask_argv(command),
        changes=asked_changes(command, config.loaded or command, dialect_of(session)),
        predictions=Predictions(restart_s=sum(times.values()) if times else None, stage_seconds=times),
        findings=(Finding.info("goes_back_to", f"goes back to {back.name}"), Finding.warning("replaces_unread", lost)),
        digests={source.path: source.digest for source in config.sources},
        invocation_id=state.invocation_id,
        drafter=drafter,
    )
