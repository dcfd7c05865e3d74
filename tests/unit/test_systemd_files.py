"""Which of a unit's files may be edited where they stand."""

from __future__ import annotations

from pathlib import Path

from dflash_console.evidence.command import set_flag
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.systemd_config import UnitConfiguration
from dflash_console.hosts.systemd_files import UnitFileStore
from dflash_console.hosts.systemd_manager import Elevation, Manager, ManagerFacts
from dflash_console.knobs import KNOBS

UNIT = "sgl.service"
ENGINE = "/usr/bin/python3 -m sglang.launch_server --speculative-draft-window-size 1024"


class Folder(Manager):
    """A manager that looks for units in one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalTransport(), "system")
        self._facts = ManagerFacts(0, "root", "/root", "/run/user/0", (str(folder),), {}, Elevation(()))


async def edited(folder: Path) -> list[str]:
    """Names of the files that another window is written to."""
    found = await UnitFileStore(Folder(folder), UNIT).find((UNIT,), str(folder / UNIT))
    configuration = UnitConfiguration(UNIT, f"{folder}/{UNIT}.d/zz-ddtree-console.conf", "me", found)
    edits = configuration.edits(set_flag(configuration.command(), KNOBS["draft_window"], 512))
    return [Path(edit.path).name for edit in edits]


async def test_a_drop_in_that_is_a_link_is_not_edited_for_others_may_have_it_too(tmp_path: Path) -> None:
    (tmp_path / UNIT).write_text("[Service]\nExecStart=/bin/true\n")
    own = tmp_path / f"{UNIT}.d/10-spec.conf"
    own.parent.mkdir()
    own.write_text(f"[Service]\nExecStart=\nExecStart={ENGINE}\n")
    assert await edited(tmp_path) == ["10-spec.conf"]
    shared = own.rename(tmp_path / "shared")
    own.symlink_to(shared)
    assert await edited(tmp_path) == ["zz-ddtree-console.conf"]
