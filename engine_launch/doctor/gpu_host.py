"""The checks of a machine with GPUs or with SGLang, and of a command line that is to be served there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine_launch.commands.checkpoint import CheckpointError
from engine_launch.commands.serve_sglang import drafter_shapes, target_shape
from engine_launch.doctor.backends import check_backends
from engine_launch.doctor.caches import check_caches
from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.doctor.command_line import FOLDERS, check_config_file, check_folders, check_spellings
from engine_launch.doctor.draft_pool import check_draft_pool
from engine_launch.doctor.gpus import MIB, Gpu, check_gpu_memory, check_gpus, check_health, check_ranks, check_xids, read_gpus
from engine_launch.doctor.probe import Evidence, read_host
from engine_launch.doctor.processes import check_processes
from engine_launch.doctor.software import check_names, check_plugin, check_sglang, check_triple
from engine_launch.doctor.visible import check_visible, used, visible
from engine_launch.local_paths import expanded, is_folder
from engine_launch.spec.drafter_check import Severity, capture_problem, check_drafter, ranks_problem, taps
from engine_launch.spec.drafter_config import DrafterConfigError, load_drafter_config
from engine_launch.spec.sglang_checks import asked_algorithm, block_given, check_sglang_flags, number


def check_gpu_host(flags: Mapping[str, str]) -> list[Check]:
    """Read this machine and judge it."""
    return judge(read_host(), flags)


FOREIGN = "AMD's driver is loaded (/dev/kfd), whose GPUs are not looked at here: rocm-smi lists them"


def judge(evidence: Evidence, flags: Mapping[str, str]) -> list[Check]:
    """Every check of a GPU host, from what was read of it."""
    checks = [
        check_sglang(evidence.versions, evidence.serve_help.text, evidence.serve_help.problem),
        check_plugin(evidence.versions, evidence.plugins, evidence.environment, evidence.serve_help.text),
    ]
    if "sglang" in evidence.versions:
        checks.append(check_names(evidence.gate.text, evidence.gate.problem))
    gpus = read_gpus(evidence.gpus.text)
    seen = visible(gpus, evidence.environment)
    running_on = used(flags, seen)
    foreign = evidence.amd and not evidence.smi_is_here
    checks += [warn("gpus", FOREIGN)] if foreign else _judge_gpus(evidence, flags, gpus, seen, running_on)
    free = [gpu.free_mib * MIB for gpu in running_on if gpu.free_mib is not None and not gpu.sliced]
    pool = check_draft_pool(flags, min(free) if free else None)
    checks += [pool] if pool else []
    if not foreign:
        driver, torch = gpus[0].driver if gpus else "", evidence.versions.get("torch")
        checks.append(check_triple(driver, torch, evidence.torch_cuda, evidence.nvcc.text, evidence.nvcc.problem))
    return [*checks, check_backends(flags, running_on or gpus), check_caches(evidence.environment)]


def _judge_gpus(
    evidence: Evidence, flags: Mapping[str, str], gpus: Sequence[Gpu], seen: Sequence[Gpu], running_on: Sequence[Gpu]
) -> list[Check]:
    """NVIDIA's GPUs: ``gpus`` that are listed, those ``seen`` by a server, and those that it will be running on."""
    checks = [check_gpus(evidence.gpus.text, evidence.gpus.problem)]
    narrowed = check_visible(gpus, evidence.environment) if gpus else None
    ranks = check_ranks(flags, seen, len(gpus) - len(seen))
    checks += [check for check in (narrowed, ranks) if check is not None]
    if running_on:
        checks.append(check_gpu_memory(running_on))
    if gpus:
        checks.append(check_processes(evidence.apps.text, evidence.apps.problem, evidence.processes))
        checks.append(check_health(evidence.health.text, evidence.health.problem))
    if evidence.smi_is_here:
        # Also where no GPU is seen: the log then says why.
        checks.append(check_xids(evidence.kernel_log.text, evidence.kernel_log.problem))
    return checks


def check_flags(flags: Mapping[str, str], words: Sequence[str] = (), *, sglang: bool = False) -> list[Check]:
    """A command line's flags and folders, the flags among themselves, and its drafter, weights included, against its target.

    Args:
        words: the command line as it was written.
        sglang: it is SGLang that will serve it.
    """
    unknown = check_spellings(flags)
    config_file = check_config_file(flags, words)
    checks = [check for check in (unknown, config_file) if check is not None] + check_folders(flags, sglang)
    config = shapes = None
    drafter = flags.get("--speculative-draft-model-path", "")
    if drafter and not any(check.name == FOLDERS["--speculative-draft-model-path"] for check in checks):
        folder = expanded(drafter)
        try:
            if is_folder(folder):
                config, shapes = load_drafter_config(folder), drafter_shapes(flags, folder)
        except DrafterConfigError as error:
            checks.append(fail("flags drafter", f"{error}."))
        except CheckpointError as error:
            checks.append(fail("flags drafter", str(error)))
    given = block_given(flags)
    verdicts = check_sglang_flags(flags, config.block_size if given is None and config else given)
    if verdicts.errors:
        checks.append(fail("flags", " ".join(verdicts.errors)))
    elif verdicts.warnings:
        checks.append(warn("flags", " ".join(verdicts.warnings)))
    else:
        checks.append(ok("flags", f"{asked_algorithm(flags) or 'plain decoding'}: nothing speaks against them"))
    checks.append(_check_page_size(flags))
    if not drafter or any(check.name in FOLDERS.values() for check in checks):
        return checks
    target = target_shape(expanded(flags["--model-path"])) if flags.get("--model-path") else None
    if config is None or target is None:
        missing = "drafter" if config is None else "target"
        return [
            *checks,
            warn("flags drafter", f"the {missing} is no local folder with a config.json, so they cannot be compared here"),
        ]
    problem = ranks_problem(config, number(flags, "--tp-size") or 1)
    if problem:
        return [*checks, fail("flags drafter", f"it cannot be shared out so: {problem}")]
    findings = check_drafter(config, target, shapes)
    misfit = capture_problem(config, target) if sglang else ""
    if findings or misfit:
        grave = bool(misfit) or any(finding.severity is Severity.ERROR for finding in findings)
        text = " ".join([*(finding.message for finding in findings), misfit]).strip()
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
