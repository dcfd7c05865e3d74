"""The documents say what the program does: settings, commands, keys and examples are checked against it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console.apply import hot, restart
from dflash_console.command_line import COMMANDS, parse
from dflash_console.config import parse_config
from dflash_console.knobs import KNOBS, KnobError, find_knob, parse_settings
from dflash_console.paths import default_paths
from dflash_console.session import EMBEDDED_UNIT

PROJECT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs/guide.md", "docs/configuration.md", "docs/confirmation.md")
COMMAND = re.compile(r"^\s*(ddtree-console .*?)\s*(?:#.*|>.*|\|.*|;.*)?$", re.MULTILINE)
INLINE = re.compile(r"`(ddtree-console [^`]+)`")


def text(name: str) -> str:
    return (PROJECT / name).read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text(name), re.DOTALL)


def examples() -> list[str]:
    """Every command line of ours in the documents."""
    found = []
    for name in DOCUMENTS:
        found += [match for block in blocks(name, "sh") for match in COMMAND.findall(block)]
        found += INLINE.findall(text(name))
    return [re.sub(r" \|\| .*", "", line) for line in found if "COMMAND" not in line]


def test_there_are_examples() -> None:
    assert len(examples()) > 15


@pytest.mark.parametrize("line", sorted(set(examples())))
def test_every_command_in_the_documents_is_understood(line: str) -> None:
    settings = parse(shlex.split(line)[1:]).get("settings", ())
    assert isinstance(settings, list | tuple)
    try:
        parse_settings(settings)
    except KnobError as problem:
        pytest.fail(str(problem))


@pytest.mark.parametrize("stage", sorted({*restart.STAGES, *hot.STAGES}))
def test_every_stage_of_an_apply_is_explained(stage: str) -> None:
    assert re.search(rf"(\| |, |\*){stage}(,| \||\*)", text("docs/confirmation.md"))


def test_the_file_of_the_embedded_engine_is_where_the_documents_say() -> None:
    place = default_paths().service(EMBEDDED_UNIT) / "service.toml"
    (said,) = re.findall(r"`(\S+/service\.toml)` in the state folder", text("docs/configuration.md"))
    assert default_paths().state / said == place


def test_the_readme_puts_the_commands_on_the_path_before_it_uses_them() -> None:
    first = next(block for block in blocks("README.md", "sh") if "ddtree-console" in block)
    assert first.startswith(". .venv/bin/activate")


def test_the_configuration_example_is_valid_and_whole() -> None:
    (example,) = blocks("docs/configuration.md", "toml")
    loaded = parse_config(example, "example")
    assert loaded.problems == ()
    assert loaded.config.hosts["gpu-a"].unit == "sglang-ddtree"
    for setting in ("theme", "default_host", "read_only", "sampling", "apply", "hosts", "profiles", "keymap"):
        assert setting in example


def test_every_setting_is_in_the_configuration_document() -> None:
    document = text("docs/configuration.md")
    assert [name for name in KNOBS if f"| `{name}` |" not in document] == []


def test_the_settings_that_change_hot_are_named() -> None:
    (sentence,) = re.findall(r"^(.*) can change while the engine runs", text("docs/configuration.md"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", sentence)) == {name for name, knob in KNOBS.items() if knob.hot_name}
    for name in re.findall(r"`(\w+)`", sentence):
        assert find_knob(name)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command: str) -> None:
    assert re.search(rf"`{command}`|ddtree-console {command}\b", text("README.md"))


def test_links_between_documents_lead_somewhere() -> None:
    for name in (*DOCUMENTS, "docs/keys.md", "CONTRIBUTING.md"):
        here = (PROJECT / name).parent
        for link in re.findall(r"\]\(([^)#]+)\)", text(name)):
            if "://" not in link:
                assert (here / link).exists(), f"{name} links to {link}"


def test_the_list_of_keys_is_that_of_the_program() -> None:
    code = "import make_keys, sys; sys.stdout.write(make_keys.render())"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT / "docs", capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert text("docs/keys.md") == done.stdout.decode("utf-8"), "write it anew with: make keys"


def test_every_key_belongs_to_a_part_of_the_list() -> None:
    from dflash_console.tui.all_bindings import all_bindings

    document = text("docs/keys.md")
    assert [binding.id for binding in all_bindings() if binding.id and f"`{binding.id}`" not in document] == []


def test_the_compact_draft_cache_has_one_name_everywhere() -> None:
    """Flags and keys keep theirs (``--speculative-draft-window-size``, ``draft_window``)."""
    pages = [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *(PROJECT / "docs").glob("*.md")]
    sources = [
        path
        for room in ("dflash_console", "engine_launch/spec", "engine_launch/embedded")
        for path in (PROJECT / room).rglob("*.py")
        # A log's own words are recognised as they are.
        if path.name != "engine_log.py"
    ]
    found = [path.name for path in (*pages, *sources) if "draft window" in path.read_text("utf-8").lower()]
    assert found == []
