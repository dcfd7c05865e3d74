"""What has to be asked of the host for one planned change: the drafter it would run, the port, times of earlier starts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from engine_launch.spec.checks import EngineKind

from .evidence.command import CommandError, set_flag
from .hosts.address import engine_address
from .hosts.gpus import read_holders
from .hosts.http import EngineHttp, EngineHttpError, HttpFailure
from .hosts.listener import port_holder
from .hosts.service import RunState, Service
from .hosts.transport import HostError, Transport
from .knobs import KnobError, find_knob
from .plan import Change, Survey
from .plan.draft_pool import engine_of
from .plan.maker import digest_of
from .state import HostState
from .watch.sources import Sources, read_drafter


async def survey_change(
    state: HostState, change: Change, sources: Sources, transport: Transport, service: Service, stage_seconds: Mapping[str, float]
) -> Survey:
    """Ask the host what the plan for ``change`` needs to know. Never raises: what cannot be found out is a finding."""
    survey = Survey(stage_seconds=stage_seconds)
    if change.commit_confirm and service.rollback_timer() is None:
        why = "only systemd on the host can put a configuration back by itself, and this unit is not run by it"
        survey = replace(survey, undo_problem=f"{why}: apply without commit-confirm")
    if state.config is None:
        return survey
    command = state.config.value.command
    for name, value in change.settings.items():
        try:
            knob = find_knob(name)
            if knob.flags:
                command = set_flag(command, knob, value)
        except (CommandError, KnobError):
            continue
    survey = await _drafter(survey, command, "drafter" in change.settings, state, sources, transport)
    remarks: tuple[str, ...] = ()
    taken = False
    try:
        problems = await service.preflight()
        remarks = tuple(line for line in await service.check() if line not in problems)
        taken = await _port_taken(state, command, transport)
    except HostError as error:
        problems = (str(error),)
    survey = replace(survey, unit_problems=problems, unit_remarks=remarks, port_taken=taken)
    return replace(
        survey,
        port_holder=await _port_holder(command, transport) if survey.port_taken else "",
        gpu_strangers=() if state.embedded else await _gpu_strangers(state, transport),
    )


async def _drafter(
    survey: Survey, command: tuple[str, ...], changed: bool, state: HostState, sources: Sources, transport: Transport
) -> Survey:
    info = state.server.value if state.server is not None and not changed else None
    path = sources.drafter_config_path(command, info)
    if path is None:
        return survey
    survey = replace(survey, drafter_path=path)
    try:
        data = await transport.read(path)
        config = read_drafter(path, data)
        folder = str(PurePosixPath(path).parent)
        names = await transport.listdir(folder)
    except HostError as error:
        if names_hub_model(str(PurePosixPath(path).parent)) and engine_of(state, command) is not EngineKind.EMBEDDED:
            # SGLang fetches it by this name, or has it in a cache of its own; nothing need lie under this path.
            return replace(survey, drafter_path="")
        return replace(survey, drafter_problem=str(error))
    survey = replace(survey, drafter=config, drafter_digest=digest_of(data))
    if not any(name.endswith((".safetensors", ".bin", ".pt")) for name in names):
        return replace(survey, drafter_problem=f"{folder} holds no weights (no .safetensors file)")
    return survey


def names_hub_model(value: str) -> bool:
    """Whether a model is given by its name on a hub (``ORG/NAME``), which a relative path may look like too."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", value) is not None


async def _port_taken(state: HostState, command: tuple[str, ...], transport: Transport) -> bool:
    address = engine_address(command)
    if address is None or state.service is None:
        return False
    config = state.config.value if state.config is not None else None
    running = state.service.value.state in (RunState.RUNNING, RunState.STARTING, RunState.STOPPING)
    loaded = config.loaded if config is not None else None
    # Of a unit that the manager does not load any more, the process alone tells where it listens.
    seen = state.process.value if state.process is not None else None
    started = seen.argv if seen is not None and seen.pid == state.service.value.main_pid else ()
    for known in (loaded, started) if running else ():
        now = engine_address(known) if known else None
        if now is not None and now.port == address.port:
            return False
    async with transport.forward(address.port, address=address.host) as url:
        http = EngineHttp(url, timeout=1.0)
        try:
            await http.healthy()
        except EngineHttpError as error:
            return error.failure is not HttpFailure.NOT_LISTENING
        finally:
            await http.close()
    return True


async def who_has_port(state: HostState, command: tuple[str, ...], transport: Transport) -> str | None:
    """Who listens where an engine with this command would, in words; ``None`` = nobody, or the unit's own engine.

    Raises:
        HostError: nobody can look.
    """
    if not await _port_taken(state, command, transport):
        return None
    return await _port_holder(command, transport) or "another program"


async def _port_holder(command: tuple[str, ...], transport: Transport) -> str:
    address = engine_address(command)
    with contextlib.suppress(HostError):
        if address is not None and (holder := await port_holder(transport, address.host, address.port)) is not None:
            return holder.words
    return ""


async def _gpu_strangers(state: HostState, transport: Transport) -> tuple[str, ...]:
    """Empty too where nothing can be asked: the doctor and the dashboard say that."""
    main_pid = state.service.value.main_pid if state.service is not None else None
    with contextlib.suppress(HostError):
        return tuple(holder.words for holder in await read_holders(transport, main_pid) if not holder.ours)
    return ()
