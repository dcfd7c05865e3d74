"""Where files live: the platform's folders, or everything under one folder."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from dflash_console.paths import chosen_by, default_paths, private_folder


def test_one_variable_moves_everything(tmp_path: Path) -> None:
    paths = default_paths({"DDTREE_HOME": str(tmp_path)})
    for path in (paths.config_file, paths.history_file, paths.operations, paths.audit_file, paths.service("x"), paths.cache):
        assert path.is_relative_to(tmp_path)


def test_without_it_the_three_folders_differ_and_are_named_after_the_program() -> None:
    paths = default_paths({})
    assert len({paths.config, paths.state, paths.cache}) == 3
    assert {path.name for path in (paths.config, paths.state, paths.cache)} == {"ddtree-console"}


def test_folders_that_may_hold_keys_are_private(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "a" / "b")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_chose_the_folders_is_named_so_that_another_shell_can_choose_them_too(tmp_path: Path) -> None:
    own = {"HOME": pwd.getpwuid(os.getuid()).pw_dir, "XDG_CACHE_HOME": "/c"}
    assert chosen_by(own) == {}
    assert chosen_by({**own, "DDTREE_HOME": "~/x y"}) == {"DDTREE_HOME": str(Path("~/x y").expanduser())}
    assert chosen_by({**own, "DDTREE_HOME": "here"}) == {"DDTREE_HOME": str(Path.cwd() / "here")}
    assert chosen_by({**own, "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "relative: not taken"}) == {"XDG_STATE_HOME": "/s"}
    assert chosen_by({"HOME": str(tmp_path)}) == {"HOME": str(tmp_path)}
    assert chosen_by({**own, "DDTREE_HOME": ""}) == {"DDTREE_HOME": ""}, "taken back from a shell that may have it"
