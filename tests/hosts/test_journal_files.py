"""Units whose output goes to a file: its lines come whole, and are a start's only where that is certain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from dflash_console.hosts.journald import Journal
from dflash_console.hosts.transport import HostError, Transport
from tests.testhost import TestHost

from .inside import InsideTransport
from .journal_rig import following, install, invocation_of, on, running
from .systemd_rig import UserTransport

pytestmark = pytest.mark.slow
OpenJournal = Callable[[Transport, str], Journal]


@pytest.fixture
async def open_journal() -> AsyncIterator[OpenJournal]:
    """Journals that are closed when the test ends."""
    opened: list[Journal] = []

    def open_one(transport: Transport, unit: str) -> Journal:
        opened.append(Journal(transport, unit))
        return opened[-1]

    yield open_one
    for journal in opened:
        await journal.close()


async def all_of(journal: Journal) -> None:
    async for _ in journal.batches():
        pass


STARTS = """
import os, signal
def leave(*_):
    print('leaving', os.getpid(), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print('started', os.getpid(), flush=True)
for number in range(100000):
    print('step', os.getpid(), number, flush=True)
    time.sleep(0.02)
"""


async def pid_of(host: TestHost, unit: str) -> str:
    return await on(host, "systemctl", "show", "--property=MainPID", "--value", unit)


@pytest.mark.parametrize("kind", ["append", "truncate"])
async def test_lines_of_a_restart_are_given_to_the_start_that_printed_them(
    testhost: TestHost, open_journal: OpenJournal, kind: str
) -> None:
    unit = install(testhost, STARTS, f"StandardOutput={kind}:/var/log/%N.log")
    transport = InsideTransport(testhost)
    journal = open_journal(transport, unit)
    async with running(testhost, unit):
        old, old_pid = await invocation_of(testhost, unit), (await pid_of(testhost, unit)).strip()
        await asyncio.sleep(0.5)
        cursor = await journal.cursor()
        await on(testhost, "systemctl", "restart", unit)
        new, new_pid = await invocation_of(testhost, unit), (await pid_of(testhost, unit)).strip()
        await asyncio.sleep(0.5)
        async with following(journal, cursor=cursor) as seen:
            await seen.until(lambda: sum(line.invocation_id == new for line in seen.lines if line.origin == "engine") > 30)
            transport.cut(stay_down=True)
            await asyncio.sleep(0.3)
            transport.up = True
            enough = len(seen.lines) + 30
            await seen.until(lambda: len(seen.lines) > enough)
            # What the manager says comes from the journal, in its own time.
            await seen.until(lambda: any("Started" in text for text in seen.texts("manager")))
    mine = [line for line in seen.lines if line.origin == "engine"]
    printed = [line.text for line in mine if line.text.split()[1] == new_pid]
    assert printed[:2] == [f"started {new_pid}", f"step {new_pid} 0"]
    assert printed[1:] == [f"step {new_pid} {number}" for number in range(len(printed) - 1)], "none lost, none doubled"
    for line in mine:
        if line.invocation_id is not None:
            assert line.invocation_id == {old_pid: old, new_pid: new}[line.text.split()[1]], line.text
    assert sum(line.invocation_id == new for line in mine) > 20
    assert not seen.texts("gap")


async def test_a_reader_that_comes_later_takes_no_line_of_an_appended_file_for_this_starts(
    testhost: TestHost, open_journal: OpenJournal
) -> None:
    unit = install(testhost, "print('which start?')\ntime.sleep(60)\n", "StandardOutput=append:/var/log/%N.log")
    async with running(testhost, unit):
        await asyncio.sleep(0.5)
        journal = open_journal(InsideTransport(testhost), unit)
        lines = {line.text: line for line in await journal.lines()}
        assert lines["which start?"].invocation_id is None
        start = await invocation_of(testhost, unit)
        of_start = await journal.lines(invocation_id=start)
        assert "which start?" not in [line.text for line in of_start]
        assert (of_start[0].origin, "does not say which start" in of_start[0].text) == ("console", True)
        async with following(journal, cursor=await journal.log_start()) as seen:
            await seen.until(lambda: () in seen.batches)
        assert any("does not say which start" in text for text in seen.texts("console"))


async def test_a_file_that_each_start_empties_is_this_starts_from_its_first_line(
    testhost: TestHost, open_journal: OpenJournal
) -> None:
    unit = install(testhost, "print('mine')\ntime.sleep(60)\n", "StandardOutput=truncate:/var/log/%N.log")
    async with running(testhost, unit):
        await asyncio.sleep(0.5)
        start = await invocation_of(testhost, unit)
        journal = open_journal(InsideTransport(testhost), unit)
        async with following(journal, cursor=await journal.log_start(), invocation_id=start) as seen:
            await seen.until(lambda: "mine" in seen.texts())
        assert "mine" in [line.text for line in await journal.lines(invocation_id=start)]


async def test_a_file_that_is_written_over_is_said_to_be_unknown_and_no_line_of_it_is_given(
    testhost: TestHost, open_journal: OpenJournal
) -> None:
    unit = install(testhost, "print('new or old?')\ntime.sleep(60)\n", "StandardOutput=file:/var/log/%N.log")
    journal = open_journal(InsideTransport(testhost), unit)
    cursor = await journal.cursor()
    async with running(testhost, unit):
        async with following(journal, cursor=cursor) as seen:
            await seen.until(lambda: bool(seen.texts("manager")))
        assert not seen.texts()
        assert any("StandardOutput=file:" in text and "not known" in text for text in seen.texts("unseen"))


async def test_an_output_that_goes_nowhere_is_said(testhost: TestHost, open_journal: OpenJournal) -> None:
    unit = install(testhost, "time.sleep(60)\n", "StandardOutput=null")
    async with following(open_journal(InsideTransport(testhost), unit)) as seen:
        await seen.until(lambda: bool(seen.texts("unseen")))
    assert "StandardOutput=null" in seen.texts("unseen")[0]


BOTH = "time.sleep(1)\nprint('to out', flush=True)\nprint('to err', file=sys.stderr, flush=True)\ntime.sleep(60)\n"


@pytest.mark.parametrize(
    "settings",
    [
        ("StandardOutput=append:/var/log/%N.out", "StandardError=append:/var/log/%N.err"),
        ("StandardOutput=append:/var/log/%N.log", "StandardError=append:/var/log/%N.log"),
        ("StandardOutput=journal", "StandardError=append:/var/log/%N.err"),
        ("StandardOutput=truncate:/var/log/%N.out", "StandardError=journal"),
    ],
    ids=["two files", "one file", "errors to a file", "errors to the journal"],
)
async def test_both_outputs_of_an_engine_are_followed_wherever_each_goes(
    testhost: TestHost, open_journal: OpenJournal, settings: tuple[str, ...]
) -> None:
    """Engines log to standard error, most of them."""
    unit = install(testhost, BOTH, *settings)
    async with running(testhost, unit):
        await asyncio.sleep(0.3)
        transport = InsideTransport(testhost)
        journal = open_journal(transport, unit)
        cursor = await journal.cursor()
        await on(testhost, "systemctl", "restart", unit)
        start = await invocation_of(testhost, unit)
        async with following(journal, cursor=cursor, invocation_id=start) as seen:
            await seen.until(lambda: {"to out", "to err"} <= set(seen.texts()))
            last = seen.lines[-1].cursor
        assert sorted(seen.texts()) == ["to err", "to out"], "none twice, and none of the start before"
        assert {line.invocation_id for line in seen.lines if line.origin == "engine"} == {start}
        async with following(journal, cursor=last) as later:
            await later.until(lambda: () in later.batches)
        assert not later.texts(), "a cursor is a place in every file"
        assert {"to out", "to err"} <= {line.text for line in await open_journal(transport, unit).lines()}


async def test_an_error_output_that_goes_nowhere_is_said_and_the_output_is_followed(
    testhost: TestHost, open_journal: OpenJournal
) -> None:
    unit = install(testhost, BOTH, "StandardError=null")
    async with running(testhost, unit):
        async with following(open_journal(InsideTransport(testhost), unit)) as seen:
            await seen.until(lambda: "to out" in seen.texts())
        assert any("the error output" in text and "StandardError=null" in text for text in seen.texts("unseen"))


async def test_a_unit_with_a_journal_of_its_own_is_read_there_and_the_managers_lines_beside_it(
    testhost: TestHost, open_journal: OpenJournal
) -> None:
    unit = install(testhost, BOTH, "LogNamespace=engines")
    journal = open_journal(InsideTransport(testhost), unit)
    cursor = await journal.cursor()
    async with running(testhost, unit):
        start = await invocation_of(testhost, unit)
        async with following(journal, cursor=cursor, invocation_id=start) as seen:
            await seen.until(lambda: {"to out", "to err"} <= set(seen.texts()) and bool(seen.texts("manager")))
        assert not seen.texts("gap")
        assert {"to out", "to err"} <= {line.text for line in await journal.lines(invocation_id=start)}
        await on(testhost, "systemctl", "restart", unit)
        async with following(journal, cursor=await journal.log_start()) as newest:
            await newest.until(lambda: {"to out", "to err"} <= set(newest.texts()))
        assert start not in {line.invocation_id for line in newest.lines}


@pytest.mark.parametrize("how", ["emptied", "replaced"])
async def test_a_file_that_is_rotated_under_the_reader_is_read_on_and_the_gap_is_said(
    testhost: TestHost, open_journal: OpenJournal, how: str
) -> None:
    unit = install(testhost, "time.sleep(600)\n", f"StandardOutput=append:/var/log/{how}.log")
    async with running(testhost, unit):
        path = testhost.path(f"/var/log/{how}.log")
        journal = open_journal(InsideTransport(testhost), unit)
        path.write_text("one\n" * 100)
        async with following(journal, cursor=await journal.cursor()) as seen:
            with path.open("a") as file:
                file.write("two\n")
            await seen.until(lambda: "two" in seen.texts())
            if how == "replaced":
                path.rename(path.with_suffix(".1"))
            # Longer than before: the size alone does not tell.
            path.write_text("".join(f"three {number}\n" for number in range(200)))
            await seen.until(lambda: "three 199" in seen.texts())
        assert seen.texts() == ["two", *(f"three {number}" for number in range(200))]
        assert any(how in text and "missing" in text for text in seen.texts("gap"))


async def test_a_file_that_may_not_be_read_is_an_error_in_words(testhost: TestHost, open_journal: OpenJournal) -> None:
    unit = install(testhost, "print('secret')\ntime.sleep(60)\n", "StandardOutput=append:/var/log/private.log", "UMask=0077")
    testhost.add_user("outsider")
    await on(testhost, "usermod", "-aG", "systemd-journal", "outsider")
    path = testhost.path("/var/log/private.log")
    path.write_text("")
    path.chmod(0o600)
    async with running(testhost, unit):
        journal = open_journal(UserTransport(testhost, user="outsider"), unit)
        with pytest.raises(HostError, match=r"private\.log.*[Pp]ermission denied"):
            await asyncio.wait_for(all_of(journal), 20)
