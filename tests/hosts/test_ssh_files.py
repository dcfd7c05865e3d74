"""Files over SSH do what files of this machine do: the same calls, the same answers, the same errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.replace_file import replace_command
from dflash_console.hosts.ssh_command import command_script, login_line
from dflash_console.hosts.transport import HostFileError, Transport
from tests.hosts.ssh_home import SshHome, over_ssh
from tests.testhost import TestHost

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(testhost: TestHost, ssh_home: SshHome) -> Iterator[str]:
    """A folder on the host, with nasty characters in its name."""
    ssh_home.add_host("gpu", testhost)
    path = "/srv/it's a $(test) \\ folder"
    testhost.exec("mkdir", "-p", path)
    yield path
    testhost.exec("rm", "-rf", path)


@contextlib.asynccontextmanager
async def either(kind: str) -> AsyncIterator[Transport]:
    if kind == "local":
        yield LocalTransport()
    else:
        async with over_ssh("gpu") as host:
            yield host


async def flaws(call: Awaitable[object]) -> HostFileError:
    with pytest.raises(HostFileError) as caught:
        await call
    return caught.value


async def test_what_is_written_is_read_back_byte_for_byte(folder: str, testhost: TestHost) -> None:
    path = f"{folder}/new\nline é \udcff"
    data = bytes(range(256)) * 1000
    async with over_ssh("gpu") as host:
        await host.write(path, data, mode=0o640)
        assert await host.read(path) == data
        assert await host.read(path, offset=300, limit=10) == data[300:310]
        assert await host.read(path, offset=255_990) == data[255_990:]
        assert await host.read(path, offset=999_999) == b""
        assert await host.read(path, limit=0) == b""
        found = await host.stat(path)
        assert (found.size, found.mode, found.uid, found.gid) == (len(data), 0o640, 0, 0)
        assert found.inode == int(
            testhost.exec("stat", "-c", "%i", path.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")).stdout
        )
        assert await host.listdir(folder) == ("new\nline é \udcff",)
        await host.write(path, b"")
        assert await host.read(path) == b""


async def test_the_times_of_many_files_are_seen_at_one_look_as_one_by_one(folder: str) -> None:
    async with over_ssh("gpu") as host:
        odd, missing = f"{folder}/-a\nb \udcff", f"{folder}/missing"
        await host.write(odd, b"x")
        before = len(host.commands.records())
        found = await host.mtimes([odd, missing, folder])
        assert len(host.commands.records()) == before + 1
        assert found == {odd: (await host.stat(odd)).mtime, missing: None, folder: (await host.stat(folder)).mtime}
        assert await host.mtimes([]) == {}


async def test_files_without_a_size_are_read_to_their_end(folder: str) -> None:
    async with over_ssh("gpu") as host:
        assert b"systemd" in await host.read("/proc/1/cmdline")
        assert (await host.read("/proc/self/status", limit=5)) == b"Name:"


async def test_writing_keeps_owner_mode_and_link(folder: str, testhost: TestHost) -> None:
    target, link = f"{folder}/target", f"{folder}/link"
    testhost.exec(
        "sh", "-c", 'echo old > "$1"; chown nobody:nogroup "$1"; chmod 4751 "$1"; ln -s target "$2"', "sh", target, link
    )
    async with over_ssh("gpu") as host:
        await host.write(link, b"new")
        found = await host.stat(target)
        assert (found.mode, found.size) == (0o4751, 3)
        assert testhost.exec("stat", "-c", "%U:%G %F", target).stdout == b"nobody:nogroup regular file\n"
        assert testhost.exec("readlink", link).stdout == b"target\n"
        assert await host.listdir(folder) == ("link", "target")


async def test_a_write_that_is_cut_short_changes_nothing_and_leaves_nothing(folder: str, testhost: TestHost) -> None:
    path = f"{folder}/unit"
    testhost.path(path).write_text("old")
    # What a dying connection does: the input ends before all of it has come.
    argv = replace_command(path, 1000, 0o644)
    script = command_script(argv, "mark", stdin_size=1000, timeout=5)
    testhost.exec("sh", "-c", login_line(script), stdin=b"x" * 600, check=False)
    assert testhost.path(path).read_text() == "old"
    async with asyncio.timeout(20):
        while testhost.exec("ls", "-A", folder).stdout != b"unit\n":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    # And when the script saw the end of its input before anybody ended it:
    async with over_ssh("gpu") as host:
        done = await host.run(argv, stdin=b"x" * 600)
    assert (done.status, done.stderr) == (1, b"only a part of it arrived\n")
    assert testhost.path(path).read_text() == "old"
    assert testhost.exec("ls", "-A", folder).stdout == b"unit\n"


async def test_a_cancelled_write_leaves_the_old_text_or_the_new(folder: str, testhost: TestHost) -> None:
    path = f"{folder}/unit"
    testhost.path(path).write_text("old")
    async with over_ssh("gpu") as host:
        await host.connect()
        task = asyncio.create_task(host.write(path, b"n" * 30_000_000))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(3)
        assert testhost.path(path).read_bytes() in (b"old", b"n" * 30_000_000)
        assert await host.listdir(folder) == ("unit",)


Call = Callable[[Transport, str], Awaitable[object]]
MISSING: dict[str, Call] = {
    "read": lambda host, base: host.read(f"{base}/none"),
    "stat": lambda host, base: host.stat(f"{base}/none"),
    "write": lambda host, base: host.write(f"{base}/none/file", b"x"),
    "under a file": lambda host, base: host.read("/etc/passwd/none"),
    "process": lambda host, base: host.read("/proc/999999999/environ"),
}


@pytest.mark.parametrize("what", MISSING)
@pytest.mark.parametrize("kind", ["local", "ssh"])
async def test_what_is_missing_is_told_as_missing(folder: str, kind: str, what: str) -> None:
    async with either(kind) as host:
        error = await flaws(MISSING[what](host, folder))
        assert (error.missing, error.denied, error.full) == (True, False, False), error


@pytest.mark.parametrize("kind", ["local", "ssh"])
async def test_removing_and_listing_what_is_not_there_is_fine(folder: str, kind: str) -> None:
    async with either(kind) as host:
        await host.remove("/srv/none-of-these")
        assert await host.listdir("/srv/none-of-these") == ()
        await host.make_folder("/tmp")


async def test_folders_are_made_for_this_user_alone_and_files_removed(folder: str) -> None:
    async with over_ssh("gpu") as host:
        await host.make_folder(f"{folder}/a/b")
        await host.make_folder(f"{folder}/a/b")
        assert (await host.stat(f"{folder}/a/b")).mode == 0o700
        await host.write(f"{folder}/a/b/c", b"1")
        await host.remove(f"{folder}/a/b/c")
        assert await host.listdir(f"{folder}/a/b") == ()
        error = await flaws(host.remove(f"{folder}/a"))
        assert "Is a directory" in str(error)
        assert (error.missing, error.denied, error.full) == (False, False, False)


async def test_another_user_is_denied_what_is_not_his(testhost: TestHost, ssh_home: SshHome, folder: str) -> None:
    testhost.add_user("plain")
    testhost.exec("sh", "-c", 'echo secret > "$1"; chmod 600 "$1"', "sh", f"{folder}/locked")
    ssh_home.add_host("plain", testhost, user="plain")
    async with over_ssh("plain") as host:
        calls = (host.read(f"{folder}/locked"), host.write(f"{folder}/locked", b"x"), host.remove(f"{folder}/locked"),
                 host.make_folder(f"{folder}/deep"), host.listdir("/root"), host.write("/etc/x.conf", b"x"))  # fmt: skip
        for call in calls:
            error = await flaws(call)
            assert (error.missing, error.denied, error.full) == (False, True, False), error
            assert "permission denied" in str(error)


async def test_full_and_read_only_file_systems_are_told_as_such(folder: str, testhost: TestHost) -> None:
    testhost.exec("mkdir", "-p", f"{folder}/small", f"{folder}/fixed")
    testhost.exec("mount", "-t", "tmpfs", "-o", "size=64k", "small", f"{folder}/small")
    testhost.exec(
        "sh", "-c", 'mount -t tmpfs fixed "$1"; echo old > "$1/file"; mount -o remount,ro "$1"', "sh", f"{folder}/fixed"
    )
    async with over_ssh("gpu") as host:
        await host.write(f"{folder}/small/file", b"old")
        full = await flaws(host.write(f"{folder}/small/file", b"x" * 200_000))
        assert (full.full, full.denied) == (True, False)
        assert "no space left on the device" in str(full)
        assert await host.read(f"{folder}/small/file") == b"old"
        assert await host.listdir(f"{folder}/small") == ("file",)
        fixed = await flaws(host.write(f"{folder}/fixed/file", b"x"))
        assert (fixed.full, fixed.denied) == (True, False)
        assert "the file system is read-only" in str(fixed)
    testhost.exec("umount", f"{folder}/small", f"{folder}/fixed")
