"""Starting the embedded server from its options: every error that can be found early is found before torch is imported."""

from __future__ import annotations

from engine_launch.commands.checkpoint import CheckpointError, read_checkpoint
from engine_launch.commands.output import complain
from engine_launch.embedded.api import EngineError
from engine_launch.embedded.events import EngineLog
from engine_launch.embedded.logs import configure_logging
from engine_launch.embedded.model_files import resolve_model
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.server_bind import StartError
from engine_launch.embedded.server_options import ServerOptions
from engine_launch.embedded.server_run import Ready, run_server
from engine_launch.spec.checks import check_window
from engine_launch.spec.flags import FlagError


def start(options: ServerOptions) -> int:
    """Serve until stopped; returns the exit code, with one line on stderr when it is not 0."""
    try:
        check_files(options)
        return run_server(options, build, configure_logging(options.log_level, quiet_paths=options.quiet_paths))
    except (StartError, EngineError, CheckpointError, FlagError) as error:
        return complain(str(error))


def check_files(options: ServerOptions) -> None:
    """The model file is there, and the drafter's checkpoint is whole and fits the flags.

    Raises:
        EngineError: no model file.
        CheckpointError: the checkpoint cannot be read.
        FlagError: the compact draft cache is smaller than the drafter's block.
    """
    resolve_model(options.engine.model)
    if options.drafter is not None:
        config = read_checkpoint(options.drafter).config
        check_window(options.engine.draft_window or None, options.engine.block_size or config.block_size)


def build(options: EngineOptions, log: EngineLog) -> Ready:
    """Load the engine (imports torch)."""
    from engine_launch.embedded.factory import build_engine

    engine = build_engine(options, log)
    assert engine.tokenizer is not None, "an engine built from a model file has its tokenizer"
    return Ready(engine, engine.tokenizer)
