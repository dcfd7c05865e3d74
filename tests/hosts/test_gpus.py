"""What is asked of nvidia-smi, and what is said when it is absent, fails, hangs or is slow. The tool is a script here; how the
real one writes its cells is recorded in the readers' fixtures."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_console.doctor import CheckStatus
from dflash_console.evidence.gpu import GpuRow, parse_gpus
from dflash_console.host_checks import check_gpus
from dflash_console.hosts import proc
from dflash_console.hosts.gpus import GpuHolder, NoGpuTool, Owner, read_gpus, read_holders
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.transport import HostError
from dflash_console.state import HostState
from dflash_console.watch.gpus import EVERY_S, SLOWEST_S, GpuPoller

ROW = "0, GPU-aaaaaaaa, NVIDIA H200, 90 %, 118432 MiB, 143771 MiB, 612.40 W, 61"
LOST = "Unable to determine the device handle for GPU0000:9B:00.0: Unknown Error"


class Tool:
    """An ``nvidia-smi`` that does as told."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nvidia-smi"

    def does(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{script}\n")
        self.path.chmod(0o755)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Tool(tmp_path)


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "300"])
    yield process.pid
    process.kill()
    process.wait()


async def test_every_gpu_is_read_also_when_the_tool_fails_for_one_of_them(tool: Tool) -> None:
    tool.does(f"echo '{LOST}'; echo '{ROW}'; exit 15")
    row, lost = await read_gpus(LocalTransport())
    assert (row.index, row.memory_used) == (0, 118432)
    assert (lost.index, lost.bus, lost.lost) == (1, "0000:9B:00.0", "Unknown Error")


async def test_an_older_driver_is_asked_for_the_columns_that_it_has(tool: Tool) -> None:
    refusal = 'Field "mig.mode.current" is not a valid field to query.'
    tool.does(f"case \"$1\" in\n*mig.mode*) echo '{refusal}'; echo; exit 2;;\n*) echo '{ROW}';;\nesac")
    (row,) = await read_gpus(LocalTransport())
    assert (row.index, row.power, row.ecc_errors, row.slowed) == (0, 612.4, None, ())


async def test_a_driver_that_knows_the_reasons_of_a_slowdown_by_their_new_name_alone_tells_them(tool: Tool) -> None:
    refusal = 'Field "clocks_throttle_reasons.active" is not a valid field to query.'
    row = f"{ROW}, 0x0000000000000040, 0, Disabled"
    tool.does(f"case \"$1\" in\n*throttle*) echo '{refusal}'; echo; exit 2;;\n*) echo '{row}';;\nesac")
    (found,) = await read_gpus(LocalTransport())
    assert (found.slowed, found.ecc_errors, found.mig) == (("hardware thermal slowdown",), 0, False)


async def test_one_lost_gpu_that_hides_the_others_is_a_failure_and_not_a_host_with_one_gpu(tool: Tool) -> None:
    tool.does(f"echo '{LOST}'; exit 15")
    with pytest.raises(HostError, match="Unable to determine the device handle"):
        await read_gpus(LocalTransport())


async def test_processes_that_cannot_be_asked_for_hide_no_gpus() -> None:
    async def rows() -> tuple[GpuRow, ...]:
        return parse_gpus(ROW)

    async def holders() -> None:
        raise HostError("nvidia-smi failed")

    look = await GpuPoller(rows, holders).poll()
    assert (len(look.rows), look.holders, look.problem) == (1, None, "nvidia-smi failed")


async def test_processes_are_asked_for_less_often_than_figures_but_until_there_is_an_answer() -> None:
    asked: list[str] = []
    answers: list[tuple[GpuHolder, ...] | None] = [None, (), ()]

    async def rows() -> tuple[GpuRow, ...]:
        asked.append("rows")
        return parse_gpus(ROW)

    async def holders() -> tuple[GpuHolder, ...] | None:
        asked.append("holders")
        return answers.pop(0)

    poller = GpuPoller(rows, holders)
    for _ in range(4):
        await poller.poll()
    assert asked == ["rows", "holders", "rows", "holders", "rows", "rows"]


async def test_a_host_without_the_tool_and_a_host_without_a_gpu_are_two_things(tool: Tool) -> None:
    if shutil.which("nvidia-smi") is not None:
        pytest.skip("this machine has the tool")
    with pytest.raises(NoGpuTool, match="no nvidia-smi on this machine"):
        await read_gpus(LocalTransport())
    tool.does("echo 'No devices were found'")
    assert await read_gpus(LocalTransport()) == ()


async def test_a_tool_that_may_not_be_executed_is_there_and_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n", encoding="utf-8")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match=r"nvidia-smi on this machine cannot be executed \(Permission denied\)") as told:
        await read_gpus(LocalTransport())
    assert not isinstance(told.value, NoGpuTool)


async def test_a_failure_is_told_in_the_tools_own_words(tool: Tool) -> None:
    tool.does("echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9")
    with pytest.raises(HostError, match="could not communicate with the NVIDIA driver"):
        await read_gpus(LocalTransport())


async def test_a_tool_that_hangs_is_ended_and_asked_ever_less_often(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    # As long as a shell may take on a busy machine to come to its second word.
    monkeypatch.setattr("dflash_console.hosts.gpus.TIMEOUT_S", 1.5)
    tool.does("trap '' TERM; echo $$ > $0.pid; sleep 300 & wait; sleep 300")
    poller = GpuPoller(lambda: read_gpus(LocalTransport()))
    pauses = []
    for _ in range(2):
        with pytest.raises(HostError, match=r"did not end within .* driver may hang"):
            await poller.poll()
        pauses.append(poller.pause)
        assert proc.identify(int(tool.path.with_suffix(".pid").read_text())) is None, "no process is left"
    assert EVERY_S < pauses[0] < pauses[1] <= SLOWEST_S
    monkeypatch.setattr("dflash_console.hosts.gpus.TIMEOUT_S", 60.0)
    tool.does(f"echo '{ROW}'")
    assert len((await poller.poll()).rows) == 1
    assert poller.pause < pauses[0]


async def test_a_slow_tool_is_asked_seldom(tool: Tool) -> None:
    tool.does(f"sleep 0.6; echo '{ROW}'")
    poller = GpuPoller(lambda: read_gpus(LocalTransport()))
    await poller.poll()
    assert poller.pause >= 6.0


@pytest.fixture
def engine() -> Iterator[tuple[int, int]]:
    """A main process and its child."""
    process = subprocess.Popen(
        ["sh", "-c", "sleep 300 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    yield process.pid, int(process.stdout.readline())
    os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


async def test_holders_of_gpu_memory_are_told_apart_by_their_unit_and_the_dead_are_named(
    tool: Tool, sleeper: int, engine: tuple[int, int]
) -> None:
    main, child = engine
    gone = 2**22 - 1
    rows = (f"{child}, sleep, GPU-a, 100 MiB", f"{sleeper}, sleep, GPU-a, [N/A]", f"{gone}, [Not Found], GPU-a, 69400 MiB")
    tool.does("\n".join(f"echo '{row}'" for row in ("pid, process_name, gpu_uuid, used_gpu_memory [MiB]", *rows)))
    holders = await read_holders(LocalTransport(), main)
    assert [holder.owner for holder in holders] == [Owner.OURS, Owner.OTHER, Owner.UNKNOWN]
    assert f"pid {sleeper} (sleep" in holders[1].words
    assert "unknown amount" in holders[1].words
    assert "ended" in holders[2].words
    assert "69400 MiB" in holders[2].words


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo '<html><body><h1>502 Bad Gateway</h1></body></html>'", "it begins: <html><body><h1>502 Bad Gateway</h1>"),
        ("head -c 3000 /dev/zero | tr '\\0' '\\033'", "it is empty"),
        (":", "it is empty"),
        ("printf 'i\\000n\\000d\\000e\\000x'", "it begins: index"),
        ("echo '-1, GPU-a, NVIDIA H200, 90 %'", "it begins: -1, GPU-a"),
        (f"echo '{ROW}'; echo '{ROW}'", r"\(it has GPU 0 twice\)"),
    ],
)
async def test_rubbish_with_a_good_exit_status_is_called_that_with_its_first_words(tool: Tool, script: str, words: str) -> None:
    tool.does(script)
    with pytest.raises(HostError, match=rf"answer of nvidia-smi on this machine is not understood.*{words}"):
        await read_gpus(LocalTransport())


async def test_rubbish_about_processes_is_not_taken_for_none(tool: Tool) -> None:
    for script in (":", "echo '<html>'", "echo '0, python, GPU-a, 1 MiB'"):
        tool.does(script)
        with pytest.raises(HostError, match="is not understood"):
            await read_holders(LocalTransport(), None)
    for script in ("echo 'pid, process_name, gpu_uuid, used_gpu_memory [MiB]'", "echo 'No running processes found'"):
        tool.does(script)
        assert await read_holders(LocalTransport(), None) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/no/such/interpreter\n", "No such file or directory"),
        ("#!/bin/sh\nexec /no/such/program\n", "/no/such/program"),
        (
            "#!/bin/sh\necho 'nvidia-smi: error while loading shared libraries: libnvidia-ml.so.1' >&2; exit 127\n",
            "libnvidia-ml",
        ),
    ],
)
async def test_a_tool_whose_interpreter_loader_or_library_is_missing_is_there(tool: Tool, text: str, reason: str) -> None:
    tool.path.write_text(text, encoding="utf-8")
    tool.path.chmod(0o755)
    with pytest.raises(HostError, match=rf"cannot be executed \(.*{reason}.* that it needs is missing\)") as told:
        await read_gpus(LocalTransport())
    assert not isinstance(told.value, NoGpuTool)


async def test_the_doctor_judges_the_gpus_also_where_the_processes_cannot_be_asked_for(tool: Tool) -> None:
    row = f"{ROW}, 0x0, 2, Disabled"
    denied = "echo 'Insufficient Permissions'; exit 4"
    tool.does(f"case \"$1\" in\n*compute-apps*) {denied};;\n*) echo '{row}';;\nesac")
    check = await check_gpus(LocalTransport(), HostState(host="here", unit="engine"))
    assert check.status is CheckStatus.FAILED
    assert "GPU 0 has 2 uncorrected memory errors" in check.message
    assert "which processes hold GPU memory is not known: nvidia-smi on this machine failed: Insufficient" in check.message
    tool.does(f"case \"$1\" in\n*compute-apps*) {denied};;\n*) echo '{ROW}, 0x0, 0, Disabled';;\nesac")
    check = await check_gpus(LocalTransport(), HostState(host="here", unit="engine"))
    assert (check.status, "no strangers" in check.message) == (CheckStatus.WARNING, False)
