"""The console, headless, against SGLang with the plugin and against stock DFLASH: applied, confirmed, prompted, put back.

The servers are services of this machine that the console itself starts, so each ``apply`` with a restart is a real one. What each
command printed is kept in the result file: recordings for the console's own tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.gpu.context import Context, Findings, Part
from tests.gpu.records import Check, Json, judged
from tests.gpu.servers import ServerSpec
from tests.gpu.setups import ROOM, chain_flags, graphs, tree_flags

TREE_UNIT, CHAIN_UNIT = "gpu-tree", "gpu-chain"
PORTS = {TREE_UNIT: 32000, CHAIN_UNIT: 32200}
PROMPTS_PORT = 22600
"""Another one, so that both parts may run at the same time."""
KEPT = 6000
"""Characters of each command's output that go into the result file."""
NOT_CONFIRMED = 4
DRIFT_FOUND = 3
HOME_VARIABLE = "DDTREE_HOME"
KEPT_NAMES = ("PYTHONPATH", "PATH", "HOME", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "VIRTUAL_ENV", "XDG_CACHE_HOME", "TMPDIR")
KEPT_PREFIXES = ("CUDA", "NCCL_", "NVSHMEM_", "NVIDIA_", "TORCH_", "TRITON_", "SGLANG_", "DDTREE_CACHE")
"""Environment that the services get."""


@dataclass
class Console:
    """``ddtree-console --unit UNIT``, with files of its own."""

    home: Path
    unit: str
    said: list[dict[str, Json]] = field(default_factory=list)

    def __call__(self, *words: str, seconds: float = 300.0) -> tuple[int, Json]:
        """Run one command with ``--json``; its exit code and what it printed (text where that is no JSON)."""
        command = [sys.executable, "-m", "dflash_console", "--unit", self.unit, "--json", *words]
        begun = time.monotonic()
        environment = {**os.environ, HOME_VARIABLE: str(self.home)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
        self.said.append(
            {
                "command": " ".join(("ddtree-console", "--unit", self.unit, "--json", *words)),
                "exit": done.returncode,
                "seconds": round(time.monotonic() - begun, 1),
                "stdout": done.stdout[-KEPT:],
                "stderr": done.stderr[-1000:],
            }
        )
        print(f"    {self.unit}: {' '.join(words)} → {done.returncode} ({time.monotonic() - begun:.0f} s)", flush=True)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, done.stdout


def at(value: Json, *path: str | int) -> Json:
    """A member of a JSON value; ``None`` where there is none."""
    for key in path:
        if isinstance(value, Mapping) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, Sequence) and not isinstance(value, str) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def write_unit(home: Path, unit: str, command: Sequence[str]) -> None:
    """A service of this machine under the console's folder ``home``."""
    # Imported here: the other parts must run where the console's packages are not installed.
    from dflash_console.hosts.unit_file import new_unit_file
    from dflash_console.paths import default_paths

    folder = default_paths({HOME_VARIABLE: str(home)}).service(unit)
    folder.mkdir(parents=True)
    # The unit's environment is what it names: SGLang would not find itself, nor the driver's libraries, nor what NCCL may use.
    keep = {name: value for name, value in os.environ.items() if name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)}
    text = new_unit_file(command, description=f"GPU check: {unit}", environment=keep)
    (folder / "service.toml").write_text(text, encoding="utf-8")


def sglang_commands(store: Path, ports: Mapping[str, int] = PORTS) -> dict[str, list[str]]:
    """What the services run that have a port."""
    flags = {TREE_UNIT: tree_flags(store / "drafter", widths="9,17,33", most=32), CHAIN_UNIT: chain_flags(store / "drafter")}
    return {
        unit: ServerSpec(unit, store / "target", (*ROOM, *graphs(1, 8), *flags[unit])).command(port)
        for unit, port in ports.items()
    }


def prompts_command(store: Path) -> dict[str, list[str]]:
    """What the service of :func:`prompts` runs."""
    return sglang_commands(store, {TREE_UNIT: PROMPTS_PORT})


def doctor(command: Sequence[str], said: list[dict[str, Json]]) -> Check:
    """``ddtree-launch doctor`` on this machine, with the flags of ``command`` (which starts a server)."""
    flags = command[command.index("--model-path") :] if "--model-path" in command else []
    words = ("doctor", "--json", "--", *flags)
    done = subprocess.run(
        [sys.executable, "-m", "engine_launch", *words], capture_output=True, text=True, timeout=120, check=False
    )
    said.append(
        {
            "command": " ".join(("ddtree-launch", *words)),
            "exit": done.returncode,
            "stdout": done.stdout[-3 * KEPT :],
            "stderr": done.stderr[-1000:],
        }
    )
    try:
        rows = json.loads(done.stdout)["checks"]
    except (ValueError, KeyError, TypeError):
        return _check("ddtree-launch doctor with the tree's flags", "nothing fails", done.stderr[-200:], False)
    failing = [f"{row['name']}: {row['message']}" for row in rows if row["status"] == "fail"]
    text = f"{len(rows)} checks, exit {done.returncode}" + "".join(f"; {line}"[:200] for line in failing)
    return _check("ddtree-launch doctor with the tree's flags", "nothing fails", text, not failing and bool(rows))


def with_tree(console: Console) -> list[Check]:
    """The plugin's server: hot and cold changes, and back."""
    checks = [_confirmed("start, tree", console("start"))]
    checks.append(_shows(console, "status, tree", algorithm="DDTREE", tree_budget=16))
    checks.append(_ends("drift after the start", 0, console("drift")))
    checks.append(_prompted(console))
    checks.append(_confirmed("apply, hot", console("apply", "--set", "tree_budget=8", "--hot", "--yes")))
    checks.append(_shows(console, "status after it", tree_budget=8))
    checks.append(_ends("drift after it, which is not written down", DRIFT_FOUND, console("drift")))
    checks.append(_confirmed("apply with a restart", console("apply", "--set", "draft_window=512", "--restart", "--yes")))
    checks.append(_shows(console, "status after it", draft_window=512))
    checks.append(_ends("rollback", 0, console("rollback", "--yes")))
    checks.append(_shows(console, "status after the roll-back", draft_window="off"))
    return checks


def with_chain(console: Console) -> list[Check]:
    """Stock DFLASH: told apart, and its limits named."""
    checks = [_confirmed("start, stock DFLASH", console("start"))]
    checks.append(_shows(console, "status, stock DFLASH", algorithm="DFLASH", tree_budget=None))
    code, _ = console("apply", "--set", "draft_window=512", "--hot", "--yes")
    checks.append(
        _check("a hot change of stock DFLASH", "refused: it needs a restart", f"exit {code}", code not in (0, NOT_CONFIRMED))
    )
    _, body = console("plan", "--set", "tree_budget=8")
    findings = json.dumps(at(body, "findings"))
    checks.append(
        _check(
            "a tree budget for stock DFLASH",
            "a finding that says so",
            findings[:200],
            "--speculative-ddtree-budget" in findings and "DDTREE" in findings,
        )
    )
    checks.append(_confirmed("its window, by a restart", console("apply", "--set", "draft_window=512", "--restart", "--yes")))
    return checks


def _prompted(console: Console) -> Check:
    """Eight copies of a user's turn at once, each with its figures."""
    code, body = console("prompt", "--n", "8", "--max-tokens", "64", "Write a function that reverses a list.")
    requests = at(body, "requests")
    lengths = [at(one, "commit_length") for one in requests] if isinstance(requests, Sequence) else []
    met = code == 0 and len(lengths) == 8 and all(isinstance(length, float) and length > 1 for length in lengths)
    return _check("prompt --n 8", "8 answers with their commit lengths", f"exit {code}, {lengths}", met)


def _check(name: str, target: str, measured: str, met: bool) -> Check:
    return judged(f"console: {name}", target, measured, met)


def _confirmed(name: str, answer: tuple[int, Json]) -> Check:
    code, body = answer
    said = f"exit {code}, confirmed {at(body, 'confirmed')}"
    return _check(name, "confirmed", said, code == 0 and at(body, "confirmed") is True)


def _ends(name: str, wanted: int, answer: tuple[int, Json]) -> Check:
    return _check(name, f"exit {wanted}", f"exit {answer[0]}", answer[0] == wanted)


def _shows(console: Console, name: str, **wanted: Json) -> Check:
    _, body = console("status")
    found = {key: at(body, "config", key) for key in wanted}
    return _check(name, _listed(wanted), _listed(found), found == wanted)


def _listed(values: Mapping[str, Json]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def run(context: Context, commands: Callable[[Path], Mapping[str, Sequence[str]]] = sglang_commands) -> Findings:
    with tempfile.TemporaryDirectory(prefix="console-") as folder:
        started = commands(context.store)
        with _consoles(Path(folder), started) as consoles:
            heard: list[dict[str, Json]] = []
            # Before the starts, which take the port.
            first = doctor(started[TREE_UNIT], heard)
            with ThreadPoolExecutor(2) as pool:
                tree = pool.submit(with_tree, consoles[TREE_UNIT])
                chain = pool.submit(with_chain, consoles[CHAIN_UNIT])
                checks = [first, *tree.result(), *chain.result()]
        return Findings(checks, {**{unit: list(console.said) for unit, console in consoles.items()}, "doctor": heard})


def prompts(context: Context, commands: Callable[[Path], Mapping[str, Sequence[str]]] = prompts_command) -> Findings:
    """One start, and prompts: what can be tried again in two minutes."""
    with tempfile.TemporaryDirectory(prefix="console-") as folder:
        with _consoles(Path(folder), {TREE_UNIT: commands(context.store)[TREE_UNIT]}) as consoles:
            console = consoles[TREE_UNIT]
            checks = [_confirmed("start, tree", console("start")), _prompted(console)]
        return Findings(checks, {TREE_UNIT: list(console.said)})


@contextlib.contextmanager
def _consoles(home: Path, commands: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Console]]:
    """A console for each of the services; at the end these are stopped."""
    for unit, command in commands.items():
        write_unit(home, unit, command)
    consoles = {unit: Console(home, unit) for unit in commands}
    try:
        yield consoles
    finally:
        for console in consoles.values():
            console("stop", "--yes", seconds=90)


CONSOLE = Part("console", "the console, headless, against DDTREE and stock DFLASH", (), run)
PROMPTS = Part("prompts", "the console's prompts against DDTREE", (), prompts)
