"""A GPU host for tests on a machine that is none: recorded programs first on PATH, and a package that stands where SGLang would.

The stand-in SGLang prints a help text and, started, the arguments that it was given; nothing of it runs a model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

STOCK_HELP = "usage: launch_server.py\n  --speculative-algorithm NAME\n  --speculative-dflash-block-size N\n"
PLUGIN_HELP = STOCK_HELP + "  --speculative-ddtree-budget N\n  --speculative-ddtree-verify-widths N,N\n"
H200 = "0, NVIDIA H200, 580.159.04, 143771, 143000, 9.0\n"
HEALTHY = "0, 41, 0x0000000000000001, 0, 0\n"
NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n"
LAUNCH_SERVER = """
import pathlib, sys
if "--help" in sys.argv:
    print((pathlib.Path(__file__).parent / "help.txt").read_text())
else:
    print("started", *sys.argv[1:], sep="|")
"""


@dataclass
class GpuHost:
    """Folders of the pretended machine; ``environment`` is what a command on it runs with."""

    folder: Path
    gpus: str = H200
    health: str = HEALTHY
    apps: str = ""
    kernel: str = "nothing of note\n"
    nvcc: str = NVCC
    help_text: str = PLUGIN_HELP
    version: str = "0.5.17"
    plugin: str | None = "engine_launch.sglang_plugin:register"
    more: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Write everything and return the environment."""
        programs, packages = self.folder / "bin", self.folder / "site"
        self._program(
            programs / "nvidia-smi",
            f"case \"$*\" in\n*compute_cap*) printf '%s' '{self.gpus}';;\n*ecc.errors*) printf '%s' '{self.health}';;\n"
            f"*compute-apps*) printf '%s' '{self.apps}';;\nesac",
        )
        self._program(programs / "nvcc", f"printf '%s' '{self.nvcc}'")
        self._program(programs / "journalctl", f"printf '%s' '{self.kernel}'")
        self._sglang(packages)
        return {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(packages),
            "HOME": str(self.folder),
            "DDTREE_CACHE_DIR": str(self.folder / "cache"),
            **self.more,
        }

    def _program(self, path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def _sglang(self, packages: Path) -> None:
        package, about = packages / "sglang", packages / f"sglang-{self.version}.dist-info"
        for folder in (package, about):
            folder.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("", encoding="utf-8")
        (package / "launch_server.py").write_text(LAUNCH_SERVER, encoding="utf-8")
        (package / "help.txt").write_text(self.help_text, encoding="utf-8")
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {self.version}\n", encoding="utf-8")
        # First on the path, it hides this project's own installation and its entry point.
        ours = packages / "ddtree_console-0.1.0.dist-info"
        ours.mkdir(parents=True, exist_ok=True)
        (ours / "METADATA").write_text("Metadata-Version: 2.1\nName: ddtree-console\nVersion: 0.1.0\n", encoding="utf-8")
        if self.plugin is not None:
            entry = f"[sglang.srt.plugins]\nddtree = {self.plugin}\n"
            (ours / "entry_points.txt").write_text(entry, encoding="utf-8")
