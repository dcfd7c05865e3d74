"""What was there before: the way back when no configuration was ever confirmed, or the one that was is not the one that was left.

Every operation keeps what it is about to replace (``ID.before``) and what it writes (``ID.planned``) on the host. So the way back
is known from any machine, also for a service that the console met running, or whose engine gives no evidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..evidence.file_edits import Texts, texts_digest
from ..hosts.service import RunState, ServiceState
from ..hosts.transport import HostError, HostUnreachable
from ..session import HostSession
from .confirmed import ConfirmedConfig, ConfirmedStore

BEFORE = "the configuration before the last change"

Change = tuple[Texts, Texts]
"""The files that one operation wrote, before and after."""


@dataclass(frozen=True)
class WayBack:
    """A configuration to go back to."""

    name: str
    """In words that can stand in a sentence."""
    texts: Texts = field(repr=False)
    unit: Texts = field(default_factory=dict, repr=False)
    """The unit's own file as it was then, for where these do not work beside the one that is there."""
    modes: Mapping[str, int] = field(default_factory=dict)
    """Permission bits of the files."""


async def way_back(session: HostSession) -> WayBack | None:
    """What a roll-back goes back to: the newest confirmed configuration before the one that is written; when what is written was
    never confirmed, what was there before it was written.

    Where nothing else is known, and what is written does not run confirmed, it is that: there is no other that ever worked.

    Raises:
        HostError: the configuration cannot be read.
    """
    store, service = ConfirmedStore(session.transport, session.service), session.service
    now, state = service.restorable(await service.configuration()), await service.state()
    kept = await _with_texts(store)
    records, digest = [record for record, _ in kept], texts_digest(now)

    async def back_to(record: ConfirmedConfig | None) -> WayBack | None:
        texts = next((texts for found, texts in kept if found is record), None)
        return None if record is None or texts is None else await _to_record(store, record, texts)

    if (earlier := earlier_record(records, digest, state)) is not None:
        return await back_to(earlier)
    before = texts_before(now, await kept_changes(store), [texts for _, texts in kept])
    if before is not None and await _makes_sense(session, before):
        return WayBack(BEFORE, before)
    return await back_to(last_resort(records, digest, state))


async def all_ways_back(session: HostSession) -> AsyncIterator[WayBack]:
    """Everything that is kept, the newest first: what was confirmed, then what changes have replaced. Raises: HostError."""
    store = ConfirmedStore(session.transport, session.service)
    for record, texts in await _with_texts(store):
        yield await _to_record(store, record, texts)
    for before, _ in await kept_changes(store):
        yield WayBack(BEFORE, before)


async def _to_record(store: ConfirmedStore, record: ConfirmedConfig, texts: Texts) -> WayBack:
    at = time.strftime("%Y-%m-%d at %H:%M:%S", time.localtime(record.at))
    unit = await _readable(store, record.unit_path) if record.unit_path else None
    return WayBack(f"the configuration that was confirmed on {at}", texts, unit or {}, record.modes)


def earlier_record(records: Sequence[ConfirmedConfig], digest: str, state: ServiceState) -> ConfirmedConfig | None:
    """The newest record that comes before the configuration that is written; ``None`` when that was never confirmed, or first.

    Whether the engine runs makes no difference: a configuration that was confirmed once and does not start any more is gone back
    from as well. Where another confirmed one runs than is written, it is that one.

    Args:
        records: newest first.
        digest: of what is written.
    """
    written = next((n for n, record in enumerate(records) if record.digest == digest), None)
    if written is None:
        return None
    first = 0 if _runs_another(records, digest, state) else written
    return next((record for record in records[first:] if record.digest != digest), None)


def last_resort(records: Sequence[ConfirmedConfig], digest: str, state: ServiceState) -> ConfirmedConfig | None:
    """The newest record of another configuration, else that of the one that is written, unless that one runs confirmed."""
    runs = state.state is RunState.RUNNING and any(
        record.digest == digest and record.invocation_id == state.invocation_id for record in records
    )
    others = [record for record in records if record.digest != digest]
    return next(iter(others or (() if runs else records)), None)


def _runs_another(records: Sequence[ConfirmedConfig], digest: str, state: ServiceState) -> bool:
    running = state.state is RunState.RUNNING
    return running and any(record.invocation_id == state.invocation_id and record.digest != digest for record in records)


async def _makes_sense(session: HostSession, texts: Texts) -> bool:
    """Whether there is a command in these texts: what was spoilt once is nowhere to go back to."""
    try:
        return bool(await session.service.command_with(texts))
    except HostUnreachable:
        raise
    except HostError:
        return False


async def _with_texts(store: ConfirmedStore) -> list[tuple[ConfirmedConfig, Texts]]:
    records = await store.records()
    texts = await asyncio.gather(*(_readable(store, record.text_path) for record in records))
    return [(record, text) for record, text in zip(records, texts, strict=True) if text is not None]


async def kept_changes(store: ConfirmedStore) -> tuple[Change, ...]:
    """What can be read of the operations of this service, the newest first. Raises: HostError."""
    # The suffix off first: an operation's own roll-back (ID-back) is newer than the operation.
    operations = sorted(
        (name.removesuffix(".planned") for name in await store.names() if name.endswith(".planned")), reverse=True
    )
    before = await asyncio.gather(*(_readable(store, store.path(f"{operation}.before")) for operation in operations))
    planned = await asyncio.gather(*(_readable(store, store.path(f"{operation}.planned")) for operation in operations))
    return tuple((old, new) for old, new in zip(before, planned, strict=True) if old is not None and new is not None)


async def _readable(store: ConfirmedStore, path: str) -> Texts | None:
    """What is kept there; ``None`` when it is gone or damaged. Raises: HostUnreachable."""
    try:
        return await store.read_texts(path)
    except HostUnreachable:
        raise
    except HostError:
        return None


def texts_before(now: Texts, changes: Sequence[Change], confirmed: Sequence[Texts]) -> Texts | None:
    """The newest texts that a change replaced and that are not themselves the text of a change that was never confirmed.

    Args:
        now: the files of the configuration as they are.
        changes: newest first.
        confirmed: texts of every configuration that was confirmed.

    Returns:
        ``None`` when no change led to ``now``, or all lead back to where one is.
    """
    # A change that went back to what an older one had replaced is no step away from anything, whether it succeeded or not.
    changes = [
        change for n, change in enumerate(changes) if not any(same_texts(change[1], before) for before, _ in changes[n + 1 :])
    ]
    texts = dict(now)
    used: set[int] = set()
    while True:
        number = next((n for n, (_, after) in enumerate(changes) if n not in used and _holds(texts, after)), None)
        if number is None:
            break
        used.add(number)
        texts.update(changes[number][0])
        if any(same_texts(texts, known) for known in confirmed):
            break
    return None if not used or same_texts(texts, now) else texts


def _holds(texts: Texts, part: Texts) -> bool:
    return all(texts.get(path) == text for path, text in part.items())


def same_texts(one: Texts, other: Texts) -> bool:
    """A file that one of them does not name is one that is not there."""
    return all(one.get(path) == other.get(path) for path in {*one, *other})
