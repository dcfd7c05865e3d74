"""The user's SSH configuration, as the real ``ssh -G`` reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dflash_console.hosts.ssh_config import BadSshConfig, HostSettings, read_settings, resolve
from dflash_console.hosts.ssh_destination import Destination, parse_destination

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    return tmp_path


async def settings_for(home: Path, text: str, destination: str = "gpu") -> HostSettings:
    (home / ".ssh/config").write_text(text)
    return await resolve(parse_destination(destination))


@needs_ssh
async def test_an_alias_is_resolved(home: Path) -> None:
    text = "Host gpu\n HostName gpu-a.example\n User ada\n Port 2222\n"
    text += " IdentityFile ~/.ssh/id_%h\n IdentitiesOnly yes\n ConnectTimeout 3\n"
    found = await settings_for(home, text)
    assert (found.host, found.user, found.port, found.known_name) == ("gpu-a.example", "ada", 2222, "[gpu-a.example]:2222")
    assert found.identity_files == (home / ".ssh/id_gpu-a.example",)
    assert (found.identities_only, found.identities_chosen, found.connect_timeout_s) == (True, True, 3.0)
    assert found.known_hosts[0] == home / ".ssh/known_hosts"
    assert found.label == "gpu (gpu-a.example)"
    assert found.ignored == ()


@needs_ssh
async def test_what_is_said_with_the_destination_wins(home: Path) -> None:
    found = await settings_for(home, "Host gpu\n User ada\n Port 2222\n", "bob@gpu:22")
    assert (found.user, found.port, found.known_name) == ("bob", 22, "gpu")


@needs_ssh
async def test_without_a_configuration_the_defaults_hold(home: Path) -> None:
    found = await resolve(Destination("gpu", "root"))
    assert (found.host, found.port, found.jumps, found.proxy_command, found.agent) == ("gpu", 22, (), None, None)
    assert home / ".ssh/id_ed25519" in found.identity_files
    assert not found.identities_chosen


@needs_ssh
async def test_jumps_and_proxy_commands_are_told_apart(home: Path) -> None:
    found = await settings_for(home, "Host gpu\n ProxyJump ada@one:2200,two\n")
    assert found.jumps == (Destination("one", "ada", 2200), Destination("two"))
    found = await settings_for(home, "Host gpu\n User bob\n ProxyCommand nc %h %p %r %%\n")
    assert found.proxy_command == "nc gpu 22 bob %"


@needs_ssh
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("StrictHostKeyChecking no", "stricthostkeychecking"),
        ("StrictHostKeyChecking accept-new", "stricthostkeychecking accept-new"),
        ("PKCS11Provider /usr/lib/x.so", "pkcs11provider /usr/lib/x.so"),
        ("KnownHostsCommand /bin/keys", "knownhostscommand /bin/keys"),
        ("VerifyHostKeyDNS yes", "verifyhostkeydns"),
        ("HostbasedAuthentication yes", "hostbasedauthentication yes"),
    ],
)
async def test_what_cannot_be_honoured_is_named(home: Path, line: str, said: str) -> None:
    found = await settings_for(home, f"Host gpu\n {line}\n")
    assert len(found.ignored) == 1
    assert found.ignored[0].startswith(said)
    assert "is not honoured" in found.ignored[0]


@needs_ssh
async def test_an_error_in_the_file_is_said_with_its_line(home: Path) -> None:
    with pytest.raises(BadSshConfig, match="line 2: Bad configuration option: hostnam"):
        await settings_for(home, "Host gpu\n HostNam x\n")


async def test_without_ssh_the_file_that_is_not_read_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = await settings_for(home, "Host gpu\n Port 2222\n")
    assert found.port == 22
    assert "ssh is not installed" in found.ignored[0]


def test_the_agent_may_be_named_by_a_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER", "/run/other")

    def agent(value: str) -> str | None:
        return read_settings(Destination("gpu"), f"identityagent {value}\n", home).agent

    assert read_settings(Destination("gpu"), "", home).agent == "/run/agent"
    assert (agent("SSH_AUTH_SOCK"), agent("$OTHER"), agent("none"), agent("~/a")) == (
        "/run/agent", "/run/other", None, str(home / "a"))  # fmt: skip
