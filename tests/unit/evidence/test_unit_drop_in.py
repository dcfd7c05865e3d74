"""The console's drop-in over a unit that changes: what is carried over, and what is a conflict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.unit import UnitSource
from dflash_console.evidence.unit_command import UnitFiles, view_command
from dflash_console.evidence.unit_drop_in import (
    BaseCommand,
    RebaseError,
    carry_over,
    drop_in_text,
    find_shadow,
    read_marker,
    rebase,
)
from dflash_console.evidence.unit_edit import write_command
from dflash_console.evidence.unit_step import Places

UNIT = "/etc/systemd/system/e.service"
DROP_IN = "/etc/systemd/system/e.service.d/zz-ddtree-console.conf"


def unit(command: str) -> UnitFiles:
    return UnitFiles("e.service", (UnitSource(UNIT, f"[Service]\nExecStart={command}\n"),))


def changed(command: str, *words: str) -> UnitFiles:
    return write_command(unit(command), Places(DROP_IN), words)


def test_a_rebase_takes_the_units_change_and_keeps_the_drop_ins() -> None:
    files = changed("/bin/e --port 1 --budget 8", "/bin/e", "--port", "1", "--budget", "16", "--top-k", "4")
    files = files.with_text(UNIT, "[Service]\nExecStart=/bin/e --port 2 --budget 8 --tp %i\n")
    assert find_shadow(files, DROP_IN) is not None
    after = rebase(files, DROP_IN, "ada")
    assert find_shadow(after, DROP_IN) is None
    command = view_command(after).command
    assert command is not None
    assert command.argv == ("/bin/e", "--port", "2", "--budget", "16", "--top-k", "4", "--tp", "%i")


def test_a_rebase_of_words_that_both_changed_is_refused() -> None:
    files = changed("/bin/e --budget 8", "/bin/e", "--budget", "16").with_text(UNIT, "[Service]\nExecStart=/bin/e --budget 12\n")
    with pytest.raises(RebaseError, match="both changed '8'"):
        rebase(files, DROP_IN, "ada")


@pytest.mark.parametrize("damage", ["# base-sha256: 00", "# base: /bin/other"])
def test_a_drop_in_whose_comment_was_edited_is_not_rebased(damage: str) -> None:
    files = changed("/bin/e", "/bin/e", "x")
    text = files.text(DROP_IN) or ""
    kept = [
        line
        for line in text.splitlines()
        if not line.startswith(damage.partition(" ")[2].partition(" ")[0]) and "base" not in line
    ]
    files = files.with_text(DROP_IN, "\n".join([damage, *kept]))
    with pytest.raises(RebaseError, match="not known"):
        rebase(files, DROP_IN, "ada")


WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\x85\u2028\u2029"), max_size=5), max_size=5).map(
    tuple
)


@given(WORDS, WORDS)
def test_changes_carried_over_to_an_unchanged_base_are_the_changes(base: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert carry_over(base, new, base) == new
    assert carry_over(base, base, new) == new


@given(WORDS, WORDS)
def test_the_comment_gives_back_the_base_it_was_made_from(base: tuple[str, ...], new: tuple[str, ...]) -> None:
    said = (BaseCommand("@-", ("/bin/e", *base)),)
    marker = read_marker(drop_in_text("e.service", "ada\n[Service]", said, ["/bin/e"]))
    assert marker is not None
    assert marker.base == said
