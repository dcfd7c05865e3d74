"""Checks of a host: its service, its server, its figures, its GPUs, and processes that should not be there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from .doctor import Check, CheckStatus
from .drift import Verdict, port_verdict
from .evidence.command import EngineCommand, find_engine
from .evidence.gpu_faults import Grade
from .evidence.terminal_text import clean_line
from .gpu_report import OTHERS, gpu_report
from .hosts.gpus import NoGpuTool, Owner, read_gpus, read_holders
from .hosts.proc_table import read_processes
from .hosts.service import RunState
from .hosts.transport import HostError, Transport
from .state import Aged, HostState

LISTED = 5
"""Processes or faults that one finding names."""


def check_service(state: HostState) -> Check:
    """The service manager's word."""
    if state.service is None:
        return Check("service", CheckStatus.UNKNOWN, state.problems.get("service", "the service has not been read"))
    service = state.service.value
    detail = f": {service.detail}" if service.detail else ""
    if service.state is RunState.RUNNING:
        return Check("service", CheckStatus.OK, f"{state.unit} is running, pid {service.main_pid}")
    if service.state is RunState.FAILED:
        advice = "ddtree-console logs --this-start shows why"
        result = f" ({service.result or 'no result'})" if service.result != "success" else ""
        return Check("service", CheckStatus.FAILED, f"{state.unit} failed{result}{detail}; {advice}")
    if service.state is RunState.MISSING:
        return Check("service", CheckStatus.FAILED, f"there is no {state.unit}{detail}")
    return Check("service", CheckStatus.OK, f"{state.unit} is {service.state.value}{detail}")


def check_configuration(state: HostState) -> Check:
    """Whether the unit's files can be read and name an engine."""
    name = "unit file"
    if state.config is None:
        return Check(name, CheckStatus.UNKNOWN, state.problems.get("config", "the configuration has not been read"))
    config = state.config.value
    if config.problems:
        return Check(name, CheckStatus.FAILED, config.problems[0])
    if find_engine(config.command) is None:
        return Check(name, CheckStatus.WARNING, "no engine is named in the command: its settings cannot be read or changed")
    if config.remarks:
        return Check(name, CheckStatus.WARNING, "; ".join(config.remarks))
    return Check(name, CheckStatus.OK, ", ".join(source.path for source in config.sources))


def check_server(state: HostState) -> Check:
    """The engine's HTTP API."""
    if state.stranger is not None:
        said = f"{state.stranger.value.sentence}; end it, or give {state.unit} another port (flag:--port)"
        return Check("server", CheckStatus.FAILED if port_verdict(state) is Verdict.DRIFT else CheckStatus.WARNING, said)
    if not _running(state):
        return Check("server", CheckStatus.OK, _not_asked(state))
    if state.server is None:
        return _no_report(state)
    return Check("server", CheckStatus.OK, f"{state.server.value.engine_name} answers")


def _not_asked(state: HostState) -> str:
    run = state.service.value.state if state.service is not None else RunState.UNKNOWN
    moving = run in (RunState.STARTING, RunState.STOPPING)
    return f"it is just {run.value}, so nothing was asked" if moving else "not running, so nothing to ask"


def _no_report(state: HostState) -> Check:
    """An engine whose process runs and of which there is no report: loading is no fault, silence after that is one."""
    why = state.problems.get("server", "")
    if state.silent or (why and state.been_ready):
        silence = "it said that it was ready, and does not answer: it hangs, or is very busy"
        return Check("server", CheckStatus.FAILED, why or silence)
    if state.said_ready:
        said = "it said that it was ready, and has not answered yet"
    elif "log" in state.problems:
        said = f"it does not answer, and whether it is still loading is not known: {state.problems['log']}"
    elif state.log is not None and state.log.value.phases:
        said = f"it does not answer yet: it is still loading ({list(state.log.value.phases)[-1].value})"
    else:
        said = "it does not answer yet: it is still loading, and has not said how far it is"
    return Check("server", CheckStatus.UNKNOWN, said)


def check_metrics(state: HostState) -> Check:
    """Whether there are live figures."""
    if not _running(state):
        return Check("metrics", CheckStatus.OK, _not_asked(state))
    if state.server is None:
        return Check("metrics", CheckStatus.UNKNOWN, "not asked, because the server has not answered")
    if state.metrics is None:
        why = state.problems.get("metrics", "none could be read")
        return Check("metrics", CheckStatus.WARNING, f"{why}; plots and rates need the flag --enable-metrics")
    return Check("metrics", CheckStatus.OK, "/metrics answers")


def check_drafter(state: HostState) -> Check:
    """The draft model's configuration."""
    if state.drafter is None:
        return Check("drafter", CheckStatus.WARNING, state.problems.get("drafter", "no drafter is configured"))
    drafter = state.drafter.value
    return Check("drafter", CheckStatus.OK, f"block size {drafter.block_size}, {drafter.window_text}")


async def check_gpus(transport: Transport, state: HostState) -> Check:
    """The GPU tool, and GPU processes that are not this unit's."""
    try:
        rows = await read_gpus(transport)
    except NoGpuTool as problem:
        if state.embedded:
            return Check("GPUs", CheckStatus.OK, f"{problem} (the embedded engine needs none)")
        return Check("GPUs", CheckStatus.WARNING, str(problem))
    except HostError as problem:
        return Check("GPUs", CheckStatus.WARNING, str(problem))
    problems = {source: said for source, said in state.problems.items() if source not in ("gpus", "gpu processes")}
    try:
        holders = Aged(await read_holders(transport, _main_pid(state)), 0.0) if rows else None
    except HostError as problem:
        # What is wrong with the GPUs themselves is known all the same.
        holders, problems["gpu processes"] = None, str(problem)
    return judge_gpus(replace(state, gpus=Aged(rows, 0.0), gpu_holders=holders, problems=problems))


def judge_gpus(state: HostState) -> Check:
    """The GPUs of a snapshot: how many, what is wrong with each, and whose processes hold their memory."""
    report = gpu_report(state)
    if not report.lines:
        return Check("GPUs", CheckStatus.WARNING, "nvidia-smi lists no GPU")
    holders = state.gpu_holders.value if state.gpu_holders is not None else ()
    # Of a server that does not run, nobody's processes are to be there: then an unseen one is a leftover.
    left = [] if any(holder.ours for holder in holders) else [holder.words for holder in holders if holder.owner is Owner.UNKNOWN]
    said = [fault.words for fault in report.findings]
    if left:
        said.append(f"GPU memory is held by processes that are not known to be this unit's: {_listed(left)}")
    if state.gpu_holders is None and (why := state.problems.get("gpu processes")):
        said.append(f"which processes hold GPU memory is not known: {why}")
    if said:
        grave = any(fault.grade is Grade.BAD for fault in report.faults)
        return Check("GPUs", CheckStatus.FAILED if grave else CheckStatus.WARNING, f"{report.kinds}. {_listed(said, '. ')}")
    ranks = f", {report.ranks.words}" if report.ranks is not None and report.ranks.seen is not None else ""
    elsewhere = sum(line.on_it == OTHERS for line in report.lines)
    strangers = f"others hold memory of {elsewhere} that it does not use" if elsewhere else "no strangers hold GPU memory"
    return Check("GPUs", CheckStatus.OK, f"{report.kinds}{ranks}, {strangers}")


def _listed(words: Sequence[str], separator: str = "; ") -> str:
    more = f"{separator}{len(words) - LISTED} more" if len(words) > LISTED else ""
    return separator.join(words[:LISTED]) + more


async def check_strays(transport: Transport, state: HostState) -> Check:
    """Engines that run outside the unit: left from an earlier start, or somebody else's. They hold memory and the port."""
    name = "stray engines"
    try:
        table = await read_processes(transport)
    except HostError as problem:
        return Check(name, CheckStatus.UNKNOWN, f"the processes cannot be listed: {problem}")
    own = table.family(_main_pid(state))
    found: list[str] = []
    for pid, process in table.processes.items():
        command = find_engine(process.argv) if pid not in own else None
        if command is not None and is_engine(command):
            found.append(f"{table.named(pid)}: {command.form.value}")
    if found:
        listed = ", ".join(found[:LISTED])
        return Check(
            name, CheckStatus.WARNING, f"{len(found)} run outside {state.unit}: {listed}; they may hold the port or memory"
        )
    if table.partial:
        return Check(name, CheckStatus.UNKNOWN, "this user may not see other users' processes, so one of them may be an engine")
    return Check(name, CheckStatus.OK, f"no engine runs outside {state.unit}")


def is_engine(command: EngineCommand) -> bool:
    """Whether the process itself is the engine, not a shell, an editor or a search that has its name among its words."""
    program = command.outer[0].rpartition("/")[2] if command.outer else ""
    return program.startswith(("python", "ddtree-launch", "sglang"))


def _main_pid(state: HostState) -> int | None:
    return state.service.value.main_pid if state.service is not None else None


def _running(state: HostState) -> bool:
    return state.service is not None and state.service.value.state is RunState.RUNNING


async def check_launcher(transport: Transport) -> tuple[Check, ...]:
    """What the launcher's own doctor says of this machine: model, drafter, CPU, memory."""
    import json

    try:
        done = await transport.run([sys.executable, "-m", "engine_launch", "doctor", "--json"], timeout=60.0)
        rows = json.loads(done.stdout)["checks"]
        words = {"ok": CheckStatus.OK, "warn": CheckStatus.WARNING, "fail": CheckStatus.FAILED}
        # The port is the unit's business, and python and packages have been checked already.
        return tuple(
            Check(f"engine {row['name']}", words[row["status"]], str(row["message"]))
            for row in rows
            if row["name"] in ("cpu", "memory", "cache", "model", "drafter")
        )
    except HostError as problem:
        return (Check("engine", CheckStatus.UNKNOWN, f"ddtree-launch doctor could not be run: {problem}"),)
    except (ValueError, KeyError, TypeError):
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] or "nothing"
        why = f"ddtree-launch doctor gave no report (exit status {done.status}); its last words: {clean_line(said)}"
        return (Check("engine", CheckStatus.UNKNOWN, why),)


async def check_host(transport: Transport, state: HostState) -> tuple[Check, ...]:
    """All checks of the host that ``state`` was read from."""
    return (
        check_service(state),
        check_configuration(state),
        check_server(state),
        check_metrics(state),
        check_drafter(state),
        await check_gpus(transport, state),
        await check_strays(transport, state),
    )
