"""Whose answer it is: what another program says on the engine's port proves nothing, and nothing may be asked of it."""

from __future__ import annotations

from ..hosts.service import RunState, ServiceConfig
from ..hosts.stranger import stranger_beside
from ..hosts.transport import HostError, Transport
from ..session import HostSession


async def answered_by_another(transport: Transport, config: ServiceConfig, main_pid: int) -> str:
    """Why an answer on the engine's port is not the engine's, in words; empty when it is, or when that cannot be seen."""
    found = await stranger_beside(transport, config, main_pid)
    return found.sentence if found is not None else ""


async def require_own_answers(session: HostSession) -> None:
    """Make sure that the running engine is who answers, as far as the host lets that be seen. To be asked before something is
    sent that may change an engine, and again after the last answer that is to count.

    Raises:
        HostError: the engine does not run, or another program answers in its place.
    """
    state = await session.service.state()
    if state.state is not RunState.RUNNING:
        raise HostError(f"{session.unit} is {state.state.value}, so whatever answers on its port is not its engine")
    if state.main_pid is None:
        return
    stranger = await answered_by_another(session.transport, await session.service.configuration(), state.main_pid)
    if stranger:
        raise HostError(stranger)
