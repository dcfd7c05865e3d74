"""A command line in words."""

from __future__ import annotations

from dflash_console.evidence.command import CommandForm
from dflash_console.evidence.explain import explain

from .support import container_command, spelled_command


def test_a_container_in_a_shell_string_is_explained_without_its_key() -> None:
    explained = explain(container_command())
    assert explained.form is CommandForm.SGLANG_MODULE
    by_name = {flag.spelling: flag for flag in explained.flags}
    assert by_name["--speculative-ddtree-budget"].text == "24"
    assert by_name["--speculative-ddtree-budget"].title == "Tree budget"
    assert by_name["--api-key"].text == "******"
    assert len(explained.remarks) == 3
    assert "old spelling" in explained.remarks[2]
    assert "secret/key" not in repr(explained)


def test_shortened_and_repeated_flags_are_remarked_on() -> None:
    explained = explain(spelled_command())
    blocks = [(flag.text, flag.overridden) for flag in explained.flags if flag.knob == "block_size"]
    assert blocks == [("16", True), ("8", False)]
    assert any("--speculative-algo is a prefix of --speculative-algorithm" in remark for remark in explained.remarks)
    assert any("given 2 times" in remark for remark in explained.remarks)


def test_a_wrapper_script_is_named() -> None:
    explained = explain(["/usr/bin/env", "bash", "/srv/sgl/bin/start.sh"])
    assert explained.form is None
    assert "/srv/sgl/bin/start.sh" in explained.remarks[0]
