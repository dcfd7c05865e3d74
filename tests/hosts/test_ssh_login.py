"""Getting onto a real host: configuration, keys, agents, host keys, jump hosts, and every way it can fail, in words."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.hosts.ssh_errors import AuthenticationFailed, HostKeyChanged, HostKeyUnknown
from dflash_console.hosts.ssh_known_hosts import trust_host_key
from dflash_console.hosts.transport import HostError, HostUnreachable, LinkStatus
from tests.hosts.ssh_home import SshHome, over_ssh
from tests.ports import free_port
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost

pytestmark = pytest.mark.slow


async def hostname(destination: str) -> bytes:
    async with over_ssh(destination) as host:
        return (await host.run(["hostname"])).stdout


async def refusal(destination: str) -> HostError:
    async with over_ssh(destination) as host:
        with pytest.raises(HostError) as caught:
            await host.connect()
        return caught.value


def not_ended() -> set[subprocess.Popen[bytes]]:
    """Processes of this one whose end has not been seen: left so, they fail whichever test comes after."""
    return {it for it in gc.get_objects() if isinstance(it, subprocess.Popen) and it.returncode is None}


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An agent without keys."""
    path = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 10
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        yield path
        process.terminate()


def keygen(*words: object) -> str:
    return subprocess.run(["ssh-keygen", *map(str, words)], check=True, capture_output=True, text=True).stdout


def add_to_agent(key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], check=True, stdin=subprocess.DEVNULL)


# Destinations and configuration ------------------------------------------------------------------------------------------


async def test_every_way_to_name_a_host_leads_there(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.trust(testhost)
    ssh_home.copy_key("id_ed25519", testhost)
    for destination in (
        f"root@127.0.0.1:{testhost.port}",
        f"ssh://root@127.0.0.1:{testhost.port}",
        f"[127.0.0.1]:{testhost.port}",
    ):
        assert await hostname(destination) == b"shared\n"
    ssh_home.configure(f"Host box\n  HostName 127.0.0.1\n  Port {testhost.port}\n")
    assert await hostname("root@box") == b"shared\n"


async def test_included_files_and_what_stands_after_them_count(testhost: TestHost, ssh_home: SshHome) -> None:
    more = ssh_home.folder / "more.conf"
    more.write_text(f"Host gpu-*\n  Port {testhost.port}\n  User root\n")
    ssh_home.configure(f"Include {more}\nHost gpu-a\n  HostName 127.0.0.1\n  IdentityFile {testhost.key}\n")
    ssh_home.trust(testhost)
    assert await hostname("gpu-a") == b"shared\n"


async def test_a_match_that_runs_a_command_counts(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.configure(
        f'Match host gpu exec "true"\n  HostName 127.0.0.1\n  Port {testhost.port}\n  IdentityFile {testhost.key}\n'
    )
    ssh_home.configure("Match exec false\n  User nobody\n")
    ssh_home.trust(testhost)
    assert await hostname("root@gpu") == b"shared\n"


async def test_a_broken_configuration_is_said_with_its_line(ssh_home: SshHome) -> None:
    ssh_home.configure("Host gpu\n  Prot 22\n")
    assert "config: line 2: Bad configuration option: prot" in str(await refusal("gpu"))


async def test_what_is_not_honoured_is_named(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", testhost, "StrictHostKeyChecking no", "GSSAPIAuthentication yes")
    async with over_ssh("gpu") as host:
        await host.connect()
        notices = host.link.notices
    assert any(notice.startswith("stricthostkeychecking false") or "stricthostkeychecking" in notice for notice in notices)
    assert any("gssapiauthentication yes" in notice for notice in notices)
    ssh_home.forget()
    error = await refusal("gpu")
    assert isinstance(error, HostKeyUnknown), f"asked about all the same, and not: {error}"


async def test_a_proxy_command_is_used_and_its_failure_said(testhost: TestHost, ssh_home: SshHome) -> None:
    relay = "import socket,sys,threading,os;s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
    relay += "t=threading.Thread(target=lambda:[s.sendall(d) for d in iter(lambda:os.read(0,9999),b'')],daemon=True);t.start();"
    relay += "[os.write(1,d) for d in iter(lambda:s.recv(9999),b'')]"
    script = ssh_home.folder / "relay.py"
    script.write_text(relay.replace(";", "\n"))
    ssh_home.add_host("gpu", testhost, f"ProxyCommand python3 {script} %h %p")
    before = not_ended()
    assert await hostname("gpu") == b"shared\n"
    assert not_ended() == before
    ssh_home.add_host("broken", testhost, "ProxyCommand exit 1")
    assert "its ProxyCommand ended (exit 1)" in str(await refusal("broken"))


@pytest.mark.parametrize("command", ["exit 1", "sh -c 'exec >&- <&-; sleep 60'"])
async def test_a_proxy_command_has_ended_when_its_failure_is_said(ssh_home: SshHome, command: str) -> None:
    before = not_ended()
    ssh_home.configure(f"Host gpu\n  HostName 127.0.0.1\n  ProxyCommand {command}\n")
    assert "its ProxyCommand ended" in str(await refusal("gpu"))
    assert not_ended() == before


# Host keys ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hashed", [False, True])
async def test_an_unknown_key_is_shown_and_once_accepted_known_to_ssh_too(
    testhost: TestHost, ssh_home: SshHome, hashed: bool
) -> None:
    ssh_home.add_host("gpu", testhost, f"HashKnownHosts {'yes' if hashed else 'no'}")
    ssh_home.known_hosts.write_text(
        "# mine\nother.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1rhFnhV2YxRHIkF1Pi8ZDPAJp7rPpRMAJpTLkk"
    )
    error = await refusal("gpu")
    assert isinstance(error, HostKeyUnknown), str(error)
    listed = keygen("-lf", testhost.folder / "host_ed25519.pub")
    assert error.key.fingerprint in listed
    assert error.key.fingerprint in str(error)
    trust_host_key(error)
    assert await hostname("gpu") == b"shared\n"
    text = ssh_home.known_hosts.read_text()
    assert text.startswith("# mine\nother.example ")
    assert ("127.0.0.1" in text) is not hashed
    found = keygen("-F", f"[127.0.0.1]:{testhost.port}", "-f", ssh_home.known_hosts)
    assert testhost.host_key() in found


async def test_a_changed_key_is_refused_with_both_fingerprints_and_the_line(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", testhost)
    other = ssh_home.make_key("other")
    public = " ".join(other.with_name("other.pub").read_text().split()[:2])
    ssh_home.known_hosts.write_text(f"# first\n\n[127.0.0.1]:{testhost.port} {public}\n")
    error = await refusal("gpu")
    assert isinstance(error, HostKeyChanged)
    assert error.known[0].line == 3
    assert error.known[0].file == str(ssh_home.known_hosts)
    for text in (error.key.fingerprint, error.known[0].fingerprint, "line 3", "ssh-keygen -R"):
        assert text in str(error)
    assert error.key.fingerprint != error.known[0].fingerprint


async def test_another_kind_of_key_than_the_known_one_is_a_change_too(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", testhost)
    ssh_home.known_hosts.write_text(f"[127.0.0.1]:{testhost.port} {testhost.host_key('rsa')}\n")
    assert isinstance(await refusal("gpu"), HostKeyChanged)


async def test_a_host_with_several_keys_is_asked_for_the_one_that_is_known(boot_host: BootHost, ssh_home: SshHome) -> None:
    host = boot_host(sshd="HostKey /etc/ssh/ssh_host_rsa_key\nHostKey /etc/ssh/ssh_host_ecdsa_key\n")
    ssh_home.add_host("gpu", host)
    ssh_home.known_hosts.write_text(f"[127.0.0.1]:{host.port} {host.host_key('rsa')}\n")
    assert await hostname("gpu") == b"gpu-a\n"


async def test_a_revoked_key_is_refused(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", testhost)
    ssh_home.known_hosts.write_text(f"@revoked * {testhost.host_key()}\n" + testhost.known_hosts_line())
    assert "revoked" in str(await refusal("gpu"))


async def test_a_host_certificate_of_a_trusted_authority_is_enough(boot_host: BootHost, ssh_home: SshHome) -> None:
    authority = ssh_home.make_key("authority")
    host = boot_host(sshd="HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub\n")
    key = ssh_home.folder / "host.pub"
    shutil.copy(host.folder / "host_ed25519.pub", key)
    keygen("-q", "-s", authority, "-I", "gpu", "-h", "-n", "127.0.0.1", key)
    shutil.copy(ssh_home.folder / "host-cert.pub", host.path("/etc/ssh/ssh_host_ed25519_key-cert.pub"))
    host.exec("systemctl", "restart", "testhost-ssh")
    ssh_home.add_host("gpu", host)
    ssh_home.known_hosts.write_text(f"@cert-authority * {authority.with_name('authority.pub').read_text()}")
    assert await hostname("gpu") == b"gpu-a\n"


# Keys to log in with -----------------------------------------------------------------------------------------------------


async def test_a_refused_login_names_what_was_offered(testhost: TestHost, ssh_home: SshHome) -> None:
    wrong = ssh_home.make_key("id_wrong")
    ssh_home.add_host("gpu", testhost, key=wrong)
    error = await refusal("gpu")
    assert isinstance(error, AuthenticationFailed)
    assert str(wrong) in error.offered[0]
    assert "SHA256:" in error.offered[0]
    assert any("no SSH agent" in reason for reason in error.withheld)


async def test_an_encrypted_key_without_an_agent_says_how_to_load_it(testhost: TestHost, ssh_home: SshHome) -> None:
    key = ssh_home.copy_key("id_gpu", testhost, passphrase="secret words")
    ssh_home.add_host("gpu", testhost, key=key)
    error = await refusal("gpu")
    assert isinstance(error, AuthenticationFailed)
    assert "there was no key to offer" in str(error)
    assert f"ssh-add {key}" in str(error)


async def test_an_encrypted_old_key_that_is_not_needed_disturbs_nothing(testhost: TestHost, ssh_home: SshHome) -> None:
    keygen("-q", "-t", "rsa", "-m", "PEM", "-N", "secret", "-f", ssh_home.folder / "id_rsa")
    (ssh_home.folder / "id_rsa.pub").unlink()
    ssh_home.copy_key("id_ed25519", testhost)
    ssh_home.trust(testhost)
    assert await hostname(f"root@127.0.0.1:{testhost.port}") == b"shared\n"


async def test_an_agent_signs_for_an_encrypted_key(testhost: TestHost, ssh_home: SshHome, agent: Path) -> None:
    key = ssh_home.copy_key("id_gpu", testhost)
    add_to_agent(key)
    keygen("-q", "-p", "-P", "", "-N", "secret words", "-f", key)
    ssh_home.add_host("gpu", testhost, "IdentitiesOnly yes", key=key)
    assert await hostname("gpu") == b"shared\n"


async def test_an_agent_full_of_keys_offers_the_named_one_first(testhost: TestHost, ssh_home: SshHome, agent: Path) -> None:
    for number in range(8):
        add_to_agent(ssh_home.make_key(f"id_{number}"))
    key = ssh_home.copy_key("id_gpu", testhost)
    add_to_agent(key)
    key.unlink()
    ssh_home.add_host("gpu", testhost, key=key)
    assert await hostname("gpu") == b"shared\n"


async def test_identities_only_keeps_the_agents_other_keys_back(testhost: TestHost, ssh_home: SshHome, agent: Path) -> None:
    add_to_agent(ssh_home.copy_key("id_gpu", testhost))
    ssh_home.add_host("gpu", testhost, "IdentitiesOnly yes", key=ssh_home.make_key("id_other"))
    error = await refusal("gpu")
    assert isinstance(error, AuthenticationFailed)
    assert len(error.offered) == 1
    assert "id_other" in error.offered[0]


async def test_an_agent_that_has_gone_is_named(testhost: TestHost, ssh_home: SshHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere/agent.sock")
    ssh_home.add_host("gpu", testhost, key=ssh_home.make_key("id_wrong"))
    assert "no SSH agent answers at /nowhere/agent.sock" in str(await refusal("gpu"))


async def test_a_user_certificate_beside_the_key_logs_in(boot_host: BootHost, ssh_home: SshHome) -> None:
    authority = ssh_home.make_key("authority")
    host = boot_host(sshd="TrustedUserCAKeys /etc/testhost/user_ca.pub\n")
    shutil.copy(authority.with_name("authority.pub"), host.path("/etc/testhost/user_ca.pub"))
    key = ssh_home.make_key("id_cert")
    keygen("-q", "-s", authority, "-I", "me", "-n", "root", f"{key}.pub")
    ssh_home.add_host("gpu", host, key=key)
    assert await hostname("gpu") == b"gpu-a\n"


# Where nobody answers ----------------------------------------------------------------------------------------------------


async def test_a_name_that_does_not_exist_is_said(ssh_home: SshHome) -> None:
    assert "there is no host called no-such-host.invalid" in str(await refusal("no-such-host.invalid"))


async def test_a_port_without_a_server_is_said(ssh_home: SshHome) -> None:
    error = await refusal(f"127.0.0.1:{free_port()}")
    assert isinstance(error, HostUnreachable)
    assert "refuses the connection: no SSH server listens there" in str(error)


async def test_a_server_that_says_nothing_is_given_up_in_time(ssh_home: SshHome) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ssh_home.configure("Host *\n  ConnectTimeout 1\n")
        begun = time.monotonic()
        assert "did not answer within 1 s" in str(await refusal(f"127.0.0.1:{silent.getsockname()[1]}"))
        assert time.monotonic() - begun < 15


async def test_something_that_is_no_ssh_server_is_told(ssh_home: SshHome) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            taken, _ = server.accept()
            with taken:
                taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        error = await refusal(f"127.0.0.1:{server.getsockname()[1]}")
    assert isinstance(error, HostUnreachable)
    assert "127.0.0.1 port" in str(error)


# Jump hosts --------------------------------------------------------------------------------------------------------------


async def test_a_jump_host_carries_the_connection(boot_host: BootHost, ssh_home: SshHome) -> None:
    jump, gpu = boot_host("bastion"), boot_host("gpu-a")
    ssh_home.add_host("bastion", jump)
    ssh_home.add_host("gpu", gpu, "ProxyJump bastion")
    assert await hostname("gpu") == b"gpu-a\n"
    seen = jump.exec("sh", "-c", "journalctl --no-pager -u testhost-ssh | grep -c 'Accepted publickey'").stdout
    assert int(seen) == 1


async def test_an_unknown_key_of_the_jump_host_is_asked_about(boot_host: BootHost, ssh_home: SshHome) -> None:
    jump, gpu = boot_host("bastion"), boot_host("gpu-a")
    ssh_home.add_host("bastion", jump)
    ssh_home.add_host("gpu", gpu, "ProxyJump bastion")
    ssh_home.known_hosts.write_text(gpu.known_hosts_line())
    error = await refusal("gpu")
    assert isinstance(error, HostKeyUnknown), str(error)
    assert error.key.host == f"[127.0.0.1]:{jump.port}"
    assert "the key of bastion" in str(error)
    trust_host_key(error)
    assert await hostname("gpu") == b"gpu-a\n"


async def test_a_changed_key_of_the_jump_host_is_refused(boot_host: BootHost, ssh_home: SshHome) -> None:
    jump, gpu = boot_host("bastion"), boot_host("gpu-a")
    ssh_home.add_host("bastion", jump)
    ssh_home.add_host("gpu", gpu, "ProxyJump bastion")
    ssh_home.known_hosts.write_text(f"{gpu.known_hosts_line()}[127.0.0.1]:{jump.port} {gpu.host_key()}\n")
    error = await refusal("gpu")
    assert isinstance(error, HostKeyChanged)
    assert "the key of bastion (127.0.0.1) has changed" in str(error)


async def test_an_unknown_key_behind_the_jump_host_is_asked_about_too(boot_host: BootHost, ssh_home: SshHome) -> None:
    jump, gpu = boot_host("bastion"), boot_host("gpu-a")
    ssh_home.add_host("bastion", jump)
    ssh_home.add_host("gpu", gpu, "ProxyJump bastion")
    ssh_home.known_hosts.write_text(jump.known_hosts_line())
    error = await refusal("gpu")
    assert isinstance(error, HostKeyUnknown), str(error)
    assert error.key.host == f"[127.0.0.1]:{gpu.port}"
    assert "reached through bastion" in str(error)


async def test_a_target_that_the_jump_host_cannot_reach_names_both(boot_host: BootHost, ssh_home: SshHome) -> None:
    jump = boot_host("bastion")
    ssh_home.add_host("bastion", jump)
    ssh_home.configure(f"Host gpu\n  HostName 127.0.0.1\n  Port {free_port()}\n  ProxyJump bastion\n")
    error = str(await refusal("gpu"))
    assert error.startswith("the jump host bastion (127.0.0.1) cannot reach 127.0.0.1 port")
    assert "refused" in error


async def test_a_jump_host_that_is_down_is_the_one_that_is_named(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", testhost, f"ProxyJump root@127.0.0.1:{free_port()}")
    assert "127.0.0.1 port" in str(await refusal("gpu"))
    assert "refuses the connection" in str(await refusal("gpu"))


async def test_jump_hosts_in_a_circle_end_with_a_word(ssh_home: SshHome) -> None:
    ssh_home.configure("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    assert "circle" in str(await refusal("a"))


async def test_a_refused_login_leaves_no_connection_open(testhost: TestHost, ssh_home: SshHome) -> None:
    ssh_home.add_host("gpu", testhost, key=ssh_home.make_key("id_wrong"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with over_ssh("gpu") as host:
            with pytest.raises(AuthenticationFailed):
                await host.run(["true"])
            assert host.link.status is LinkStatus.NEW
    assert len(os.listdir("/proc/self/fd")) <= before + 1
