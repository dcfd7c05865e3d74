"""Edits of a service's files: exactly the wanted command, each word changed where it stands, every other byte as it was."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dflash_console.evidence.command import set_flag
from dflash_console.evidence.unit import UnitSource, read_unit
from dflash_console.evidence.unit_command import EnvText, UnitFiles, view_command
from dflash_console.evidence.unit_drop_in import find_shadow, read_marker
from dflash_console.evidence.unit_edit import UnitEditError, write_command
from dflash_console.evidence.unit_step import Places
from dflash_console.evidence.unit_words import literal_word
from dflash_console.knobs import KNOBS, Value

from .support import CASES

SYSTEM = "/etc/systemd/system"


def drop_in(unit: str) -> str:
    return f"{SYSTEM}/{unit}.d/zz-ddtree-console.conf"


def of_case(case: str, name: str, *drop_ins: str) -> UnitFiles:
    folder = CASES / case
    own = [folder / f"{name}.d" / each for each in drop_ins]
    sources = [UnitSource(f"{SYSTEM}/{path.relative_to(folder)}", path.read_bytes().decode()) for path in (folder / name, *own)]
    return UnitFiles(name, tuple(sources))


def places(files: UnitFiles, *own: str, shared: tuple[str, ...] = ()) -> Places:
    return Places(drop_in(files.unit), frozenset(own), frozenset(shared), "ada@desk")


def with_knob(files: UnitFiles, where: Places, knob: str, value: Value | None) -> UnitFiles:
    wanted = set_flag(view_command(files).argv, KNOBS[knob], value)
    changed = write_command(files, where, wanted)
    assert view_command(changed).argv == wanted
    return changed


def test_the_units_own_command_is_copied_into_the_consoles_drop_in_and_changed_there() -> None:
    files = of_case("05-unit-commented-execstart-json", "vlm.service")
    changed = with_knob(files, places(files), "draft_window", 1024)
    assert changed.sources[0] == files.sources[0]
    text = changed.text(drop_in("vlm.service"))
    assert text is not None
    assert text.startswith("# Written by ddtree-console (ada@desk)")
    old = next(line for line in files.sources[0].text.splitlines() if line.startswith("ExecStart="))
    assert text.endswith(f"[Service]\nExecStart=\n{old.replace('2048', '1024')}\n"), "quotes stay as the user wrote them"


def test_continued_lines_of_a_shell_string_stay_as_they_are() -> None:
    files = of_case("01-unit-bash-docker", "llm-gpu8.service")
    changed = with_knob(files, places(files), "tree_budget", 32)
    text = changed.text(drop_in(files.unit))
    assert text is not None
    own = files.sources[0].text
    begin, end = own.index("ExecStart=/bin/bash"), own.index("\nExecStop")
    assert text.endswith("ExecStart=\n" + own[begin:end].replace("budget 24", "budget 32") + "\n")


def test_a_flag_taken_out_of_the_middle_of_a_shell_string_leaves_the_other_lines_alone() -> None:
    files = of_case("01-unit-bash-docker", "llm-gpu8.service")
    own = files.sources[0]
    changed = with_knob(files, places(files, own.path), "draft_window", None)
    old, new = own.text.splitlines(), changed.sources[0].text.splitlines()
    assert [line for line in old if line not in new] == ["    --speculative-dflash-draft-window-size 2048 \\"]
    assert len(new) == len(old) - 1


def test_a_setting_that_is_added_and_taken_away_again_leaves_no_drop_in() -> None:
    files = of_case("01-unit-bash-docker", "llm-gpu8.service")
    added = with_knob(files, places(files), "tree_topk", 8)
    assert added.text(drop_in(files.unit)) is not None
    back = write_command(added, places(files), view_command(files).argv)
    assert back == files


def test_a_word_in_the_users_own_drop_in_is_edited_there_and_nowhere_else() -> None:
    files = of_case("07-unit-dropins", "prod-sgl.service", "10-spec.conf")
    own = files.sources[1].path
    changed = with_knob(files, places(files, own), "draft_window", 512)
    assert changed.text(drop_in(files.unit)) is None
    assert changed.sources[1].text == files.sources[1].text.replace("2048", "512")


def env_case() -> tuple[UnitFiles, str, str]:
    folder = CASES / "03-unit-envfile-args"
    common, own = "/etc/sgl/common.conf", "/etc/sgl/q30b.conf"
    texts = ((folder / "etc-sgl-common.conf").read_text(), (folder / "etc-sgl-q30b.conf").read_text())
    source = UnitSource(f"{SYSTEM}/sgl@.service", (folder / "sgl@.service").read_text())
    return UnitFiles("sgl@q30b.service", (source,), (EnvText(common, texts[0]), EnvText(own, texts[1]))), common, own


def test_a_word_in_an_environment_file_is_edited_there_across_its_continued_lines() -> None:
    files, common, own = env_case()
    changed = with_knob(files, places(files, common, own, shared=(common,)), "draft_window", 4096)
    assert changed.sources == files.sources
    assert changed.text(own) == (files.text(own) or "").replace("2048", "4096")


def test_a_new_setting_goes_beside_the_others_unless_that_file_is_shared() -> None:
    files, common, own = env_case()
    changed = with_knob(files, places(files, common, own, shared=(common,)), "block_size", 8)
    assert changed.sources == files.sources
    assert changed.text(own) == (files.text(own) or "").replace("2048", "2048 --speculative-num-draft-tokens 8")
    shared = with_knob(files, places(files, common, own, shared=(common, own)), "block_size", 8)
    assert shared.env_files == files.env_files
    text = shared.text(drop_in(files.unit)) or ""
    assert "$COMMON_OPTS ${QUOTED_OPTS} $MODEL_ARGS --" in text, "variables stay variables"


def test_a_variable_of_the_vendors_unit_is_written_out_in_the_drop_in() -> None:
    text = (
        '[Service]\nEnvironment="ARGS=--speculative-ddtree-budget 8 --port 31"\nExecStart=/bin/ddtree-launch serve $ARGS --x %i\n'
    )
    files = UnitFiles("e@1.service", (UnitSource("/usr/lib/systemd/system/e@.service", text),))
    changed = with_knob(files, places(files), "tree_budget", 16)
    assert (changed.text(drop_in(files.unit)) or "").endswith(
        "ExecStart=/bin/ddtree-launch serve --speculative-ddtree-budget 16 --port 31 --x %i\n"
    )


def test_a_variable_in_the_users_own_drop_in_is_edited_there() -> None:
    unit = UnitSource(
        "/usr/lib/systemd/system/e.service", "[Service]\nExecStart=/bin/ddtree-launch serve --speculative-ddtree-budget=${B}\n"
    )
    own = UnitSource(f"{SYSTEM}/e.service.d/b.conf", "[Service]\nEnvironment=A=1 'B=8' C=8 # ours\n")
    files = UnitFiles("e.service", (unit, own))
    changed = with_knob(files, places(files, own.path), "tree_budget", 16)
    assert changed.sources == (unit, UnitSource(own.path, own.text.replace("'B=8'", "'B=16'")))


def test_a_later_drop_in_that_is_not_to_be_edited_and_would_win_is_found_before_anything_is_written() -> None:
    unit = UnitSource(f"{SYSTEM}/e.service", "[Service]\nExecStart=/bin/ddtree-launch serve --port 1\n")
    late = UnitSource(
        "/usr/lib/systemd/system/e.service.d/zzz.conf", "[Service]\nExecStart=\nExecStart=/bin/ddtree-launch serve --port 2\n"
    )
    files = UnitFiles("e.service", (unit, late))
    with pytest.raises(UnitEditError, match=r"zzz.conf sorts after .*zz-ddtree-console.conf and sets ExecStart"):
        write_command(files, places(files), ("/bin/ddtree-launch", "serve", "--port", "3"))


def test_the_prefix_and_the_name_of_the_program_are_kept() -> None:
    text = "[Service]\nExecStart=@-/usr/bin/python3 engine -m sglang.launch_server --port 1\n"
    files = UnitFiles("e.service", (UnitSource(f"{SYSTEM}/e.service", text),))
    assert view_command(files).argv[0] == "engine"
    changed = write_command(files, places(files), ("engine", "-m", "sglang.launch_server", "--port", "a b"))
    assert (changed.text(drop_in("e.service")) or "").endswith(
        "ExecStart=@-/usr/bin/python3 engine -m sglang.launch_server --port a\\x20b\n".replace("\\x20", "\\s")
    )


def test_a_unit_whose_lines_are_lost_to_a_broken_continuation_is_not_broken_further() -> None:
    files = of_case("11-unit-continuation-hazards", "trailing-space.service")
    changed = write_command(files, places(files), (*view_command(files).argv[:-1], "--port", "1"))
    assert view_command(changed).argv[-2:] == ("--port", "1")


@pytest.mark.parametrize("name", ["comment-inside.service", "continuation-at-eof.service", "crlf.service", "inline-hash.service"])
@pytest.mark.parametrize("value", [8, None])
def test_odd_layouts_are_edited_exactly(name: str, value: int | None) -> None:
    files = of_case("11-unit-continuation-hazards", name)
    own = files.sources[0].path
    for where in (places(files), places(files, own)):
        changed = with_knob(files, where, "draft_window", value)
        others = [(i.key, i.value) for i in read_unit(changed.sources).settings.values()]
        assert others == [(i.key, i.value) for i in read_unit(files.sources).settings.values()]


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0\x85\u2028\u2029"), max_size=10)
NASTY = st.one_of(
    WORD,
    st.sampled_from(
        [
            "$",
            "$$",
            "$HOME",
            "${A}",
            "%",
            "%%",
            "%i",
            "\\",
            "\\\\",
            ";",
            "\\;",
            '"',
            "'",
            "#",
            "",
            " ",
            "a b",
            "é",
            '{"a": "b c"}',
            "-",
            "@x",
            "\t",
        ]
    ),
    st.text(st.sampled_from("$%{}\\\"' ;#aA\t"), max_size=8),
)
COMMAND = st.lists(NASTY, max_size=6).map(lambda words: ("/bin/run", *words))


@given(COMMAND)
def test_any_words_written_into_a_drop_in_are_read_back(words: tuple[str, ...]) -> None:
    files = UnitFiles(
        "e@i.service",
        (UnitSource(f"{SYSTEM}/e@.service", "[Service]\nExecStart=/bin/run\n"),),
        ambient={"HOME": "/root", "A": "x"},
    )
    changed = write_command(files, places(files), words)
    assert view_command(changed).argv == words


@example(("/bin/run", "", "0"), ("/bin/run", "#"), True, "").via("a comment mark at the start of a continued line")
@given(COMMAND, COMMAND, st.booleans(), st.sampled_from(["", "-", ":", "@"]))
def test_any_command_becomes_any_other_wherever_it_stands(
    old: tuple[str, ...], new: tuple[str, ...], own: bool, prefix: str
) -> None:
    first = "/bin/run x " if prefix == "@" else "/bin/run "
    text = (
        f"# top\n[Service]\nExecStart={prefix}{first}"
        + " \\\n  ".join(literal_word(word, variables=prefix != ":") for word in old[1:])
        + "\nUser=u\n"
    )
    path = f"{SYSTEM}/e.service"
    files = UnitFiles("e.service", (UnitSource(path, text),), ambient={"HOME": "/root", "A": "x"})
    program = view_command(files).argv[:1]
    wanted = (*program, *new[1:])
    changed = write_command(files, places(files, path) if own else places(files), wanted)
    assert view_command(changed).argv == wanted
    assert read_unit(changed.sources).setting("User") == "u"
    if not own:
        assert changed.sources[0] == files.sources[0]


SAFE = st.text(st.sampled_from("abc=-/0"), min_size=1, max_size=6)


@given(st.lists(SAFE, min_size=1, max_size=5), st.data())
def test_a_word_of_an_environment_file_is_the_only_thing_that_changes(words: list[str], data: st.DataObject) -> None:
    before, after = "# a\nX='1'\n", "\nY=2\n"
    at = data.draw(st.integers(0, len(words) - 1))
    new = data.draw(SAFE)
    files = UnitFiles(
        "e.service",
        (UnitSource(f"{SYSTEM}/e.service", "[Service]\nEnvironmentFile=/e\nExecStart=/bin/run $ARGS\n"),),
        (EnvText("/e", f'{before}ARGS="' + " \\\n ".join(words) + f'"{after}'),),
    )
    wanted = ("/bin/run", *words[:at], new, *words[at + 1 :])
    changed = write_command(files, places(files, "/e"), wanted)
    assert view_command(changed).argv == wanted
    text = changed.text("/e")
    assert text is not None
    assert text == f'{before}ARGS="' + " \\\n ".join([*words[:at], new, *words[at + 1 :]]) + f'"{after}'


def test_the_drop_in_tells_when_its_base_has_changed() -> None:
    files = of_case("05-unit-commented-execstart-json", "vlm.service")
    changed = with_knob(files, places(files), "draft_window", 1024)
    path = drop_in(files.unit)
    assert find_shadow(changed, path) is None
    assert read_marker(changed.text(path) or "") is not None
    unit = files.sources[0]
    comment = changed.with_text(unit.path, unit.text.replace("Restart=always", "# why\nRestart=no"))
    assert find_shadow(comment, path) is None, "what the drop-in does not hide is no shadow"
    shadow = find_shadow(changed.with_text(unit.path, unit.text.replace("--port 8010", "--port 8011")), path)
    assert shadow is not None
    assert shadow.words == "-8010 +8011"
