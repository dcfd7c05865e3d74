"""Opening a host: the embedded unit is made on first use, units are found, and what cannot be managed is said in one sentence."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

from dflash_console.commands.output import Output
from dflash_console.commands.status import live_figures, print_status, status_json
from dflash_console.config import Config, HostEntry
from dflash_console.drift import truth_table
from dflash_console.hosts.service import RunState
from dflash_console.hosts.transport import HostError
from dflash_console.hosts.unit_file import new_unit_file
from dflash_console.session import EMBEDDED_UNIT, NoSuchHost, SeveralUnits, open_session
from engine_launch.commands import serve
from engine_launch.spec.checks import EngineKind

from .conftest import MakeUnit
from .sessions import paths_under


async def test_the_embedded_units_file_is_written_on_first_use_and_kept_from_then_on(tmp_path: Path) -> None:
    paths = paths_under(tmp_path)
    session = await open_session(paths=paths)
    assert (session.host, session.unit, session.embedded) == ("embedded", EMBEDDED_UNIT, True)
    state = session.watcher.state
    assert state.service is not None
    assert state.service.value.state is RunState.STOPPED
    assert state.config is not None
    assert state.config.value.command[1:6] == ("-m", "engine_launch", "serve", "--engine", "embedded")
    file = paths.service(EMBEDDED_UNIT) / "service.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    await session.close()
    again = await open_session(paths=paths)
    await again.close()
    assert file.read_text() == text


async def test_the_only_unit_is_taken_and_several_have_to_be_chosen_from(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(name="one")
    session = await open_session(paths=paths_under(tmp_path))
    assert session.unit == "one"
    await session.close()
    make_unit(name="two")
    with pytest.raises(SeveralUnits, match="one, two; choose one with --unit") as caught:
        await open_session(paths=paths_under(tmp_path))
    assert caught.value.units == ("one", "two")
    session = await open_session(unit="two", paths=paths_under(tmp_path))
    assert session.unit == "two"
    await session.close()


@pytest.mark.parametrize(
    ("command", "gpu", "embedded"),
    [
        # Without --engine the launcher takes SGLang where it finds it and a GPU.
        (("python3", "-m", "engine_launch", "serve", "--port", "1"), False, True),
        (("python3", "-m", "engine_launch", "serve", "--port", "1"), True, False),
        (("ddtree-launch", "serve", "--engine", "auto", "--port", "1"), False, True),
        (("ddtree-launch", "serve", "--engine", "auto", "--port", "1"), True, False),
        (("ddtree-launch", "serve", "--engine=embedded", "--port", "1"), True, True),
        (("ddtree-launch", "serve", "--engine", "sglang", "--port", "1"), False, False),
        (("sh", "-c", "ddtree-launch serve --engine $ENGINE --port 1"), False, False),
        (("python3", "-m", "sglang.launch_server", "--model-path", "/models/target", "--port", "1"), False, False),
        (("/opt/start.sh",), False, False),
    ],
)
async def test_a_unit_of_this_machine_is_the_embedded_engines_only_where_its_command_is_certain_to_start_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], gpu: bool, embedded: bool
) -> None:
    monkeypatch.setattr("engine_launch.spec.checks.GPU_DEVICES", (str(tmp_path / "none"), *(["/dev/null"] if gpu else [])))
    paths = paths_under(tmp_path)
    paths.service("gpu").mkdir(parents=True)
    (paths.service("gpu") / "service.toml").write_text(new_unit_file(command, description="test"))
    session = await open_session(unit="gpu", paths=paths)
    try:
        # The host is this machine either way: there is no link that could break.
        assert (session.host, session.embedded, session.watcher.state.embedded) == ("embedded", True, embedded)
        state = session.watcher.state
        assert status_json(state, live_figures(state), truth_table(state))["embedded_engine"] is embedded
        said = io.StringIO()
        print_status(Output(json_wanted=False, stdout=said), state, live_figures(state), truth_table(state))
        assert ("a small model on this CPU" in said.getvalue(), "(this machine)" in said.getvalue()) == (embedded, not embedded)
    finally:
        await session.close()


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("sglang", [False, True])
@pytest.mark.parametrize("engine", [(), ("--engine", "auto"), ("--engine", "embedded"), ("--engine", "sglang")])
async def test_what_counts_as_the_embedded_engine_is_what_the_launcher_starts_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: tuple[str, ...], sglang: bool, gpu: bool
) -> None:
    devices = (str(tmp_path / "none"), *(["/dev/null"] if gpu else []))
    for module in ("spec.checks", "commands.serve_sglang"):
        monkeypatch.setattr(f"engine_launch.{module}.GPU_DEVICES", devices)
    monkeypatch.setattr(serve, "has_sglang", lambda: sglang)
    paths = paths_under(tmp_path)
    paths.service("one").mkdir(parents=True)
    command = ("ddtree-launch", "serve", *engine, "--port", "1")
    (paths.service("one") / "service.toml").write_text(new_unit_file(command, description="test"))
    session = await open_session(unit="one", paths=paths)
    try:
        kind, _ = serve.split_engine(command[2:])
        starts = serve.found_engine(kind) is EngineKind.EMBEDDED
        counts = session.watcher.state.embedded
        assert starts or not counts, "no server is taken for the embedded engine, nor started unasked"
        # Whether SGLang is installed beside the unit's launcher is not known to the console.
        assert counts == starts or (gpu and not sglang and engine in ((), ("--engine", "auto")))
    finally:
        await session.close()


async def test_a_part_that_cannot_be_closed_keeps_no_other_one_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await open_session(paths=paths_under(tmp_path))

    async def fail() -> None:
        raise HostError("the port cannot be closed")

    monkeypatch.setattr(session.link, "close", fail)
    with pytest.raises(HostError, match="the port cannot be closed"):
        await session.close()
    assert "history" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("name", ["ro ot@gpu-a", "gpu-a"])
async def test_an_address_that_is_none_is_said(name: str, tmp_path: Path) -> None:
    config = Config(hosts={"gpu-a": HostEntry("ssh://gpu-a:port")})
    with pytest.raises(NoSuchHost, match="gpu-a"):
        await open_session(name, config=config, paths=paths_under(tmp_path))


@pytest.mark.parametrize("unit", ["nothing", "../x", ".hidden"])
async def test_a_unit_that_is_not_there_is_named(unit: str, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no unit"):
        await open_session(unit=unit, paths=paths_under(tmp_path))


async def test_a_state_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with pytest.raises(HostError, match="cannot"):
        await open_session(paths=paths_under(tmp_path))
