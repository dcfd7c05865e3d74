"""Arguments that bring the plugin's part into front ends that are processes of their own (``--tokenizer-worker-num`` above 1).

SGLang loads plugins in the process that reads the command line and in the schedulers, but not in these: uvicorn starts them from
a module's name, and each takes the arguments, pickled, out of shared memory. Before it makes its tokenizer manager it asks the
arguments for the manager's class (``get_tokenizer_worker_class``, made for classes derived from ``ServerArgs``). A class that is
derived here is imported with them, and puts the hooks in place before it answers.
"""

from __future__ import annotations

from typing import Any

from sglang.srt import server_args as stock


class ServerArgs(stock.ServerArgs):  # type: ignore[misc]
    """SGLang's own, under its own name in the log."""

    def get_tokenizer_worker_class(self) -> Any:
        """The stock class, with :mod:`~engine_launch.sglang_plugin.reports` in place in this process."""
        from engine_launch.sglang_plugin import reports

        reports.install_in_front_end()
        return super().get_tokenizer_worker_class()


def carry(server_args: Any) -> None:
    """Let the front ends of ``server_args`` load the plugin's part.

    Raises:
        ValueError: they are of a class that somebody else has derived, which may have an answer of its own.
    """
    if isinstance(server_args, ServerArgs):
        return
    if type(server_args) is not stock.ServerArgs:
        raise ValueError(
            f"DDTREE does not work with --tokenizer-worker-num above 1 and arguments of the class {type(server_args).__name__}: "
            "its part of the front end would be missing there. Leave --tokenizer-worker-num out."
        )
    server_args.__class__ = ServerArgs
