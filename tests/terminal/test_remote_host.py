"""The real program in a real terminal on a real host: sshd, systemd, journald and the engine as a unit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost, boot_host  # noqa: F401 - a fixture

from .tmux import Terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(500),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

CONSOLE = (sys.executable, "-m", "dflash_console")
PATIENCE = 180.0
"""Seconds for a model load on a machine that is busy with other things."""


def environment(home: Path) -> dict[str, str]:
    """A user of one's own: SSH files, configuration and state under ``home``."""
    found = {**os.environ, "HOME": str(home), "DDTREE_HOME": str(home / "console")}
    return {name: value for name, value in found.items() if name != "SSH_AUTH_SOCK"}


def ssh_files(home: Path, host: TestHost) -> Path:
    """An SSH configuration with the alias ``gpu-a``, whose key nobody knows yet; the known_hosts file's path."""
    folder = home / ".ssh"
    folder.mkdir(mode=0o700)
    text = f"Host gpu-a\n  HostName 127.0.0.1\n  Port {host.port}\n  User root\n  IdentityFile {host.key}\n"
    (folder / "config").write_text(text)
    return folder / "known_hosts"


def test_open_a_host_accept_its_key_change_the_window_and_see_it_confirmed(
    tmp_path: Path,
    boot_host: BootHost,  # noqa: F811
) -> None:
    host = boot_host("gpu-a")
    unit = host.install_engine(port=free_port())
    host.exec("systemctl", "start", unit)
    known_hosts = ssh_files(tmp_path, host)
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", "-"], input=host.host_key(), capture_output=True, text=True, check=True
    ).stdout.split()[1]
    with Terminal(tmp_path, (*CONSOLE, "--host", "gpu-a"), environment=environment(tmp_path)) as terminal:
        terminal.wait_for("1 Dashboard", 60)
        terminal.wait(lambda shown: "Unknown host key" in shown and fingerprint in shown, "the host's key")
        assert not known_hosts.exists()
        # The question came by itself: it takes keys, and names them, once the keyboard has rested.
        terminal.wait_for("y accept and connect")
        terminal.press("y")
        terminal.wait(lambda shown: f"gpu-a ▸ {unit} ▸ ● running" in shown and "✓ confirmed" in shown, "the engine", PATIENCE)
        assert known_hosts.read_text().startswith(f"[127.0.0.1]:{host.port} ssh-ed25519 ")

        terminal.press("w")
        terminal.wait_for("→ 512")
        terminal.press("a")
        terminal.wait_for("Compact draft cache: off → 512")
        # A plan that was slow to come is a question that came by itself, too.
        terminal.wait_for("m hot/restart")
        terminal.press("m")
        terminal.wait_for("commit-confirm: no")
        terminal.wait_for(f"/etc/systemd/system/{unit}")
        terminal.wait_for("⏎ apply")
        terminal.press("Enter")
        terminal.wait(lambda shown: re.search(r"│\s+✓ confirmed", shown) is not None, "the restart confirmed", PATIENCE)
        terminal.press("Escape")
        terminal.wait(lambda shown: "compact draft cache 512" in shown, "the compact draft cache in the header")
        assert b"--speculative-draft-window-size 512" in host.exec("systemctl", "show", "-p", "ExecStart", unit).stdout

        terminal.press("!")
        terminal.wait(lambda shown: "Commands run on gpu-a" in shown and "changes" in shown, "the command log")
        terminal.press("Escape")
        terminal.wait(lambda shown: "Commands run on gpu-a" not in shown, "the dashboard")
        terminal.press("7")
        terminal.wait(lambda shown: re.search(r"gpu-a ←\s+running", shown) is not None, "the host among all")
        terminal.wait(lambda shown: re.search(r"embedded\s+stopped", shown) is not None, "this machine's engine")
        terminal.press("q")
