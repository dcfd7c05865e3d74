"""Keys in plans: they are written where they were set, and shown and stored nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_console.apply.revert import backwards
from dflash_console.evidence.file_edits import reverse_edits
from dflash_console.evidence.secrets import MASK
from dflash_console.knobs import KnobError, find_knob
from dflash_console.plan import Mode
from dflash_console.proof import Proof, StartEvidence, prove

from .plan_cases import BASE, new_text, plan, state


def test_keys_never_show() -> None:
    command = (*BASE, "--api-key", "sk-1234567")
    made = plan(state(command, environment={"HF_TOKEN": "hf_abcdef"}), {"flag:--log-level": "info"}, Mode.RESTART)
    shown = made.diff + " ".join(made.shown_command) + repr(made)
    assert "sk-1234567" not in shown
    assert "hf_abcdef" not in shown
    assert "sk-1234567" in new_text(made), "the file itself keeps it"


def test_a_short_key_is_masked_too() -> None:
    made = plan(state((*BASE, "--api-key", "k")), {"flag:--log-level": "info"}, Mode.RESTART)
    assert '"k"' not in made.diff


def test_a_key_that_is_set_is_in_the_text_to_be_written_and_nowhere_that_is_shown_or_stored() -> None:
    made = plan(state(), {"flag:--api-key": "sk-top-secret"}, Mode.RESTART)
    assert "sk-top-secret" in new_text(made)
    assert "sk-top-secret" not in repr(made)
    assert [change.new for change in made.changes] == [MASK]
    argv = StartEvidence(None, None, made.command)
    assert prove(find_knob("flag:--api-key"), MASK, argv).proof is Proof.PROVEN
    back = backwards(made, made.command, reverse_edits(made.edits))
    twice = backwards(replace(back, old_command=made.command), made.command, reverse_edits(made.edits))
    assert "sk-top-secret" not in f"{back!r}{twice!r}"


def test_the_mask_of_a_key_cannot_be_set_as_the_key() -> None:
    with pytest.raises(KnobError, match="not shown"):
        find_knob("flag:--api-key").parse(MASK)
