"""Where files live: the platform's folders, or everything under one folder."""

from __future__ import annotations

from pathlib import Path

from dflash_console.paths import default_paths, private_folder


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
