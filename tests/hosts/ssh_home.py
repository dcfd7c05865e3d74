"""A user's home with its own ``.ssh``, so that a test's SSH configuration, keys and known hosts are no one else's."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dflash_console.hosts.ssh import SshTransport
from tests.testhost import TestHost


class SshHome:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / ".ssh"
        self.folder.mkdir(mode=0o700, parents=True)

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def add_host(self, alias: str, host: TestHost, *lines: str, user: str = "root", key: Path | None = None) -> None:
        """An alias in the configuration, with the host's key known."""
        text = f"Host {alias}\n  HostName 127.0.0.1\n  Port {host.port}\n  User {user}\n  IdentityFile {key or host.key}\n"
        self.configure(text + "".join(f"  {line}\n" for line in lines))
        self.trust(host)

    def configure(self, text: str) -> None:
        with (self.folder / "config").open("a") as file:
            file.write(text)

    def trust(self, host: TestHost) -> None:
        with self.known_hosts.open("a") as file:
            file.write(host.known_hosts_line())

    def forget(self) -> None:
        self.known_hosts.unlink()

    def make_key(self, name: str, passphrase: str = "", kind: str = "ed25519") -> Path:
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", name, "-f", path], check=True)
        return path

    def copy_key(self, name: str, host: TestHost, passphrase: str = "") -> Path:
        """The host's own key under another name, encrypted where there is a passphrase."""
        path = self.folder / name
        shutil.copy(host.key, path)
        shutil.copy(f"{host.key}.pub", f"{path}.pub")
        if passphrase:
            subprocess.run(
                ["ssh-keygen", "-q", "-p", "-P", "", "-N", passphrase, "-f", path], check=True, stdout=subprocess.DEVNULL
            )
        return path


@pytest.fixture
def ssh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshHome:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return SshHome(tmp_path / "home")


@contextlib.asynccontextmanager
async def over_ssh(destination: str) -> AsyncIterator[SshTransport]:
    transport = SshTransport(destination)
    try:
        yield transport
    finally:
        await transport.close()
