"""Units that run an engine are found on a real systemd, however they start it."""

from __future__ import annotations

import asyncio

import pytest

from dflash_console.hosts.systemd_find import find_units

from .systemd_rig import Rig, UserTransport, unit_text

pytestmark = pytest.mark.slow


async def test_engines_are_found_by_command_by_variable_by_process_and_running_ones_come_first(rig: Rig) -> None:
    rig.unit("f-plain.service", unit_text("fplain", "--port 31001"))
    rig.unit(
        "f-shell.service", "[Service]\nExecStart=/bin/bash -lc 'exec docker run x python3 -m sglang.launch_server --port 1'\n"
    )
    rig.unit("f-vars.service", "[Service]\nEnvironmentFile=/etc/f-vars.env\nExecStart=/usr/bin/env $CMD --port 1\n")
    rig.write("/etc/f-vars.env", "CMD='python3 -m sglang.launch_server'\n")
    rig.write("/usr/local/bin/f-wrapper", "#!/bin/sh\nddtree-launch serve fwrap --port 2\n", mode=0o755)
    rig.unit("f-script.service", "[Service]\nExecStart=/usr/local/bin/f-wrapper\n")
    rig.unit("f-instance@.service", unit_text("%i", "--port 3"))
    rig.unit("f-not.service", "[Service]\nExecStart=/bin/sleep 1000 sglang\n")
    rig.unit("f-masked.service", unit_text("x"))
    rig.host.exec("sh", "-c", "ln -sf /dev/null /etc/systemd/system/f-masked.service; systemctl daemon-reload")
    rig.host.exec("systemctl", "start", "f-script", "f-instance@a", "f-not")
    await asyncio.sleep(0.5)
    try:
        found = await find_units(UserTransport(rig.host))
        units = {unit.unit: unit for unit in found if unit.unit.startswith("f-")}
        assert set(units) == {"f-plain.service", "f-shell.service", "f-vars.service", "f-script.service", "f-instance@a.service"}
        assert units["f-script.service"].how == "an engine runs in it, started by a script"
        assert [unit.active for unit in found] == sorted((unit.active for unit in found), reverse=True)
    finally:
        rig.host.exec("sh", "-c", "systemctl stop 'f-instance@a'")
