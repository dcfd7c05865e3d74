"""Make the documentation's pictures from the running program, with real engines behind it.

``python -m docs.make_pictures [dashboard | hosts]`` writes PNG files to ``docs/pictures``: with ``dashboard`` those of one
engine on this machine, with ``hosts`` the one of several hosts, without a word all. Engines start in a folder of their own, get
prompts and changes, and are stopped again; that takes two minutes on a machine that is quiet, and looks poor on one that is
not. The hosts are real ones, booted for the picture (:mod:`tests.testhost`), which takes root; without it their picture stays
as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_console.config import Config, load_config
from dflash_console.hosts.transport import LinkStatus
from dflash_console.load.suite import load_suite
from dflash_console.paths import default_paths
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.fleet_live import LiveFleet
from dflash_console.tui.prompt_runner import make_requests
from dflash_console.tui.run import open_link
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.widgets.prompt_dock import PromptDock
from engine_launch.embedded.model_files import CACHE_VARIABLE, cache_folder
from tests.ports import free_port
from tests.testhost import TestHost, missing_requirements

from .picture_files import save

if TYPE_CHECKING:
    from textual.pilot import Pilot

SIZE = (120, 36)
HOSTS_SIZE = (120, 17)
PATIENCE = 180.0
HOSTS_BUSY_S = 100.0
"""Long enough for a curve in the table of hosts."""
DDTREE = (
    "--speculative-algorithm",
    "DDTREE",
    "--speculative-ddtree-topk",
    "4",
    "--enable-metrics",
    "--speculative-ddtree-budget",
)


async def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait for something to show; ends the program with what was expected when it does not."""
    for _ in range(int(PATIENCE / 0.1)):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"this did not happen within {PATIENCE:.0f} s: {what}")


async def console(*words: str) -> None:
    """A headless command of the console's, its output left out."""
    null = asyncio.subprocess.DEVNULL
    command = (sys.executable, "-m", "dflash_console", *words)
    done = await asyncio.create_subprocess_exec(*command, stdin=null, stdout=null, stderr=null)
    try:
        await done.wait()
    except asyncio.CancelledError:
        done.terminate()
        await done.wait()
        raise


@contextlib.asynccontextmanager
async def busy(*host: str) -> AsyncIterator[None]:
    """Short prompts about code, one after the other, while the block runs."""

    async def fire() -> None:
        while True:
            await console(*host, "prompt", "--suite", "coding", "--n", "1", "--max-tokens", "160")

    task = asyncio.create_task(fire())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.asynccontextmanager
async def busy_here(app: ConsoleApp) -> AsyncIterator[None]:
    """The same from the console that is in the picture: starting another takes a share of the CPU that the plot would show."""

    async def fire() -> None:
        assert app.link is not None
        for item in itertools.cycle(load_suite("coding").prompts):
            await app.link.send(make_requests(item.text, "1", "0", "160"), lambda _: None, lambda _: None)

    task = asyncio.create_task(fire())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def change(app: ConsoleApp, pilot: Pilot[None], **settings: str | int) -> None:
    """Apply settings as somebody at the keyboard would, and leave the report on the screen."""
    app.operations.propose(settings)
    # One that was slow to come takes no key before the keyboard has rested.
    await wait(lambda: isinstance(app.screen, PlanScreen) and app.screen.takes_answers, "the plan")
    # Looked for from before the key on: while prompts stream, a change may be over when the press returns.
    begun = asyncio.create_task(wait(lambda: bool(app.model.busy), "the change begun"))
    await pilot.press("enter")
    await begun
    await wait(lambda: not app.model.busy, "the change")
    await pilot.pause(0.3)


async def take_dashboard(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """Plain decoding for the baseline, then DDTREE by a restart, then a larger tree while prompts run."""
    await wait(lambda: app.model.state is not None and bool(app.model.state.ready) and not app.model.busy, "a ready engine")
    await pilot.press("p")
    await prompt(app, pilot)
    await pilot.press("escape")
    await change(app, pilot, algorithm="DDTREE", tree_budget=8)
    save(app, "apply")
    await pilot.press("escape")
    async with busy_here(app):
        await pilot.pause(17)
        await change(app, pilot, tree_budget=16)
        await pilot.press("escape")
        await pilot.pause(16)
    await pilot.press("p", "enter")
    await pilot.pause(2.0)  # while its answer streams
    save(app, "dashboard")
    await prompt_ended(app)
    await pilot.press("escape")


async def prompt(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """The example prompt in the dock, to its end."""
    await pilot.press("enter")
    await wait(lambda: app.pane.query_one(PromptDock).running, "a prompt")
    await prompt_ended(app)


async def prompt_ended(app: ConsoleApp) -> None:
    await wait(lambda: not app.pane.query_one(PromptDock).running, "its answer")


async def take_playground(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """An answer in the playground, its comparison with plain decoding, and a tree."""

    def subtitle() -> str:
        return str(app.query_one("#answer").border_subtitle)

    await pilot.press("5", "enter")
    await wait(lambda: "verifies" in str(app.query_one("#answer").border_title), "an answer")
    await pilot.pause(0.5)
    save(app, "playground")
    await pilot.press("c")
    await wait(
        lambda: "plain: same" in subtitle() or "plain: parts" in subtitle() or "plain: another" in subtitle(),
        "the comparison with plain decoding",
    )
    await pilot.press("C")
    await wait(lambda: len(app.screen_stack) == 2, "the comparison")
    await pilot.pause(0.5)
    save(app, "compare")
    await pilot.press("escape", "T")
    await wait(lambda: len(app.screen_stack) == 2, "the tree")
    await pilot.pause(0.5)
    save(app, "tree")
    await pilot.press("escape")


async def dashboard() -> None:
    """The pictures of one engine on this machine. Screens that show this machine's paths are left out."""
    paths = default_paths()
    try:
        await console("start", "--yes")
        await console("apply", "--set", "algorithm=PLAIN", "--restart", "--yes")
        app = ConsoleApp(lambda: open_link(Config(), paths, None, None))
        async with app.run_test(size=SIZE) as pilot:
            await take_dashboard(app, pilot)
            await take_playground(app, pilot)
    finally:
        await console("stop", "--yes")


def know(home: Path, hosts: list[TestHost]) -> None:
    """SSH and configuration files by which the console knows the hosts by name."""
    notes = {"gpu-a": "eight GPUs, first rack", "gpu-b": "for trials", "gpu-c": "eight GPUs, second rack"}
    (home / ".ssh").mkdir(mode=0o700)
    blocks = [
        f"Host {host.name}\n HostName 127.0.0.1\n Port {host.port}\n User root\n IdentityFile {host.key}\n" for host in hosts
    ]
    (home / ".ssh/config").write_text("".join(blocks))
    (home / ".ssh/known_hosts").write_text("".join(host.known_hosts_line() for host in hosts))
    config = default_paths().config_file
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("".join(f'[hosts.{host.name}]\nunit = "ddtree"\nnote = "{notes[host.name]}"\n' for host in hosts))


async def hosts(home: Path) -> None:
    """All hosts at a glance: one busy, one whose unit file was changed under the engine, one that is cut off."""
    with contextlib.ExitStack() as stack:
        gpu_a, gpu_b, gpu_c = (stack.enter_context(TestHost.boot(name)) for name in ("gpu-a", "gpu-b", "gpu-c"))
        ports = [free_port() for _ in range(3)]
        for host, port, budget in zip((gpu_a, gpu_b, gpu_c), ports, ("16", "8", "8"), strict=True):
            host.exec("systemctl", "start", host.install_engine(*DDTREE, budget, port=port))
        know(home, [gpu_a, gpu_b, gpu_c])
        paths = default_paths()
        config = load_config(paths.config_file).config
        fleet = LiveFleet(config, paths)
        app = ConsoleApp(lambda: fleet.open("gpu-a", None), host="gpu-a", fleet=fleet)
        async with app.run_test(size=HOSTS_SIZE) as pilot:
            await wait(lambda: app.model.drift.words == "✓ confirmed", "gpu-a confirmed")
            await pilot.press("7")
            # The host on the other screens is not looked at twice.
            await wait(
                lambda: sum(view.state is not None and view.state.ready for view in fleet.views()) == 2, "the other engines"
            )
            await pilot.press("up")
            async with busy("--host", "gpu-a"), busy("--host", "gpu-b"), busy("--host", "gpu-c"):
                await pilot.pause(HOSTS_BUSY_S)
                gpu_b.install_engine(*DDTREE, "12", port=ports[1])
                gpu_c.cut()
                await wait(
                    lambda: any(view.link is not None and view.link.status is LinkStatus.LOST for view in fleet.views()),
                    "gpu-c cut off",
                )
                await pilot.pause(8)
                save(app, "hosts")
            gpu_c.heal()


async def main(wanted: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ddtree-") as folder:
        # The model stays where it is; all else is the pictures' own.
        os.environ[CACHE_VARIABLE] = str(cache_folder())
        os.environ.pop("SSH_AUTH_SOCK", None)
        os.environ["DDTREE_HOME"] = os.environ["HOME"] = folder
        if wanted in ("dashboard", ""):
            await dashboard()
        if wanted in ("hosts", ""):
            if reason := missing_requirements():
                print(f"no picture of hosts: {reason}", file=sys.stderr)
            else:
                await hosts(Path(folder))


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:])))
