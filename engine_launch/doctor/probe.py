"""Everything that the doctor of a GPU host reads from this machine: commands' output and files, as text, nothing judged.

A program that is missing, hangs or fails is an answer too (:class:`Output`); nothing here raises for it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from engine_launch.doctor.gpus import APPS_QUERY, GPU_QUERY, HEALTH_QUERIES
from engine_launch.doctor.processes import Process
from engine_launch.spec.nvidia_smi import REFUSED
from engine_launch.versions import UNKNOWN, version_of

PLUGIN_GROUP = "sglang.srt.plugins"
KERNEL_LOG_LINES = 20000


@dataclass(frozen=True)
class Output:
    """What a command printed."""

    text: str
    problem: str = ""
    """Why there is no usable text, in words; empty when it ended well."""
    hung: bool = False
    """Whether it was given up waiting for."""


@dataclass(frozen=True)
class Evidence:
    """The host as it was read."""

    gpus: Output
    health: Output
    apps: Output
    kernel_log: Output
    nvcc: Output
    serve_help: Output
    """``python -m sglang.launch_server --help``."""
    gate: Output
    """Names that the plugin misses in this SGLang, as a JSON list on the last line."""
    processes: tuple[Process, ...]
    versions: Mapping[str, str]
    """Distribution → version, those that are installed."""
    torch_cuda: str
    """The CUDA that torch was built for; empty without torch, or for a CPU build."""
    plugins: Mapping[str, str]
    """Entry points of SGLang's plugin group: name → what they load."""
    environment: Mapping[str, str]
    amd: bool = False
    """Whether AMD's driver is loaded, which has GPUs that ``nvidia-smi`` knows nothing of."""

    @property
    def smi_is_here(self) -> bool:
        """Whether there is NVIDIA's tool, and with it, it is supposed, a driver or what is left of one."""
        return bool(self.gpus.text) or "is not installed" not in self.gpus.problem


def read_host() -> Evidence:
    """Read this machine. Takes up to a minute where SGLang is installed: its help text and the plugin's gate import it."""
    # Nearly all of the time goes to the two that import SGLang.
    with ThreadPoolExecutor(3) as pool:
        asked, helped, gated = pool.submit(nvidia_smi), pool.submit(sglang_help), pool.submit(plugin_gate)
    gpus, health, apps = asked.result()
    return Evidence(
        gpus=gpus,
        health=health,
        apps=apps,
        kernel_log=kernel_log(),
        nvcc=command("nvcc", "--version"),
        serve_help=helped.result(),
        gate=gated.result(),
        processes=processes(),
        versions=versions("sglang", "torch", "sglang-kernel", "flashinfer-python", "triton", "transformers", "ddtree-console"),
        torch_cuda=torch_cuda(),
        plugins={entry.name: entry.value for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP)},
        environment=dict(os.environ),
        amd=Path("/dev/kfd").exists(),
    )


def nvidia_smi(timeout: float = 20.0) -> tuple[Output, Output, Output]:
    """GPUs, their health, and what runs on them. A driver that hangs is asked once: each question leaves a process behind."""
    formats = "--format=csv,noheader,nounits"

    def ask(query: str) -> Output:
        return command("nvidia-smi", query, formats, timeout=timeout)

    gpus = ask(f"--query-gpu={GPU_QUERY}")
    if REFUSED in gpus.text + gpus.problem:
        # A driver from before slices.
        gpus = ask(f"--query-gpu={GPU_QUERY.rpartition(',')[0]}")
    if gpus.hung:
        return gpus, gpus, gpus
    health = Output("", "not asked")
    for query in HEALTH_QUERIES:
        # Newer drivers call clocks_throttle_reasons clocks_event_reasons, and refuse a query with a name that they do not know.
        health = ask(f"--query-gpu={query}")
        if not health.problem or health.hung:
            break
    return gpus, health, health if health.hung else ask(f"--query-compute-apps={APPS_QUERY}")


def command(*words: str, timeout: float = 20.0) -> Output:
    """Run a program; its standard output, or why there is none."""
    if shutil.which(words[0]) is None:
        return Output("", f"{words[0]} is not installed")
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        return Output("", f"{words[0]} cannot be run: {error.strerror or error}")
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _leave(process)
        return Output("", f"{words[0]} did not answer within {timeout:.0f} s", hung=True)
    text = out.decode(errors="replace")
    if process.returncode != 0:
        said = (err.decode(errors="replace") or text).strip().splitlines()
        return Output(text, f"{words[0]} ended with code {process.returncode}" + (f": {said[-1][:200]}" if said else ""))
    return Output(text)


def _leave(process: subprocess.Popen[bytes]) -> None:
    """End it, without waiting for it for long: what hangs inside a driver is not ended even by SIGKILL."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1.0)


def kernel_log() -> Output:
    """The kernel's messages of this boot. Reading them often needs rights."""
    journal = command("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet", "--lines", str(KERNEL_LOG_LINES))
    if not journal.problem and journal.text:
        return journal
    ring = command("dmesg")
    return ring if not ring.problem else Output("", f"{ring.problem}; run the doctor as root to see XID errors")


def sglang_help() -> Output:
    """SGLang's own help text: what flags this build really has, plugins included."""
    if importlib.util.find_spec("sglang") is None:
        return Output("", "SGLang is not installed in this environment")
    return command(sys.executable, "-m", "sglang.launch_server", "--help", timeout=120.0)


def plugin_gate() -> Output:
    """Asked in a process of its own: it imports SGLang, which takes many seconds and may end in any way."""
    if importlib.util.find_spec("sglang") is None:
        return Output("", "SGLang is not installed in this environment")
    code = "import json; from engine_launch.sglang_plugin import gate; print(json.dumps([str(one) for one in gate.check()]))"
    return command(sys.executable, "-c", code, timeout=120.0)


def versions(*names: str) -> dict[str, str]:
    """Of those that are here: installed, or a package of that name that Python finds by its folder alone."""
    found = {name: version_of(name) for name in names}
    return {name: text for name, text in found.items() if text != UNKNOWN or importlib.util.find_spec(name.replace("-", "_"))}


def torch_cuda() -> str:
    """Read from torch's own version file: importing torch takes seconds and would touch the GPU."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.split(":")[0].strip() == "cuda":
            value = value.strip().strip("'\"")
            return "" if value == "None" else value
    return ""


def processes() -> tuple[Process, ...]:
    """All processes that may be seen, from ``/proc``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        found.append(Process(int(folder.name), int(rest.split()[1]), words or name))
    return tuple(found)
