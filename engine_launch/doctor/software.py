"""SGLang, its dialect of DDTREE, the plugin, and whether driver, toolkit and torch go together."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Mapping

from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.sglang_plugin.gate import TESTED_VERSION
from engine_launch.spec.installing import install_command

PLUGIN = "ddtree"
PLUGIN_TARGET = "engine_launch.sglang_plugin:register"
RESTRICTING_VARIABLE = "SGLANG_PLUGINS"
"""When set, SGLang loads only the plugins that it names, with commas between."""

DIALECTS: tuple[tuple[str, str], ...] = (
    ("--speculative-ddtree-verify-widths", "DDTREE by this project's plugin"),
    ("--speculative-ddtree-cpu-build", "a fork with DDTREE of its own (pruned trees)"),
    ("--speculative-ddtree-budget", "a build with DDTREE of its own (sglang #29907)"),
    ("--speculative-dflash-enable-ddtree", "a fork with DDTREE as an option of DFLASH"),
    ("--speculative-dflash-tree-verify", "a build with tree verification in DFLASH (sglang #31069)"),
    ("--speculative-dflash-tree-width", "a build with trees in DFLASH (JetSpec, sglang #36196)"),
    ("--speculative-dflash-block-size", "stock, DFLASH without trees"),
)
"""Flag that only this dialect has → what the build is, the most telling first."""

DRIVER_FOR_CUDA: tuple[tuple[int, str, tuple[int, int]], ...] = ((13, "580.65", (580, 65)), (12, "525.60", (525, 60)))
"""CUDA major → the oldest driver that runs it (NVIDIA's CUDA compatibility guide, minor-version compatibility on Linux)."""


def dialect(help_text: str) -> str:
    """What kind of build prints this help text."""
    flags = set(re.findall(r"--[a-z0-9][a-z0-9-]*", help_text))
    return next((what for flag, what in DIALECTS if flag in flags), "a build without DFLASH")


def kept_out(environment: Mapping[str, str]) -> bool:
    """Whether this environment names plugins, and not ours."""
    allowed = {name.strip() for name in environment.get(RESTRICTING_VARIABLE, "").split(",") if name.strip()}
    return bool(allowed) and PLUGIN not in allowed


def check_sglang(versions: Mapping[str, str], help_text: str, problem: str) -> Check:
    """The version, and what its own help text says that it can do."""
    version = versions.get("sglang")
    if version is None:
        command = install_command("sglang", importlib.metadata.distribution)
        return warn("sglang", f"not in this environment; in an environment of its own: {command}")
    if problem:
        return fail(
            "sglang", f"{version}, but its help cannot be read: {problem}. Run python -m sglang.launch_server --help to see why."
        )
    kind = dialect(help_text)
    note = "" if version == TESTED_VERSION else f"; DDTREE is tested with {TESTED_VERSION}"
    return ok("sglang", f"{version}: {kind}{note}")


def check_plugin(
    versions: Mapping[str, str], plugins: Mapping[str, str], environment: Mapping[str, str], help_text: str
) -> Check:
    """Whether SGLang will find the plugin, and did."""
    if "sglang" not in versions:
        return ok("plugin", "not needed: SGLang is not in this environment")
    if plugins.get(PLUGIN) != PLUGIN_TARGET:
        command = install_command("", importlib.metadata.distribution)
        return fail("plugin", f"not found by SGLang; in the environment that SGLang runs in: {command}")
    if kept_out(environment):
        return fail("plugin", f"{RESTRICTING_VARIABLE}={environment[RESTRICTING_VARIABLE]} keeps it out: add {PLUGIN} to it")
    if help_text and DIALECTS[0][0] not in help_text:
        return fail(
            "plugin", "found, but this SGLang does not list its flags: start a server once and read what its log says of DDTREE"
        )
    return ok("plugin", "found by SGLang" + ("" if help_text else "; whether it loads is not known"))


def check_names(text: str, problem: str) -> Check:
    """Whether this SGLang has every name that the plugin touches.

    Args:
        text: JSON, one sentence for each name that is not as it must be (see ``probe.plugin_gate``).
        problem: why it could not be looked at.
    """
    if problem:
        return warn("plugin names", f"not known: {problem}")
    try:
        findings = [str(finding) for finding in json.loads(text.splitlines()[-1])]
    except (ValueError, IndexError, TypeError):
        return warn("plugin names", "not known: the answer cannot be read")
    if not findings:
        return ok("plugin names", "everything that the plugin touches is in this SGLang")
    return fail(
        "plugin names",
        f"{len(findings)} names are missing or changed in this SGLang, the first: {findings[0][:200]}. "
        f"DDTREE will refuse to start: install SGLang {TESTED_VERSION}, or a newer ddtree-console.",
    )


def check_triple(driver: str, torch: str | None, torch_cuda: str, nvcc: str, nvcc_problem: str) -> Check:
    """Driver, the CUDA that torch was built for, and the toolkit that compiles kernels at run time must go together."""
    if torch is None:
        return warn("cuda", "torch is not in this environment")
    if not torch_cuda:
        return fail("cuda", f"torch {torch} is built without CUDA: install the CUDA build that SGLang asks for")
    release = _release(nvcc)
    said = f"driver {driver or 'unknown'}, torch {torch} for CUDA {torch_cuda}, nvcc {release or 'none'}"
    built_for = _pair(f"{torch_cuda}.0")
    if built_for is None:
        return warn("cuda", f"{said}; the CUDA that torch was built for is not understood")
    major = built_for[0]
    needed = next(((text, least) for number, text, least in DRIVER_FOR_CUDA if number == major), None)
    have = _pair(driver)
    if needed and have and have < needed[1]:
        return fail(
            "cuda",
            f"{said}: CUDA {major} needs driver {needed[0]} or newer. Update the driver, or install torch for an older CUDA.",
        )
    if not release:
        return warn(
            "cuda",
            f"{said} ({nvcc_problem or 'nvcc not understood'}): kernels compiled at run time need CUDA {major}'s toolkit.",
        )
    if int(release.split(".")[0]) != major:
        return warn(
            "cuda", f"{said}: kernels compiled at run time need a toolkit of CUDA {major}. Put its bin folder first in PATH."
        )
    return ok("cuda", said)


def _release(text: str) -> str:
    match = re.search(r"release (\d+\.\d+)", text)
    return match[1] if match else ""


def _pair(version: str) -> tuple[int, int] | None:
    match = re.match(r"([0-9]{1,6})\.([0-9]{1,6})(?:\.|$)", version)
    return (int(match[1]), int(match[2])) if match is not None else None
