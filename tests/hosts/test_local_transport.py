"""This machine as a host: commands that fail, hang and are cancelled, and files that are replaced whole or not at all."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from dflash_console.hosts import proc
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.transport import HostError, HostFileError


@pytest.fixture
def transport() -> LocalTransport:
    return LocalTransport()


async def test_output_and_status_come_back_as_bytes(transport: LocalTransport) -> None:
    code = "import sys; sys.stdout.buffer.write(b'\\xff out'); sys.stderr.write('err'); sys.exit(3)"
    done = await transport.run([sys.executable, "-c", code])
    assert (done.stdout, done.stderr, done.status, done.ok) == (b"\xff out", b"err", 3, False)


async def test_words_reach_the_program_as_they_are(transport: LocalTransport) -> None:
    words = ["a b", "$HOME", "'\"", "*", ""]
    done = await transport.run([sys.executable, "-c", "import sys; print(sys.argv[1:])", *words])
    assert done.stdout.decode().strip() == repr(words)


async def test_a_program_that_is_not_there_is_named(transport: LocalTransport) -> None:
    with pytest.raises(HostError, match="nonexistent-program could not be started"):
        await transport.run(["nonexistent-program"])


async def test_a_command_that_hangs_is_ended_even_when_it_ignores_sigterm(transport: LocalTransport, tmp_path: Path) -> None:
    # A shell, which is there sooner than Python: it must ignore the signal by the time that it comes.
    words = ["sh", "-c", "trap '' TERM; echo $$ > \"$0\"; exec sleep 60", str(tmp_path / "pid")]
    with pytest.raises(HostError, match="did not end within 3 s"):
        await transport.run(words, timeout=3.0)
    assert proc.identify(int((tmp_path / "pid").read_text())) is None


async def test_a_cancelled_command_is_ended(transport: LocalTransport, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"import time,os; open({str(file)!r},'w').write(str(os.getpid())); time.sleep(60)"
    task = asyncio.create_task(transport.run([sys.executable, "-c", code]))
    async with asyncio.timeout(60):
        while not (text := file.read_text() if file.exists() else ""):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert proc.identify(int(text)) is None


async def test_a_stream_is_read_as_it_comes_and_ends_with_its_context(transport: LocalTransport) -> None:
    code = "import time\nprint('first', flush=True)\ntime.sleep(60)"
    async with transport.stream([sys.executable, "-c", code]) as chunks:
        assert (await anext(chunks)).startswith(b"first")
    assert transport.commands.records()[-1].status == -signal.SIGTERM


async def test_every_command_is_in_the_command_log_with_whether_it_changes_anything(transport: LocalTransport) -> None:
    await transport.run([sys.executable, "-c", ""])
    await transport.run([sys.executable, "-c", ""], changes=True)
    assert [record.changes for record in transport.commands.records()] == [False, True]


async def test_a_file_is_replaced_with_its_mode_kept(transport: LocalTransport, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    inode = path.stat().st_ino
    await transport.write(str(path), b"new", mode=0o600)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert path.stat().st_ino != inode, "renamed over, not written into"


async def test_a_symbolic_link_stays_one(transport: LocalTransport, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    await transport.write(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


async def test_a_write_that_fails_leaves_the_old_text_and_no_half_file(transport: LocalTransport, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, hard))
    try:
        with pytest.raises(HostFileError) as caught:
            await transport.write(str(path), b"longer than two bytes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.full
    assert await transport.listdir(str(tmp_path)) == ("file",)
    assert path.read_text() == "old"


async def test_a_read_only_file_system_is_told_from_a_missing_file(transport: LocalTransport) -> None:
    # sysfs takes no new files, not even from root.
    with pytest.raises(HostFileError) as caught:
        await transport.write("/sys/new-file", b"x")
    assert caught.value.denied or caught.value.full
    assert not caught.value.missing


async def test_what_is_missing_is_told_apart_from_what_cannot_be_read(transport: LocalTransport, tmp_path: Path) -> None:
    with pytest.raises(HostFileError) as caught:
        await transport.read(str(tmp_path / "none"))
    assert caught.value.missing
    with pytest.raises(HostFileError) as caught:
        await transport.read(str(tmp_path))
    assert not caught.value.missing
    await transport.remove(str(tmp_path / "none"))
    assert await transport.listdir(str(tmp_path / "none")) == ()


async def test_reading_from_an_offset_and_from_proc(transport: LocalTransport, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert await transport.read(str(tmp_path / "file"), offset=3, limit=4) == b"3456"
    assert (await transport.read(f"/proc/{os.getpid()}/stat")).startswith(str(os.getpid()).encode())


async def test_what_a_command_started_ends_with_it_when_it_is_cut_off() -> None:
    transport = LocalTransport()
    # A shell that waits for a child and passes no signal on; the child holds the pipe open.
    argv = ["sh", "-c", "sleep 300 & echo $!; wait"]
    async with transport.stream(argv) as chunks:
        child = int(await anext(aiter(chunks)))
    assert proc.identify(child) is None


async def test_what_is_no_regular_file_is_refused_and_not_waited_for(transport: LocalTransport, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with asyncio.timeout(10):
        for path in (str(tmp_path / "pipe"), "/dev/zero"):
            with pytest.raises(HostFileError, match="it is no regular file"):
                await transport.read(path, limit=10)
