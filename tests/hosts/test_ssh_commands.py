"""Commands over SSH on a real host: what goes in, what comes out, and that what was ended has ended there."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dflash_console.hosts.ssh import SshTransport
from dflash_console.hosts.ssh_sessions import SESSIONS
from dflash_console.hosts.transport import HostError, HostUnreachable
from tests.hosts.ssh_home import SshHome, over_ssh
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost

pytestmark = pytest.mark.slow

AWKWARD = (
    "",
    " ",
    "it's",
    '"',
    "\\",
    "\\\\",
    "!",
    "$HOME",
    "`id`",
    "a\nb",
    "\t",
    "*",
    "~",
    "é",
    "-n",
    "%s",
    ";",
    "\udcff",
    "x" * 5000,
)


@pytest.fixture
def gpu(testhost: TestHost, ssh_home: SshHome) -> Iterator[TestHost]:
    """The host, on which a test may leave no process behind."""
    ssh_home.add_host("gpu", testhost)
    yield testhost
    deadline = time.monotonic() + 10
    while left := [words for words in testhost.processes().values() if words[0] in ("timeout", "setsid", "sleep", "cat")]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def running(host: TestHost, *words: str) -> bool:
    return any(found == words for found in host.processes().values())


async def until(condition: Callable[[], bool], timeout: float = 20) -> None:
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def collect(host: SshTransport, argv: Sequence[str]) -> bytes:
    async with host.stream(argv) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_output_errors_and_status_come_back_as_they_were(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        done = await host.run(["sh", "-c", "printf '\\0\\377\\r\\n'; printf err >&2; exit 3"])
        assert (done.stdout, done.stderr, done.status) == (b"\0\xff\r\n", b"err", 3)
        assert (await host.run(["sh", "-c", "kill -9 $$"])).status == 128 + 9
        nothing = await host.run(["true"])
        assert (nothing.stdout, nothing.stderr, nothing.status) == (b"", b"", 0)


async def test_the_case_with_bytes_that_are_no_text_leaves_the_connection_whole(gpu: TestHost) -> None:
    data = (Path(__file__).parent / "../fixtures/cases/41-asyncssh-bytes/remote-output.bin").read_bytes()
    async with over_ssh("gpu") as host:
        assert (await host.run(["cat"], stdin=data)).stdout == data
        assert (await host.run(["echo", "still here"])).stdout == b"still here\n"


async def test_input_of_any_size_reaches_the_command_and_its_end_too(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        data = bytes(range(256)) * 20_000
        assert (await host.run(["cat"], stdin=data)).stdout == data
        assert (await host.run(["wc", "-c"])).stdout == b"0\n"
        ignored = await host.run(["sh", "-c", "exit 5"], stdin=data)
        assert ignored.status == 5


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh", "fish", "tcsh"])
async def test_every_login_shell_passes_every_argument_on_and_may_print_what_it_likes(
    testhost: TestHost, ssh_home: SshHome, shell: str
) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    user = f"user-{shell}"
    testhost.add_user(user, shell=path)
    ssh_home.add_host("gpu", testhost, user=user)
    noisy = f"echo 'Welcome to {shell}'\necho 'mind the gap' >&2\n" if shell == "bash" else f"echo 'Welcome to {shell}'\n"
    start = {"bash": ".bashrc", "zsh": ".zshenv", "fish": ".config/fish/config.fish", "tcsh": ".tcshrc"}
    if shell in start:
        file = testhost.path(f"/home/{user}/{start[shell]}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(noisy)
        testhost.exec("chown", "-R", user, f"/home/{user}")
    async with over_ssh("gpu") as host:
        done = await host.run(["printf", r"%s\0", *AWKWARD])
        assert done.stdout.split(b"\0")[:-1] == [word.encode("utf-8", "surrogateescape") for word in AWKWARD]
        assert done.stderr == b""
        assert await collect(host, ["printf", r"%s\0", *AWKWARD]) == done.stdout


async def test_an_account_that_runs_no_commands_is_said_in_its_own_words(testhost: TestHost, ssh_home: SshHome) -> None:
    testhost.add_user("closed", shell="/usr/sbin/nologin")
    ssh_home.add_host("gpu", testhost, user="closed")
    async with over_ssh("gpu") as host:
        with pytest.raises(HostError, match="does not run commands; it says: This account is currently not available"):
            await host.run(["true"])
        with pytest.raises(HostError, match="does not run commands; it says: This account"):
            await collect(host, ["true"])


async def test_what_cannot_be_started_is_told_apart_from_what_failed(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        with pytest.raises(HostError, match="no-such-program could not be started on gpu: No such file"):
            await host.run(["no-such-program"])
        with pytest.raises(HostError, match="/etc could not be started on gpu: Permission denied"):
            await host.run(["/etc"])
        assert (await host.run(["sh", "-c", "exit 127"])).status == 127
        with pytest.raises(HostError, match="NUL"):
            await host.run(["echo", "a\0b"])


async def test_fifty_megabytes_come_whole(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        done = await host.run(["sh", "-c", "head -c 50000000 /dev/zero | tr '\\0' 'a'; echo end"], timeout=120)
        assert len(done.stdout) == 50_000_004
        assert done.stdout.endswith(b"aend\n")


async def test_many_commands_at_once_wait_for_each_other_instead_of_failing(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        done = await asyncio.gather(*(host.run(["sh", "-c", 'sleep 0.1; echo "$0"', str(n)], timeout=120) for n in range(30)))
        assert [found.stdout for found in done] == [f"{n}\n".encode() for n in range(30)]


async def test_a_host_that_allows_few_sessions_is_used_with_few(boot_host: BootHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", boot_host(sshd="MaxSessions 2\n"))
    async with over_ssh("gpu") as host:
        done = await asyncio.gather(
            *(host.run(["sh", "-c", 'sleep 0.1; echo "$0"', str(n)], timeout=60) for n in range(SESSIONS))
        )
        assert [found.stdout for found in done] == [f"{n}\n".encode() for n in range(SESSIONS)]


async def test_a_command_does_not_wait_for_outputs_that_are_followed_and_may_never_end(
    boot_host: BootHost, ssh_home: SshHome
) -> None:
    ssh_home.add_host("gpu", boot_host(sshd="MaxSessions 2\n"))
    async with over_ssh("gpu") as host, host.stream(["sleep", "60"]), host.stream(["sleep", "60"]):
        for several in (1, 4):
            begun = time.monotonic()
            ended = await asyncio.gather(*(host.run(["true"], timeout=40) for _ in range(several)), return_exceptions=True)
            assert all("of which 2 sessions can be had: raise MaxSessions" in str(error) for error in ended)
            assert time.monotonic() - begun < 12
    async with over_ssh("gpu") as host, host.stream(["sleep", "60"]):
        assert (await host.run(["true"])).ok


async def test_a_host_that_opens_no_session_says_so(boot_host: BootHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", boot_host(sshd="MaxSessions 0\n"))
    async with over_ssh("gpu") as host:
        with pytest.raises(HostError, match="opens no session"):
            await host.run(["true"])


@pytest.mark.parametrize("stdin", [b"", b"x" * 300_000], ids=["without input", "with unread input"])
async def test_a_timeout_ends_the_command_and_its_children_on_the_host(gpu: TestHost, stdin: bytes) -> None:
    async with over_ssh("gpu") as host:
        with pytest.raises(HostError, match=r"sh on gpu did not end within 1.5 s and was stopped"):
            await host.run(["sh", "-c", "sleep 4711 & sleep 4712; true"], stdin=stdin, timeout=1.5)
        # With input that nobody reads, the command ends itself some seconds later.
        await until(lambda: not running(gpu, "sleep", "4711") and not running(gpu, "sleep", "4712"), timeout=40)
        record = host.commands.records()[-1]
        assert (record.argv[0], record.status) == ("sh", None)


async def test_a_cancelled_command_that_ignores_polite_requests_ends_too(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        task = asyncio.create_task(host.run(["sh", "-c", "trap '' TERM HUP; while :; do sleep 0.4713; done"], timeout=60))
        await until(lambda: running(gpu, "sleep", "0.4713"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not any("0.4713" in " ".join(words) for words in gpu.processes().values()))
        assert (await host.run(["true"])).ok


async def test_a_command_ends_when_the_console_is_gone(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        task = asyncio.create_task(host.run(["sleep", "4714"], timeout=600))
        await until(lambda: running(gpu, "sleep", "4714"))
        host._link._connection.ssh.abort()  # type: ignore[union-attr]
        with pytest.raises(HostUnreachable, match="broke while sleep ran: whether it came to its end is not known"):
            await task
        await until(lambda: not running(gpu, "sleep", "4714"))


async def test_what_a_command_leaves_running_on_purpose_goes_on(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        await host.run(["sh", "-c", "sleep 47.15 >/dev/null 2>&1 &"])
        assert (await host.run(["true"])).ok
        assert running(gpu, "sleep", "47.15")
        await host.run(["pkill", "-f", "^sleep 47.15$"])


async def test_a_stream_is_read_as_it_comes_and_ends_when_it_is_left(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        async with host.stream(["sh", "-c", "echo first; sleep 0.5; echo second; exec sleep 4716"]) as chunks:
            begun, got = time.monotonic(), b""
            async for chunk in chunks:
                got += chunk
                if b"second" in got:
                    break
            assert got == b"first\nsecond\n"
            assert time.monotonic() - begun < 20
            await until(lambda: running(gpu, "sleep", "4716"))
        await until(lambda: not running(gpu, "sleep", "4716"))


async def test_a_stream_nobody_reads_stops_its_command_and_fills_no_memory(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        async with host.stream(["sh", "-c", "head -c 200000000 /dev/zero; echo done >/tmp/flood-done"]) as chunks:
            await asyncio.sleep(2)
            assert not gpu.path("/tmp/flood-done").exists()
            size = 0
            async for chunk in chunks:
                assert len(chunk) < 8 << 20
                size += len(chunk)
            assert size == 200_000_000
        assert (await host.run(["rm", "/tmp/flood-done"])).ok


async def test_streams_leave_room_for_commands(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:

        async def follow() -> None:
            async with host.stream(["sleep", "4717"]) as chunks:
                async for _ in chunks:
                    pass

        tasks = [asyncio.create_task(follow()) for _ in range(12)]
        await until(lambda: running(gpu, "sleep", "4717"))
        assert (await host.run(["echo", "room"])).stdout == b"room\n"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not running(gpu, "sleep", "4717"))


async def test_every_command_is_in_the_log_with_what_it_changed(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        await host.run(["true"])
        await host.run(["false"], changes=True)
        await host.write("/tmp/note", b"secret", mode=0o600)
        async with host.stream(["echo"]) as chunks:
            assert [chunk async for chunk in chunks] == [b"\n"]
        seen = [(record.argv, record.status, record.changes) for record in host.commands.records()]
        assert seen == [
            (("true",), 0, False),
            (("false",), 1, True),
            (("write", "/tmp/note", "6 bytes"), 0, True),
            (("echo",), 0, False),
        ]


async def test_the_time_is_the_hosts(gpu: TestHost) -> None:
    async with over_ssh("gpu") as host:
        before = time.time()
        now = await host.now()
        after = time.time()
        assert before - (after - before) <= now <= after + (after - before)
