"""The checks of a machine with GPUs or with SGLang, and of a command line that is to be served there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine_launch.commands.checkpoint import CheckpointError
from engine_launch.commands.serve_sglang import drafter_shapes, target_shape
from engine_launch.doctor.backends import check_backends
from engine_launch.doctor.caches import check_caches
from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.doctor.command_line import FOLDERS, check_config_file, check_folders, check_spellings
from engine_launch.doctor.draft_pool import check_draft_pool
from engine_launch.doctor.gpus import MIB, check_gpu_memory, check_gpus, check_health, check_ranks, check_xids, read_gpus
from engine_launch.doctor.probe import Evidence, read_host
from engine_launch.doctor.processes import check_processes
from engine_launch.doctor.software import check_names, check_plugin, check_sglang, check_triple
from engine_launch.spec.drafter_check import Severity, check_drafter, taps
from engine_launch.spec.drafter_config import DrafterConfigError, load_drafter_config
from engine_launch.spec.sglang_checks import asked_algorithm, block_given, check_sglang_flags, number


def check_gpu_host(flags: Mapping[str, str]) -> list[Check]:
    """Read this machine and judge it."""
    return judge(read_host(), flags)


def judge(evidence: Evidence, flags: Mapping[str, str]) -> list[Check]:
    """Every check of a GPU host, from what was read of it."""
    gpus = read_gpus(evidence.gpus.text)
    checks = [
        check_sglang(evidence.versions, evidence.serve_help.text, evidence.serve_help.problem),
        check_plugin(evidence.versions, evidence.plugins, evidence.environment, evidence.serve_help.text),
        check_gpus(evidence.gpus.text, evidence.gpus.problem),
    ]
    ranks = check_ranks(flags, gpus)
    checks += [ranks] if ranks is not None else []
    if gpus:
        checks += [
            check_gpu_memory(gpus),
            check_processes(evidence.apps.text, evidence.apps.problem, evidence.processes),
            check_health(evidence.health.text, evidence.health.problem),
            check_xids(evidence.kernel_log.text, evidence.kernel_log.problem),
        ]
    if "sglang" in evidence.versions:
        checks.insert(2, check_names(evidence.gate.text, evidence.gate.problem))
    driver = gpus[0].driver if gpus else ""
    free = [gpu.free_mib * MIB for gpu in gpus if gpu.free_mib is not None]
    pool = check_draft_pool(flags, min(free) if free else None)
    return [
        *checks,
        *([pool] if pool else []),
        check_triple(driver, evidence.versions.get("torch"), evidence.torch_cuda, evidence.nvcc.text, evidence.nvcc.problem),
        check_backends(flags, gpus),
        check_caches(evidence.environment),
    ]


def check_flags(flags: Mapping[str, str]) -> list[Check]:
    """A command line's flags and folders, the flags among themselves, and its drafter, weights included, against its target."""
    unknown = check_spellings(flags)
    config_file = check_config_file(flags)
    checks = [check for check in (unknown, config_file) if check is not None] + check_folders(flags)
    config = shapes = None
    drafter = flags.get("--speculative-draft-model-path", "")
    if drafter and not any(check.name == FOLDERS["--speculative-draft-model-path"] for check in checks):
        folder = Path(drafter).expanduser()
        try:
            if folder.is_dir():
                config, shapes = load_drafter_config(folder), drafter_shapes(flags, folder)
        except DrafterConfigError as error:
            checks.append(fail("flags drafter", f"{error}."))
        except CheckpointError as error:
            checks.append(fail("flags drafter", str(error)))
    verdicts = check_sglang_flags(flags, block_given(flags) or (config.block_size if config else None))
    if verdicts.errors:
        checks.append(fail("flags", " ".join(verdicts.errors)))
    elif verdicts.warnings:
        checks.append(warn("flags", " ".join(verdicts.warnings)))
    else:
        checks.append(ok("flags", f"{asked_algorithm(flags) or 'plain decoding'}: nothing speaks against them"))
    checks.append(_check_page_size(flags))
    if not drafter or any(check.name in FOLDERS.values() for check in checks):
        return checks
    target = target_shape(Path(flags["--model-path"]).expanduser()) if flags.get("--model-path") else None
    if config is None or target is None:
        missing = "drafter" if config is None else "target"
        return [
            *checks,
            warn("flags drafter", f"the {missing} is no local folder with a config.json, so they cannot be compared here"),
        ]
    findings = check_drafter(config, target, shapes)
    if findings:
        grave = any(finding.severity is Severity.ERROR for finding in findings)
        text = " ".join(finding.message for finding in findings)
        return [*checks, fail("flags drafter", text) if grave else warn("flags drafter", text)]
    tapped = ", ".join(map(str, taps(config, target)))
    said = (
        f"fits {target.name}: {config.window_text}, block {config.block_size}, mask token {config.mask_token_id}, layers {tapped}"
    )
    return [*checks, ok("flags drafter", said)]


def _check_page_size(flags: Mapping[str, str]) -> Check:
    page = number(flags, "--page-size")
    if asked_algorithm(flags) != "DDTREE":
        return ok("page size", f"{page or 'the default'}: any will do without DDTREE")
    if page == 1:
        return ok("page size", "1, as DDTREE needs it")
    if page is None:
        return warn(
            "page size", "not given: some backends and models choose a larger one, which DDTREE refuses. Give --page-size 1."
        )
    return fail("page size", f"{page}: DDTREE needs --page-size 1")
