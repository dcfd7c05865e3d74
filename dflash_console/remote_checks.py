"""Checks of a host over SSH with systemd: the link, rights, the journal, the clock, the engine's program."""

from __future__ import annotations

import re
import time

from .doctor import Check, CheckStatus
from .evidence.command import find_engine
from .hosts.systemd import SystemdService
from .hosts.systemd_access import Right
from .hosts.transport import HostError, LinkStatus, Transport
from .state import HostState

OLDEST_SYSTEMD = 247
"""What the project's tests run on is 252; older than this, times come in whole seconds only."""
LARGEST_SKEW_S = 5.0
_HIDDEN = 9
# The nearest folder on the way that can be seen: when it may not be entered, nothing is known of what is in it.
_PROGRAM = """
command -v -- "$1" && exit
d=$1 n=0
while [ $((n += 1)) -lt 100 ]; do
  if [ -L "$d" ]; then t=$(readlink -- "$d"); case $t in /*) d=$t;; *) d=${d%/*}/$t;; esac
  elif [ -e "$d" ]; then break
  else case $d in /?*) d=${d%/*};; *) break;; esac; fi
done
[ -z "$d" ] || [ -x "$d" ] || exit 9
exit 1
"""


def check_link(transport: Transport) -> Check:
    """The SSH connection, and what the user's SSH configuration asks for and is not done."""
    link = transport.link
    if link.status is not LinkStatus.UP:
        return Check("ssh", CheckStatus.FAILED, f"{transport.name} is {link.status.value}: {link.reason or 'no reason is known'}")
    if link.notices:
        return Check("ssh", CheckStatus.WARNING, f"connected; not honoured: {'; '.join(link.notices)}")
    return Check("ssh", CheckStatus.OK, "connected")


async def check_systemd(transport: Transport) -> Check:
    """The version of systemd on the host."""
    name = "systemd"
    try:
        done = await transport.run(["systemctl", "--version"])
    except HostError as problem:
        return Check(name, CheckStatus.FAILED, f"systemctl does not answer: {problem}")
    match = re.match(r"systemd (\d+)", done.stdout.decode("utf-8", "replace"))
    if match is None:
        return Check(name, CheckStatus.UNKNOWN, "systemctl does not tell its version")
    if int(match[1]) < OLDEST_SYSTEMD:
        said = f"version {match[1]} is older than {OLDEST_SYSTEMD}: start times are known to the second only"
        return Check(name, CheckStatus.WARNING, said)
    return Check(name, CheckStatus.OK, f"version {match[1]}")


async def check_rights(service: SystemdService) -> tuple[Check, ...]:
    """What this user may do with the unit: read and write its files, restart it, read its journal."""
    try:
        rights = await service.privileges()
    except HostError as problem:
        return (Check("rights", CheckStatus.UNKNOWN, str(problem)),)
    named = (("read unit", rights.read), ("write unit", rights.write), ("restart", rights.control), ("journal", rights.journal))
    return tuple(_right(name, right) for name, right in named)


def _right(name: str, right: Right) -> Check:
    status = {True: CheckStatus.OK, False: CheckStatus.WARNING, None: CheckStatus.UNKNOWN}[right.allowed]
    return Check(name, status, right.how)


async def check_clock(transport: Transport) -> Check:
    """How far the host's clock is from this machine's. Nothing is decided by it; people compare the times that they read."""
    try:
        skew = await transport.now() - time.time()
    except HostError as problem:
        return Check("clock", CheckStatus.UNKNOWN, str(problem))
    if abs(skew) <= LARGEST_SKEW_S:
        return Check("clock", CheckStatus.OK, "agrees with this machine's")
    way = "ahead of" if skew > 0 else "behind"
    said = f"{abs(skew):,.0f} s {way} this machine's: times in the log are the host's, and nothing here is decided by them"
    return Check("clock", CheckStatus.WARNING, said)


async def check_program(service: SystemdService, state: HostState) -> Check:
    """Whether the program that the unit starts is there: one that was removed is only noticed at the next start. A user who may
    not look into its folder cannot tell."""
    name = "engine program"
    engine = find_engine(state.config.value.command) if state.config is not None else None
    if engine is None or not engine.outer:
        return Check(name, CheckStatus.UNKNOWN, "no engine is named in the unit's command")
    program = engine.outer[0]
    try:
        done = await service.manager.run_root(["sh", "-c", _PROGRAM, "sh", program])
    except HostError as problem:
        return Check(name, CheckStatus.UNKNOWN, str(problem))
    if done.status == _HIDDEN:
        return Check(name, CheckStatus.UNKNOWN, f"this user may not look where {program} is")
    if not done.ok:
        return Check(name, CheckStatus.FAILED, f"{program} is not there, or may not be run: the next start would fail")
    return Check(name, CheckStatus.OK, done.stdout.decode("utf-8", "replace").strip() or program)


async def check_remote(transport: Transport, service: SystemdService, state: HostState) -> tuple[Check, ...]:
    """All of these checks."""
    return (
        check_link(transport),
        await check_systemd(transport),
        *await check_rights(service),
        await check_clock(transport),
        await check_program(service, state),
    )
