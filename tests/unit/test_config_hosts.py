"""Hosts of the configuration file: adding and removing one keeps everything else in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_console.config import HostEntry, load_config
from dflash_console.config_hosts import add_host, remove_host

FILE = """\
# the console of the second rack
theme = "light"  # easy on the eyes

[hosts.gpu-a]  # the big one
address = "root@10.0.0.8"
"""


def test_adding_and_removing_a_host_keeps_everything_else_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    assert add_host(path, "", HostEntry("root@gpu-b:2222", "sglang.service")) == "gpu-b"
    assert load_config(path).config.hosts["gpu-b"] == HostEntry("root@gpu-b:2222", "sglang.service")
    assert path.read_text().startswith(FILE.rstrip())
    remove_host(path, "gpu-b")
    assert path.read_text().rstrip() == FILE.rstrip()


def test_an_address_that_is_its_own_name_is_a_whole_entry(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert add_host(path, "", HostEntry("gpu-a")) == "gpu-a"
    assert load_config(path).problems == ()
    assert load_config(path).config.host("gpu-a").address in ("", "gpu-a")


@pytest.mark.parametrize(
    ("name", "address", "words"),
    [
        ("", "", "names no host"),
        ("", "root@-oProxyCommand=x", "names no host that SSH could reach"),
        ("gpu-a", "root@other", "already"),
        ("embedded", "root@other", "already"),
        ("two words", "root@other", "no name for a host"),
    ],
)
def test_a_host_that_cannot_be_added_leaves_the_file_alone(tmp_path: Path, name: str, address: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    with pytest.raises(ValueError, match=words):
        add_host(path, name, HostEntry(address))
    assert path.read_text() == FILE
