"""The console's own settings: a broken file is told with its line, and never keeps the console from opening."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.config import Config, FirstLook, first_look, load_config, parse_config
from dflash_console.config_edit import save_profile, set_value
from dflash_console.knobs import OFF, KnobError

GOOD = """\
# my settings
theme = "light"
default_host = "gpu-a"

[sampling]
interval_s = 2  # seconds

[keymap]
"app.apply" = "A"

[hosts.gpu-a]
address = "root@gpu-a"
unit = "sglang-k26-ddtree.service"

[profiles.long]
draft_window = "off"
tree_budget = 16
"""


def problem(text: str) -> str:
    loaded = parse_config(text, "config.toml")
    assert loaded.problems, "no problem found"
    assert loaded.config == Config(), "the defaults are used"
    return str(loaded.problems[0])


def test_a_good_file_is_read() -> None:
    loaded = parse_config(GOOD, "config.toml")
    assert loaded.problems == ()
    config = loaded.config
    assert (config.theme, config.sampling.interval_s, config.keymap) == ("light", 2.0, {"app.apply": "A"})
    assert config.hosts["gpu-a"].unit == "sglang-k26-ddtree.service"
    assert config.host_names() == ("embedded", "gpu-a")
    assert config.profile("long") == {"draft_window": OFF, "tree_budget": 16}


def test_a_missing_file_gives_the_defaults_without_a_problem(tmp_path: Path) -> None:
    loaded = load_config(tmp_path / "config.toml")
    assert (loaded.config, loaded.problems) == (Config(), ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('theme = "dark"\nkeymap = {\n', "line 2, column 11"),
        ("theme = 3", "line 1: theme must be text in quotes"),
        ('theme = "dark"\ncolour = 1', "line 2: colour is not a setting of the console"),
        ("[sampling]\ninterval_s = 0.01", "line 2: sampling.interval_s input should be greater than or equal to 0.2"),
        ('[sampling]\ninterval_s = "often"', "line 2: sampling.interval_s must be a number"),
        ("[hosts.gpu-a]\nport = 22", "line 2: hosts.gpu-a.port is not a setting"),
        ("hosts = 3", "line 1: hosts must be a table"),
        ("[profiles.long]\ntree_budget = 0", "line 2: profiles.long: tree_budget must be at least 1"),
        ("[profiles.long]\nwindow = 3", "line 2: profiles.long: there is no setting called window"),
        ('[hosts.embedded]\naddress = "x"', "line 2: the host embedded is this machine's own engine"),
        ('theme = "dark', "line 1"),
        ("# a\u2028b\ntheme = 3", "line 2: theme must be"),
        (
            "[profiles.long]\ntree_budget = [8]",
            "line 2: profiles.long.tree_budget must be a number, text in quotes, or true or false",
        ),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    ],
)
def test_a_broken_file_names_the_line_and_what_is_wrong(text: str, said: str) -> None:
    assert said in problem(text)


def test_a_wrong_value_is_told_once() -> None:
    assert len(parse_config("[profiles.long]\ntree_budget = [8]", "config.toml").problems) == 1


@pytest.mark.parametrize(
    ("text", "read_only", "host"),
    [
        ('read_only = true\ncolour = 1\ndefault_host = "gpu-a"', True, "gpu-a"),
        ("read_only = false\ncolour = 1", False, ""),
        ('read_only = "yes, please"', True, ""),
        ('theme = \ndefault_host = "gpu-a" # first\nread_only = true', True, "gpu-a"),
        ("theme = \nread_only = false", False, ""),
        ("theme = \n# read_only = true", False, ""),
        ('default_host = "embedded"\ncolour = 1', False, ""),
        ('read_only = true\n[hosts.embedded]\naddress = "x"', True, ""),
    ],
)
def test_a_broken_file_still_protects_from_changes(text: str, read_only: bool, host: str) -> None:
    loaded = parse_config(text, "config.toml")
    assert loaded.problems
    assert (loaded.config, loaded.lost_host) == (Config(read_only=read_only), host)


def test_a_file_that_is_not_text_still_protects_from_changes(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"theme = \xff\nread_only = true\n")
    assert load_config(path).config.read_only


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"theme = \xff")
    assert "not UTF-8 text (byte 8)" in str(load_config(path).problems[0])


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert "cannot be read" in str(load_config(tmp_path).problems[0])


@given(st.text(max_size=200))
def test_no_text_whatever_makes_the_reader_fail(text: str) -> None:
    loaded = parse_config(text, "config.toml")
    assert loaded.config == Config(read_only=loaded.config.read_only) or not loaded.problems


def test_setting_a_value_keeps_comments_and_order(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(GOOD)
    set_value(path, ("sampling", "interval_s"), 5)
    assert path.read_text() == GOOD.replace("interval_s = 2", "interval_s = 5")


def test_setting_a_value_keeps_line_ends_links_and_who_may_read(tmp_path: Path) -> None:
    path, link = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    path.write_bytes(GOOD.replace("\n", "\r\n").encode())
    path.chmod(0o600)
    link.symlink_to(path)
    set_value(link, ("sampling", "interval_s"), 5)
    assert link.is_symlink()
    assert path.read_bytes() == GOOD.replace("interval_s = 2", "interval_s = 5").replace("\n", "\r\n").encode()
    assert path.stat().st_mode & 0o777 == 0o600


def test_setting_a_value_in_a_new_file_makes_its_table(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    set_value(path, ("hosts", "gpu-b", "address"), "root@gpu-b")
    assert path.read_text().strip() == '[hosts.gpu-b]\naddress = "root@gpu-b"'


def test_a_broken_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("theme = ")
    with pytest.raises(ValueError, match="mend it first"):
        set_value(path, ("theme",), "light")
    assert path.read_text() == "theme = "


def test_a_profile_is_saved_and_loaded_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(GOOD)
    save_profile(path, "long", {"draft_window": 1024, "layers_window": "config"})
    assert load_config(path).config.profile("long") == {"draft_window": 1024, "layers_window": "config"}
    with pytest.raises(KnobError, match="known: long"):
        load_config(path).config.profile("short")


def test_without_a_file_pydantic_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dflash_console.config import load_config;"
        f"load_config(Path({str(tmp_path / 'none')!r})); sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_first_paint_takes_theme_and_keys_without_checking_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(GOOD)
    assert first_look(path) == FirstLook("light", {"app.apply": "A"})
    code = (
        "import sys; from pathlib import Path; from dflash_console.config import first_look;"
        f"first_look(Path({str(path)!r})); sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("text", ["theme = ", "theme = 3", "keymap = 1", '[keymap]\n"app.apply" = 1', "\x00", ""])
def test_a_first_look_at_a_broken_file_takes_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    assert first_look(path) == FirstLook(Config().theme, {})


def test_a_first_look_at_no_file_or_at_no_text_takes_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert {first_look(tmp_path / name).theme for name in ("none", "binary")} == {Config().theme}
    assert first_look(tmp_path).keymap == {}, "a folder"


def test_a_byte_order_mark_is_read_over_and_stays_when_a_value_is_set(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    loaded = load_config(path)
    assert (loaded.problems, loaded.config.default_host) == ((), "gpu-a")
    assert first_look(path).theme == "light"
    set_value(path, ("theme",), "dark")
    assert path.read_bytes() == b"\xef\xbb\xbf" + GOOD.replace("light", "dark").encode()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    script = (
        "import sys, pathlib\n"
        "from dflash_console.config import first_look, load_config\n"
        "from dflash_console.config_edit import set_value\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "print(first_look(path).theme, *load_config(path).problems, sep='\\n')\n"
        "try: set_value(path, ('theme',), 'light')\n"
        "except OSError as error: print(error.strerror)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.splitlines() == [
        "dark",
        f"{path}: cannot be read: it is no regular file",
        "it is no regular file",
    ]
