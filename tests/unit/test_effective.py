"""What a running engine works with, for the settings that it neither prints nor computes."""

from __future__ import annotations

from dflash_console.commands.status import live_figures, status_json
from dflash_console.drift import truth_table
from dflash_console.effective import running_with
from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.reading import Known
from dflash_console.evidence.server import parse_server_info
from dflash_console.hosts.service import RunState, ServiceState
from dflash_console.state import Aged, HostState

from .evidence.support import CAPTURES

ENGINE = ("python3", "-m", "sglang.launch_server", "--model-path", "/models/target", "--speculative-algorithm=DFLASH")
GIVEN = ("--speculative-draft-model-path=/models/tiny-dflash/", "--attention-backend", "triton")
READY = "The server is fired up and ready to roll!"


def state(*flags: str, lines: tuple[str, ...] = (READY,), asked: bool = True, running: bool = True) -> HostState:
    """SGLang with these flags and, where ``asked``, the report that was recorded of one."""
    info = parse_server_info((CAPTURES / "server_info.json").read_bytes())
    service = ServiceState("u", RunState.RUNNING if running else RunState.STOPPED, "ab", 7 if running else None)
    return HostState(
        "h",
        "u",
        service=Aged(service, 0.0),
        process=Aged(ProcessEvidence(7, (*ENGINE, *flags)), 0.0),
        server=Aged(info, 0.0) if asked else None,
        log=Aged(StartLog().add_all(LogLine(line) for line in lines), 0.0),
    )


def test_status_has_the_drafter_and_the_backend_that_sglang_runs_with() -> None:
    now = state(*GIVEN)
    document = status_json(now, live_figures(now), truth_table(now))
    config, sources = document["config"], document["config_sources"]
    assert isinstance(config, dict)
    assert isinstance(sources, dict)
    # One folder, written in two ways: no reason to doubt the command line.
    assert (config["drafter"], config["attention_backend"]) == ("/models/tiny-dflash/", "triton")
    assert sources["drafter"] == "process, --speculative-draft-model-path"
    assert sources["attention_backend"] == "process, --attention-backend"


def test_what_the_server_chose_or_put_in_its_place_counts() -> None:
    for flags in ((), ("--attention-backend=flashinfer",)):
        reading = running_with(state(*flags), "attention_backend")
        assert (reading.value, reading.where) == ("triton", "/server_info attention_backend")


def test_before_the_server_answers_the_command_line_is_all_there_is() -> None:
    assert running_with(state(*GIVEN, asked=False), "attention_backend").value == "triton"
    assert running_with(state(asked=False), "attention_backend").known is Known.ABSENT


def test_nothing_is_in_effect_of_a_stopped_engine() -> None:
    assert running_with(state(*GIVEN, running=False), "drafter").known is Known.UNKNOWN


def test_what_a_server_merely_echoes_is_not_in_effect_where_it_could_say_so() -> None:
    assert running_with(state("--speculative-draft-window-size=64"), "draft_window").known is Known.UNKNOWN
