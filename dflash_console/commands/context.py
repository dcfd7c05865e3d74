"""What every command works with: the configuration, the output, and the host's session."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..config import Config, LoadedConfig, load_config
from ..paths import Paths, default_paths
from .asking import forget_typed
from .options import CommonOptions
from .outcome import CommandError, UsageError
from .output import Output

if TYPE_CHECKING:
    from ..hosts.ssh_errors import HostKeyUnknown
    from ..session import HostSession


class Context:
    """One run of one command."""

    def __init__(self, name: str, output: Output, common: CommonOptions) -> None:
        self.name = name
        """The command, as typed."""
        self.output = output
        self.common = common

    @cached_property
    def paths(self) -> Paths:
        return default_paths()

    @cached_property
    def loaded(self) -> LoadedConfig:
        """The configuration file, and what is wrong with it."""
        return load_config(self.paths.config_file)

    def report_config(self) -> None:
        """Say on standard error what is wrong with the configuration file."""
        kept = ", but for its read_only" if self.loaded.config.read_only else ""
        for problem in self.loaded.problems:
            self.output.note(f"ddtree-console: {problem} (the defaults are used{kept})")

    @property
    def config(self) -> Config:
        """What is in effect: the file, and ``--read-only`` over it."""
        config = self.loaded.config
        return replace(config, read_only=True) if self.common.read_only else config

    def begin_change(self) -> None:
        """Every command that changes the host begins with this; from here on its output, read or not, ends nothing.

        Raises:
            CommandError: nothing may be changed.
        """
        if self.config.read_only:
            where = "--read-only was given" if self.common.read_only else f"read_only = true in {self.paths.config_file}"
            raise CommandError(f"{self.name} would change the host, and {where}: nothing was done")
        if self.loaded.lost_host and self.common.host is None:
            # The embedded host, which stands in for it, is not what was meant.
            raise CommandError(
                f"{self.paths.config_file} names the default host {self.loaded.lost_host}, but cannot be used: "
                "mend it, or say which host with --host; nothing was done"
            )
        self.output.finish_unread()

    @contextlib.asynccontextmanager
    async def session(self, *, watch: bool = True) -> AsyncIterator[HostSession]:
        """The host's service, opened and (unless ``watch`` is false) watched.

        Raises:
            UsageError: no such host or unit, or several units of which one has to be named.
            CommandError: the host cannot be opened, or something on it did not work.
        """
        from ..hosts.ssh_errors import HostKeyUnknown
        from ..hosts.transport import HostError
        from ..session import NoSuchHost, NoSuchUnit, SeveralUnits, open_session

        try:
            while True:
                try:
                    session = await open_session(
                        self.common.host, self.common.unit, config=self.config, paths=self.paths, watch=watch
                    )
                    break
                except HostKeyUnknown as problem:
                    # One for each hop that is new.
                    accept_host_key(problem)
            try:
                yield session
            finally:
                await session.close()
        except (NoSuchHost, NoSuchUnit, SeveralUnits) as problem:
            raise UsageError(str(problem)) from None
        except HostError as problem:
            raise CommandError(str(problem)) from None


def accept_host_key(problem: HostKeyUnknown) -> None:
    """Ask at the terminal whether the key is the host's, and add it to known_hosts when the answer is yes.

    Raises:
        CommandError: no, or there is nobody to ask.
    """
    from ..hosts.ssh_known_hosts import trust_host_key

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"{problem}; connect once with ssh, or run this at a terminal, to accept it")
    forget_typed()
    print(f"{problem}.\nIs it? It is then added to {problem.file}. (yes/no) ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("yes", "y"):
        raise CommandError(f"the key of {problem.hop} was not accepted: nothing was done")
    trust_host_key(problem)
