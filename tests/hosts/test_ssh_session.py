"""The commands against a real engine, as a real unit, on a real host over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import sys
from pathlib import Path

import httpx
import pytest

from dflash_console.config import Config, HostEntry
from dflash_console.session import NoSuchUnit, SeveralUnits, open_session
from tests.hosts.sessions import paths_under
from tests.hosts.ssh_home import SshHome
from tests.ports import free_port
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def gpu(boot_host: BootHost, ssh_home: SshHome) -> TestHost:
    host = boot_host("gpu-a")
    ssh_home.add_host("gpu", host)
    return host


async def console(tmp_path: Path, *words: str, stdin: int | None = None) -> tuple[int, str, str]:
    environment = {**os.environ, "DDTREE_HOME": str(tmp_path / "console"), "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dflash_console", *words),
        env=environment,
        stdin=stdin if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE if stdin is None else stdin,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 150)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), (err or b"").decode()


def answer_when_asked(master: int, answer: bytes) -> str:
    """Answer the question at a terminal; all that was shown there until nobody had it open any more."""
    shown = b""
    with contextlib.suppress(OSError):  # What Linux says at the end.
        while part := os.read(master, 65_536):
            shown += part
            if answer and b"(yes/no)" in shown:
                os.write(master, answer)
                answer = b""
    return shown.decode()


async def healthy(engine: httpx.AsyncClient) -> bool:
    try:
        return (await engine.get("/health")).is_success
    except httpx.TransportError:
        return False


async def test_the_engine_on_a_host_is_found_and_its_status_read(gpu: TestHost, tmp_path: Path) -> None:
    port = free_port()
    unit = gpu.install_engine(port=port)
    gpu.exec("systemctl", "start", unit)
    async with asyncio.timeout(240), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as engine:
        while not await healthy(engine):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    code, out, err = await console(tmp_path, "--host", "gpu", "status", "--json")
    assert code == 0, err
    status = json.loads(out)
    assert status["engine"]["ready"] is True
    assert (status["host"], status["unit"], status["service"]["state"]) == ("gpu", unit, "running")
    assert (
        str(status["service"]["main_pid"])
        == gpu.exec("systemctl", "show", "-p", "MainPID", "--value", unit).stdout.decode().strip()
    )
    assert status["config"]["tree_budget"] == 8
    code, out, err = await console(tmp_path, "--host", "gpu", "hosts", "--json")
    assert code == 0, err
    assert json.loads(out)["hosts"][0]["state"] == "running"


async def test_without_an_engine_and_with_several_the_user_is_told(gpu: TestHost, tmp_path: Path) -> None:
    paths, config = paths_under(tmp_path), Config(hosts={"prod": HostEntry("gpu")})
    with pytest.raises(NoSuchUnit, match="no unit on prod has an engine"):
        await open_session("prod", config=config, paths=paths)
    gpu.install_engine(port=free_port(), unit="one.service")
    with pytest.raises(NoSuchUnit, match=r"prod has no unit called nope\.service; units with an engine: one\.service"):
        await open_session("prod", "nope", config=config, paths=paths)
    gpu.install_engine(port=free_port(), unit="two.service")
    with pytest.raises(SeveralUnits, match=r"one\.service, two\.service"):
        await open_session("prod", config=config, paths=paths)
    session = await open_session("prod", "two", config=config, paths=paths)
    assert (session.host, session.unit, session.embedded) == ("prod", "two.service", False)
    await session.close()
    gpu.exec("sh", "-c", "ln -s two.service /etc/systemd/system/second.service; systemctl daemon-reload")
    session = await open_session("prod", "second", config=config, paths=paths)
    assert session.unit == "two.service", "by an alias everybody meets at the same lock and the same files"
    await session.close()


async def test_an_unknown_key_is_asked_about_only_where_somebody_can_answer(
    gpu: TestHost, ssh_home: SshHome, tmp_path: Path
) -> None:
    gpu.install_engine(port=free_port())
    ssh_home.forget()
    code, _, err = await console(tmp_path, "--host", "gpu", "status")
    assert code == 1
    assert "is not known yet" in err
    assert "connect once with ssh" in err
    assert "Traceback" not in err
    for answer, expected in ((b"no\n", 1), (b"yes\n", 0)):
        master, terminal = pty.openpty()
        answering = asyncio.create_task(asyncio.to_thread(answer_when_asked, master, answer))
        try:
            code, out, _ = await console(tmp_path, "--host", "gpu", "status", stdin=terminal)
        finally:
            os.close(terminal)
            asked = await answering
            os.close(master)
        assert code == expected, (out, asked)
        assert "is not known yet" in asked
        assert ssh_home.known_hosts.exists() is (code == 0)
    assert gpu.host_key() in ssh_home.known_hosts.read_text()


async def test_a_program_that_this_user_may_not_see_is_not_said_to_be_gone(
    gpu: TestHost, ssh_home: SshHome, tmp_path: Path
) -> None:
    gpu.add_user("ada")
    ssh_home.add_host("as-ada", gpu, user="ada")
    gpu.exec(
        "sh", "-c", "install -D /bin/sleep /opt/hidden/bin/python && chmod 700 /opt/hidden && ln -s /opt/hidden/bin /opt/shown"
    )
    said = {}
    for name, program in (("there", "/opt/hidden/bin/python"), ("linked", "/opt/shown/python"), ("gone", "/opt/gone/python")):
        gpu.install_unit(f"{name}.service", f"[Service]\nExecStart={program} -m engine_launch serve\n")
        for host in ("gpu", "as-ada"):
            _, out, _ = await console(tmp_path, "--host", host, "--unit", name, "doctor", "--json")
            said[name, host] = next(c["status"] for c in json.loads(out)["checks"] if c["name"] == "engine program")
    assert said == {
        ("there", "gpu"): "ok",
        ("linked", "gpu"): "ok",
        ("gone", "gpu"): "failed",
        ("there", "as-ada"): "unknown",
        ("linked", "as-ada"): "unknown",
        ("gone", "as-ada"): "failed",
    }
