"""A unit's log on a host with a real journald: whole, in order, and of the right start, whatever happens to link and journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dflash_console.hosts.journald import Journal
from dflash_console.hosts.transport import HostError
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost

from .inside import InsideTransport
from .journal_rig import following, install, invocation_of, on, running

pytestmark = pytest.mark.slow

MakeUnit = Callable[..., str]


ODD = r"""
out = sys.stdout.buffer
out.write(b"plain\n" + b"\xff\xfe bytes\n" + b"\x1b[32mgreen\x1b[0m\n" + b"10%\r20%\r100%\n")
out.write(b"x" * 6000 + b"\n" + ("é" * 60000 + "end").encode() + b"\n" + b"api_key='sk-secret'\n" + b"last\n")
out.flush()
sys.exit(3)
"""


async def test_each_line_comes_once_as_it_was_printed_with_what_the_manager_says_of_the_start(testhost: TestHost) -> None:
    unit = install(testhost, ODD)
    journal = Journal(InsideTransport(testhost), unit)
    cursor = await journal.cursor()
    await on(testhost, "systemctl", "start", unit)
    async with following(journal, cursor=cursor) as seen:
        await seen.until(lambda: any("Failed with result" in text for text in seen.texts("manager")))
    assert seen.texts() == [
        *("plain", "\ufffd\ufffd bytes", "\x1b[32mgreen\x1b[0m", "10%\r20%\r100%", "x" * 6000, "é" * 60000 + "end"),
        *("api_key='******'", "last"),
    ]
    manager = seen.texts("manager")
    assert manager[0].startswith("Started")
    assert any("status=3" in text for text in manager)
    assert len({line.invocation_id for line in seen.lines}) == 1, "all of it is of this one start"
    assert {line.pid for line in seen.lines if line.origin == "manager"} == {1}
    stored = await journal.lines(limit=3)
    assert [line.text for line in stored] == [line.text for line in seen.lines[-3:]]


LOOP = "n = 0\nwhile True:\n    print('line', n)\n    n += 1\n    time.sleep(0.002)\n"


async def test_no_line_is_lost_or_doubled_when_the_link_is_cut_again_and_again(testhost: TestHost) -> None:
    unit = install(testhost, LOOP)
    transport = InsideTransport(testhost)
    journal = Journal(transport, unit)
    cursor = await journal.cursor()
    async with running(testhost, unit), following(journal, cursor=cursor) as seen:
        for cut in range(6):
            enough = len(seen.lines) + 60
            await seen.until(lambda enough=enough: len(seen.lines) >= enough)  # type: ignore[misc]
            transport.cut(stay_down=cut == 3)
            if cut == 3:
                await asyncio.sleep(1.0)
                transport.up = True
        enough = len(seen.lines) + 60
        await seen.until(lambda: len(seen.lines) >= enough)
    texts = seen.texts()
    assert texts == [f"line {number}" for number in range(len(texts))]
    assert transport.streams >= 7
    assert not seen.texts("gap")


async def test_a_cut_before_the_first_line_loses_nothing_and_is_no_gap(testhost: TestHost) -> None:
    unit = install(testhost, "print('first')\ntime.sleep(60)\n")
    transport = InsideTransport(testhost)
    journal = Journal(transport, unit)
    await on(testhost, "logger", "an entry that is not the unit's")
    try:
        async with following(journal, cursor=await journal.cursor()) as seen:
            await seen.until(lambda: bool(seen.batches))
            for _ in range(3):
                begun = transport.streams
                transport.cut()
                for _ in range(100):
                    await asyncio.sleep(0.05)
                    if transport.streams > begun:
                        break
                assert transport.streams > begun
            await on(testhost, "systemctl", "start", unit)
            await seen.until(lambda: "first" in seen.texts())
    finally:
        await on(testhost, "systemctl", "stop", unit)
    assert seen.texts("manager")[0].startswith("Started")
    assert not seen.texts("gap")


async def test_lines_that_are_the_same_are_all_given_across_a_cut(testhost: TestHost) -> None:
    unit = install(
        testhost, "for round in range(40):\n    print('same\\n' * 50, end='', flush=True)\n    time.sleep(0.05)\nprint('end')\n"
    )
    transport = InsideTransport(testhost)
    journal = Journal(transport, unit)
    cursor = await journal.cursor()
    await on(testhost, "systemctl", "start", unit)
    async with following(journal, cursor=cursor) as seen:
        await seen.until(lambda: len(seen.lines) > 300)
        transport.cut()
        await seen.until(lambda: "end" in seen.texts())
    assert seen.texts() == ["same"] * 2000 + ["end"]


async def test_following_one_start_gives_nothing_of_the_start_before(testhost: TestHost) -> None:
    unit = install(testhost, "print('from', sys.argv)\ntime.sleep(60)\n")
    journal = Journal(InsideTransport(testhost), unit)
    async with running(testhost, unit):
        first = await invocation_of(testhost, unit)
        cursor = await journal.cursor()
        await on(testhost, "systemctl", "restart", unit)
        second = await invocation_of(testhost, unit)
        async with following(journal, cursor=cursor, invocation_id=second) as seen:
            await seen.until(lambda: bool(seen.texts()))
        assert {line.invocation_id for line in seen.lines} == {second}
        async with following(journal, invocation_id=first) as before:
            await before.until(lambda: () in before.batches)
        assert {line.invocation_id for line in before.lines} == {first}
        assert any("Stopped" in text or "Deactivated" in text for text in before.texts("manager"))
        start = await journal.log_start()
        async with following(journal, cursor=start) as newest:
            await newest.until(lambda: () in newest.batches)
        assert {line.invocation_id for line in newest.lines} == {second}
        assert newest.texts("manager")[0].startswith("Started"), "the first line at the start's cursor is its first line"


PARTING = """
import os, signal
def end(number, frame):
    print('parting')
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print('begun')
time.sleep(600)
"""


async def test_a_line_that_journald_takes_late_stays_with_the_start_that_printed_it(boot_host: BootHost) -> None:
    host = boot_host("late")
    unit = install(host, PARTING)
    await on(host, "systemctl", "start", unit)
    first = await invocation_of(host, unit)
    async with following(Journal(InsideTransport(host), unit), invocation_id=first) as seen:
        await seen.until(lambda: "begun" in seen.texts())
    cursor = await Journal(InsideTransport(host), unit).cursor()
    journald = (await on(host, "systemctl", "show", "--property=MainPID", "--value", "systemd-journald")).strip()
    await asyncio.sleep(1.5)  # journald believes what it knows of a process for a second
    await on(host, "kill", "-STOP", journald)
    await on(host, "systemctl", "restart", unit)
    await asyncio.sleep(0.5)
    await on(host, "kill", "-CONT", journald)
    second = await invocation_of(host, unit)
    stored = ""
    while "begun" not in stored:
        stored = await on(host, "journalctl", "--output=cat", "--no-pager", f"_SYSTEMD_INVOCATION_ID={second}")
    assert "parting" in stored, "the journal itself gives the line to the next start"

    async with following(Journal(InsideTransport(host), unit), invocation_id=second) as seen:
        await seen.until(lambda: () in seen.batches)
    assert seen.texts() == ["begun"]
    lines = await Journal(InsideTransport(host), unit).lines(invocation_id=second)
    assert [line.text for line in lines if line.origin == "engine"] == ["begun"]
    async with following(Journal(InsideTransport(host), unit), cursor=cursor) as seen:
        await seen.until(lambda: () in seen.batches)
    printed = {line.text: line.invocation_id for line in seen.lines if line.origin == "engine"}
    assert printed == {"parting": first, "begun": second}


async def test_an_empty_batch_says_that_what_is_stored_was_given_also_when_nothing_is(testhost: TestHost) -> None:
    unit = install(testhost, "print('once')\n", "Type=oneshot")
    journal = Journal(InsideTransport(testhost), unit)
    async with following(journal) as seen:
        await seen.until(lambda: bool(seen.batches))
        assert seen.batches == [()]
    await on(testhost, "systemctl", "start", unit)
    async with following(journal) as seen:
        await seen.until(lambda: () in seen.batches)
    assert seen.batches.index(()) == len(seen.batches) - 1
    assert "once" in seen.texts()
    async with following(journal, cursor=await journal.cursor()) as after:
        await after.until(lambda: bool(after.batches), timeout=1.5)
        assert after.batches == [()]


async def test_what_the_journal_drops_for_its_rate_limit_is_a_gap_of_that_start(boot_host: BootHost) -> None:
    host = boot_host("limited")
    unit = install(
        host,
        "for n in range(40):\n    print(n)\ntime.sleep(3)\nprint('after')\n",
        "LogRateLimitIntervalSec=2s",
        "LogRateLimitBurst=10",
    )
    journal = Journal(InsideTransport(host), unit)
    await on(host, "systemctl", "start", unit)
    invocation = await invocation_of(host, unit)
    async with following(journal, invocation_id=invocation) as seen:
        await seen.until(lambda: "after" in seen.texts())
    (gap,) = seen.texts("gap")
    assert "Suppressed" in gap
    dropped = 41 - len(seen.texts())
    assert f" {dropped} " in gap
    assert {line.invocation_id for line in seen.lines} == {invocation}


async def test_lines_that_the_journal_threw_away_during_a_cut_are_said_to_be_missing(boot_host: BootHost) -> None:
    host = boot_host("vacuumed")
    unit = install(host, "print('before')\ntime.sleep(4)\nprint('lost')\ntime.sleep(60)\n")
    transport = InsideTransport(host)
    journal = Journal(transport, unit)
    cursor = await journal.cursor()
    await on(host, "systemctl", "start", unit)
    async with following(journal, cursor=cursor) as seen:
        await seen.until(lambda: "before" in seen.texts())
        transport.cut(stay_down=True)
        await asyncio.sleep(4.5)
        await on(host, "journalctl", "--rotate")
        await on(host, "journalctl", "--vacuum-time=1us", "--vacuum-files=1")
        transport.up = True
        await on(host, "systemctl", "kill", unit)
        await seen.until(lambda: bool(seen.texts("manager")[1:]))
    assert "lost" not in seen.texts()
    (gap,) = seen.texts("gap")
    assert "missing" in gap
    place = next(number for number, line in enumerate(seen.lines) if line.origin == "gap")
    assert seen.lines[place - 1].text == "before"
    async with following(journal, cursor=cursor) as late:
        await late.until(lambda: bool(late.lines))
    assert late.lines[0].origin == "gap", "a cursor that is gone is said at once"


async def test_a_restart_of_the_journal_itself_loses_nothing_and_is_said(boot_host: BootHost) -> None:
    host = boot_host("restarted")
    unit = install(host, LOOP)
    journal = Journal(InsideTransport(host), unit)
    cursor = await journal.cursor()
    await on(host, "systemctl", "start", unit)
    async with following(journal, cursor=cursor) as seen:
        await seen.until(lambda: len(seen.lines) > 50)
        await on(host, "systemctl", "restart", "systemd-journald")
        await seen.until(lambda: bool(seen.texts("console")))
        enough = len(seen.lines) + 100
        await seen.until(lambda: len(seen.lines) > enough)
    (said,) = seen.texts("console")
    assert "started anew" in said
    texts = seen.texts()
    assert texts == [f"line {number}" for number in range(len(texts))]


async def test_a_journal_that_may_not_be_read_is_unknown_and_never_an_empty_log(testhost: TestHost) -> None:
    unit = install(testhost, "print('there is a line')\ntime.sleep(60)\n")
    testhost.add_user("reader")
    async with running(testhost, unit):
        for sudo in (False, True):
            journal = Journal(InsideTransport(testhost, user="reader"), unit, sudo=sudo)
            for asked in (journal.cursor, journal.lines, lambda j=journal: anext(j.batches())):
                with pytest.raises(HostError, match="systemd-journal") as problem:
                    await asked()
                assert "not known" in str(problem.value)
                assert ("sudo -n did not help" in str(problem.value)) is sudo
                # sudo says that first on a host whose name is in no DNS, and it is not why.
                assert "resolve host" not in str(problem.value)
        testhost.path("/etc/sudoers.d/reader").write_text("reader ALL=(root) NOPASSWD: /usr/bin/journalctl\n")
        journal = Journal(InsideTransport(testhost, user="reader"), unit, sudo=True)
        assert "there is a line" in [line.text for line in await journal.lines()]
        testhost.path("/etc/sudoers.d/reader").unlink()
        await on(testhost, "usermod", "-aG", "systemd-journal", "reader")
        journal = Journal(InsideTransport(testhost, user="reader"), unit)
        assert "there is a line" in [line.text for line in await journal.lines()]


async def test_a_cursor_of_something_else_is_refused_in_words(testhost: TestHost) -> None:
    journal = Journal(InsideTransport(testhost), "any.service")
    with pytest.raises(HostError, match="no cursor"):
        await anext(journal.batches(cursor="o000000000000fff"))


async def test_lines_keeps_the_newest(testhost: TestHost, tmp_path: Path) -> None:
    unit = install(testhost, "for n in range(500):\n    print(n)\nsys.exit()\n")
    journal = Journal(InsideTransport(testhost), unit)
    async with following(journal, cursor=await journal.cursor()) as seen:
        await on(testhost, "systemctl", "start", unit)
        await seen.until(lambda: any("Deactivated" in text for text in seen.texts("manager")))
    lines = await journal.lines(invocation_id=seen.lines[0].invocation_id, limit=100)
    assert [line.text for line in lines if line.origin == "engine"] == [str(number) for number in range(500)][-len(lines) + 1 :]
    assert len(lines) == 100
