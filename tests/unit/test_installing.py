"""The command that adds an extra: it works as it stands, wherever this installation came from."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from dataclasses import dataclass

import pytest
from packaging.requirements import Requirement

from engine_launch.spec.installing import install_command


@dataclass
class Noted:
    """An installation with pip's note of where it came from; ``None`` = there is none."""

    origin: str | None

    def find(self, name: str) -> Noted:
        assert name == "ddtree-console"
        return self

    def read_text(self, filename: str) -> str | None:
        assert filename == "direct_url.json"
        return self.origin


def command(origin: object, extra: str = "embedded") -> str:
    return install_command(extra, Noted(origin if isinstance(origin, str | None) else json.dumps(origin)).find)


@pytest.mark.parametrize(
    ("origin", "extra", "words"),
    [
        ({"url": "file:///home/a/ddtree", "dir_info": {"editable": True}}, "embedded", "--editable '/home/a/ddtree[embedded]'"),
        ({"url": "file:///home/a/ddtree", "dir_info": {}}, "sglang", "'/home/a/ddtree[sglang]'"),
        ({"url": "file:///home/a/ddtree", "dir_info": {}}, "", "/home/a/ddtree"),
        ({"url": "file:///home/two%20words", "dir_info": {}}, "", "'/home/two words'"),
        (None, "embedded", "'ddtree-console[embedded]'"),
        (None, "", "ddtree-console"),
        (
            {"url": "file:///d/ddtree_console-0.1.0-py3-none-any.whl", "archive_info": {}},
            "embedded",
            "'ddtree-console[embedded] @ file:///d/ddtree_console-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://h.example/p.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}},
            "embedded",
            "'ddtree-console[embedded] @ git+https://h.example/p.git@0a1b'",
        ),
    ],
)
def test_the_command_names_what_this_was_installed_from(origin: object, extra: str, words: str) -> None:
    assert command(origin, extra) == f"pip install {words}"


@pytest.mark.parametrize(
    "origin", ["", "no json", "[]", "{}", '{"url": 3}', '{"url": "x", "vcs_info": {}}', '{"url": "http://["}']
)
def test_a_note_that_cannot_be_read_is_none(origin: str) -> None:
    assert command(origin) == "pip install 'ddtree-console[embedded]'"


def test_a_name_and_a_password_in_an_address_are_not_shown() -> None:
    said = command({"url": "https://name:pass@h.example/p.whl", "archive_info": {}})
    assert said == "pip install 'ddtree-console[embedded] @ https://h.example/p.whl'"


def test_packages_that_were_never_installed_are_installed_from_their_folder() -> None:
    def find(name: str) -> Noted:
        raise importlib.metadata.PackageNotFoundError(name)

    assert install_command("embedded", find) == "pip install '.[embedded]' in the project's folder"


def test_pip_understands_what_is_said() -> None:
    for origin in (
        None,
        {"url": "file:///d/a.whl", "archive_info": {}},
        {"url": "https://h/p.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
    ):
        *_, requirement = shlex.split(command(origin))
        assert Requirement(requirement).extras == {"embedded"}
