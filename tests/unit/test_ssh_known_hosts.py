"""known_hosts files: what they say about a host, and adding to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncssh
import pytest

from dflash_console.hosts.ssh_errors import HostKeyUnknown, OfferedKey
from dflash_console.hosts.ssh_known_hosts import find_known_keys, trust_host_key
from dflash_console.hosts.transport import HostFileError


def new_key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519").convert_to_public()


def line_of(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


def problem(host: str, key: asyncssh.SSHKey, file: Path, hashed: bool = False) -> HostKeyUnknown:
    offered = OfferedKey(host, key.get_algorithm(), key.get_fingerprint(), line_of(key))
    return HostKeyUnknown("gpu", offered, str(file), hashed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".ssh" / "known_hosts"


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("host", ["gpu-a", "[gpu-a]:2222"])
def test_an_accepted_key_is_known_for_that_host_alone(file: Path, host: str, hashed: bool) -> None:
    key = new_key()
    trust_host_key(problem(host, key, file, hashed))
    assert find_known_keys([file], host).trusted == [key]
    assert find_known_keys([file], "gpu-b").trusted == []
    assert find_known_keys([file], "[gpu-a]:2223").trusted == ([key] if host == "gpu-a" else [])
    assert ("gpu-a" in file.read_text()) is not hashed
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_lines_are_counted_as_an_editor_does(file: Path) -> None:
    one, other = new_key(), new_key()
    file.parent.mkdir()
    lines = ["# comment", "", "rubbish", "gpu-a ssh-ed25519 not-base64", f"gpu-a,gpu-b {line_of(one)} note"]
    file.write_text("\n".join([*lines, f"*.example,!x.example {line_of(other)}"]))
    assert [(line.line, line.fingerprint) for line in find_known_keys([file], "gpu-b").lines] == [(5, one.get_fingerprint())]
    assert find_known_keys([file], "y.example").trusted == [other]
    assert find_known_keys([file], "x.example").trusted == []


def test_a_key_known_without_the_port_is_trusted_but_another_one_there_is_no_change(file: Path) -> None:
    trust_host_key(problem("gpu-a", new_key(), file))
    found = find_known_keys([file], "[gpu-a]:2222")
    assert len(found.trusted) == 1
    assert found.lines == []


def test_where_the_port_has_a_key_of_its_own_another_one_of_the_machine_is_a_change(file: Path) -> None:
    of_the_port, of_the_machine, revoked = new_key(), new_key(), new_key()
    file.parent.mkdir()
    file.write_text(
        f"gpu-a {line_of(of_the_machine)}\n@revoked gpu-a {line_of(revoked)}\n@cert-authority gpu-a {line_of(revoked)}\n"
    )
    other = file.with_name("known_hosts2")
    other.write_text(f"[gpu-a]:2222 {line_of(of_the_port)}\n")
    for files in ([file, other], [other, file]):
        found = find_known_keys(files, "[gpu-a]:2222")
        assert found.trusted == [of_the_port]
        assert [line.file for line in found.lines] == [str(other)]
        assert (found.revoked, found.authorities) == ([revoked], [revoked])
    assert find_known_keys([file, other], "gpu-a").trusted == [of_the_machine]


# Tried with OpenSSH 9.2: `ssh-keygen -F NAME` finds the line or does not.
@pytest.mark.parametrize(
    ("hosts", "name", "known"),
    [
        ("gpu-b,", "gpu-a", False),
        (",gpu-b", "gpu-a", False),
        ("gpu-b,,gpu-a", "gpu-a", True),
        ("gpu-b,,", "[gpu-a]:2222", False),
        ("10.0.0.0/8", "10.1.2.3", False),
        ("10.0.0.0/8,gpu-?", "10.1.2.3", False),
        ("10.*", "10.1.2.3", True),
        ("*", "[10.1.2.3]:2222", True),
        ("GPU-A", "gpu-a", True),
        ("gpu-?,!gpu-a", "gpu-a", False),
        ("!gpu-a,gpu-?", "gpu-a", False),
        ("!gpu-b", "gpu-a", False),
        ("gpu-[ab]", "gpu-a", False),
        ("[gpu-?]:2222", "[gpu-a]:2222", True),
        ("[gpu-a]:*", "[gpu-a]:2222", True),
        ("|1|c2FsdA==|rubbish", "gpu-a", False),
        ("|2|YWJjZGVmZ2hpamtsbW5vcHFyc3Q=|XZkSpmvVnbIBGXeGxVsSR2Ht90w=", "gpu-a", False),
    ],
)
def test_the_hosts_of_a_line_are_read_as_ssh_does(file: Path, hosts: str, name: str, known: bool) -> None:
    key = new_key()
    file.parent.mkdir()
    file.write_text(f"{hosts} {line_of(key)}\n@revoked {hosts} {line_of(key)}\n@other {hosts} {line_of(key)}\n@revoked\n@\n")
    found = find_known_keys([file], name)
    assert (found.trusted, found.revoked) == (([key], [key]) if known else ([], []))


def test_what_stands_after_a_key_does_not_matter(file: Path) -> None:
    key = new_key()
    file.parent.mkdir()
    file.write_text(f"gpu-a {line_of(key)} Jürgen's\n@revoked\tgpu-a\t{line_of(key)} für alle\n", encoding="utf-8")
    found = find_known_keys([file], "gpu-a")
    assert (found.trusted, found.revoked) == ([key], [key])


def test_missing_and_unreadable_files_say_nothing(tmp_path: Path) -> None:
    assert find_known_keys([tmp_path / "none", tmp_path], "gpu-a").trusted == []


def test_a_last_line_without_its_newline_is_kept_whole(file: Path) -> None:
    one, other = new_key(), new_key()
    file.parent.mkdir()
    file.write_text(f"one {line_of(one)}")
    trust_host_key(problem("other", other, file))
    assert file.read_text() == f"one {line_of(one)}\nother {line_of(other)}\n"


def test_many_at_once_lose_nothing(file: Path) -> None:
    keys = [new_key() for _ in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda item: trust_host_key(problem(f"host-{item[0]}", item[1], file)), enumerate(keys)))
    assert all(find_known_keys([file], f"host-{number}").trusted == [key] for number, key in enumerate(keys))


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(HostFileError, match="cannot be added"):
        trust_host_key(problem("gpu-a", new_key(), tmp_path))
