"""Errors of a host as the screens need them: what to ask the user, and whether waiting may help."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..hosts.ssh_errors import AuthenticationFailed, HostKeyChanged, HostKeyRefused, HostKeyUnknown
from ..hosts.transport import HostError, HostUnreachable
from ..session import SeveralUnits
from .link import ChooseUnit, KeyQuestion, LinkError, UnknownHostKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FINAL = (AuthenticationFailed, HostKeyChanged, HostKeyRefused)
"""Trying again by itself would mend nothing, and a host bans those who try too often."""


def link_error(error: HostError) -> LinkError:
    """The same failure for the screens."""
    match error:
        case HostKeyUnknown():
            key = error.key
            return UnknownHostKey(str(error), KeyQuestion(error.hop, key.algorithm, key.fingerprint, error.file), _trust(error))
        case SeveralUnits():
            return ChooseUnit(str(error), error.units)
        case HostUnreachable():
            return LinkError(str(error), again=not isinstance(error, FINAL))
    return LinkError(str(error))


def _trust(problem: HostKeyUnknown) -> Callable[[], Awaitable[None]]:
    async def trust() -> None:
        from ..hosts.ssh_known_hosts import trust_host_key

        try:
            await asyncio.to_thread(trust_host_key, problem)
        except HostError as error:
            raise LinkError(str(error)) from None

    return trust
