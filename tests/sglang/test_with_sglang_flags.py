"""The launcher's catalogue of SGLang's flags is what SGLang's own parser has."""

from __future__ import annotations

import argparse

from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from engine_launch.spec.flags import BY_SPELLING, Kind
from engine_launch.spec.sglang_checks import ALGORITHMS

NOT_PASSED_OVER = {"--help", "--config"}


def test_every_flag_of_sglang_is_known_and_takes_what_sglang_takes() -> None:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    own = {spelling: action for action in parser._actions for spelling in action.option_strings if spelling.startswith("--")}
    assert len(own) > 400
    assert own.keys() - BY_SPELLING.keys() == NOT_PASSED_OVER
    switches = {spelling for spelling, action in own.items() if action.nargs == 0} - NOT_PASSED_OVER
    assert switches == {spelling for spelling in own.keys() & BY_SPELLING.keys() if BY_SPELLING[spelling].kind is Kind.SWITCH}
    for action in parser._actions:
        names = {BY_SPELLING[spelling].name for spelling in action.option_strings if spelling in BY_SPELLING}
        negated = {name for name in names if name.startswith("--no-")}
        assert len(names - negated) <= 1, "two spellings of one flag are one flag here too"


def test_every_algorithm_of_sglang_is_known() -> None:
    names = {algorithm.name for algorithm in SpeculativeAlgorithm}
    assert set(ALGORITHMS) == names | {"DDTREE", "NEXTN"}
