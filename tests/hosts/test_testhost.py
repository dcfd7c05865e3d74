"""The test hosts themselves: they are real, apart from each other, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.testhost.fixtures import BootHost
from tests.testhost.host import PROJECT, STATE, TestHost

pytestmark = pytest.mark.slow


def ssh(host: TestHost, *command: str, timeout: float = 20) -> subprocess.CompletedProcess[bytes]:
    options = [
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "LogLevel=ERROR",
    ]
    words = ["ssh", "-F", "none", *options, "-i", str(host.key), "-p", str(host.port), "root@127.0.0.1", *command]
    return subprocess.run(words, capture_output=True, timeout=timeout, check=False)


def wait_for(condition: Callable[[], bool], timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(("127.0.0.1", port))
            return probe.recv(8).startswith(b"SSH")
        except OSError:
            return False


def healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).is_success
    except httpx.TransportError:
        return False


def test_two_hosts_run_systemd_and_have_files_and_keys_of_their_own(boot_host: BootHost) -> None:
    one, two = boot_host("gpu-a"), boot_host("bastion")
    assert ssh(one, "hostname").stdout == b"gpu-a\n"
    assert ssh(two, "cat /proc/1/comm").stdout == b"systemd\n"
    one.exec("touch", "/etc/only-here")
    assert not two.path("/etc/only-here").exists()
    assert not Path("/etc/only-here").exists()
    assert one.host_key() != two.host_key()
    assert one.exec("journalctl", "--no-pager", "-u", "testhost-ssh").stdout


def test_a_restart_of_the_ssh_server_is_over_when_it_listens(boot_host: BootHost) -> None:
    host = boot_host()
    slow = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'sleep 1; exec /usr/sbin/sshd -D -e -f /etc/testhost/sshd_config'\n"
    host.exec("mkdir", "/etc/systemd/system/testhost-ssh.service.d")
    host.path("/etc/systemd/system/testhost-ssh.service.d/slow.conf").write_text(slow)
    host.exec("systemctl", "daemon-reload")
    host.exec("systemctl", "restart", "testhost-ssh")
    assert answers(host.port)


def test_a_cut_link_answers_nothing_while_the_host_works_on_and_heals(boot_host: BootHost) -> None:
    host = boot_host()
    host.cut()
    assert not answers(host.port)
    assert host.exec("true").returncode == 0
    host.heal()
    assert answers(host.port)


def test_a_hung_host_takes_connections_and_says_nothing_until_it_resumes(boot_host: BootHost) -> None:
    host = boot_host()
    host.hang()
    with socket.create_connection(("127.0.0.1", host.port), timeout=2) as probe:
        probe.settimeout(0.5)
        with pytest.raises(TimeoutError):
            probe.recv(8)
    host.resume()
    wait_for(lambda: answers(host.port))


@pytest.mark.parametrize("victim", ["run", "keeper"])
def test_nothing_is_left_when_the_run_or_the_keeper_is_killed(victim: str) -> None:
    script = (
        "import sys; from tests.testhost import TestHost; h = TestHost.boot('victim'); h.cut() if sys.argv[1] == 'run' else 0; "
    )
    script += "print(h.folder, h.port, h.leader, h._keeper.pid, flush=True); sys.stdin.read(); h.down()"
    with subprocess.Popen([sys.executable, "-c", script, victim], cwd=PROJECT, stdin=-1, stdout=-1, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        folder, port, leader, keeper = run.stdout.readline().split()
        os.kill(run.pid if victim == "run" else int(keeper), signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{leader}").exists())
        wait_for(
            lambda: f"testhost_{port}" not in subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout
        )
        assert folder.startswith(str(STATE))
        assert folder not in Path("/proc/mounts").read_text()
        run.stdin.close()
        wait_for(lambda: not Path(folder).exists())


def test_a_reboot_keeps_the_disk_and_nothing_else(boot_host: BootHost) -> None:
    host = boot_host()
    host.install_unit("lasting.service", "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=basic.target\n")
    host.exec("systemctl", "enable", "--now", "lasting.service")
    for at_once in (False, True):
        before = host.exec("systemctl", "show", "--value", "--property=InvocationID", "lasting.service").stdout
        host.path("/run/gone").write_text("x")
        host.reboot(at_once=at_once)
        assert not host.path("/run/gone").exists()
        after = host.exec("systemctl", "show", "--value", "--property=InvocationID,ActiveState", "lasting.service").stdout
        assert b"active" in after
        assert before.strip() not in after
        assert host.exec("journalctl", "--no-pager", "--list-boots").stdout.count(b"\n") >= 2


def test_the_embedded_engine_is_a_unit_on_the_host_and_answers(boot_host: BootHost) -> None:
    host, port = boot_host(), free_port()
    unit = host.install_engine(port=port)
    assert host.exec("systemd-analyze", "verify", f"/etc/systemd/system/{unit}").stderr == b""
    host.exec("systemctl", "start", unit)
    wait_for(lambda: healthy(port), timeout=120)
    assert b"Initialized DDTREE draft runner" in host.exec("journalctl", "--no-pager", "-u", unit).stdout
