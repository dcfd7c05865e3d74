"""Where the console keeps its files: one place that knows every path.

The platform's own folders are used (XDG on Linux). ``DDTREE_HOME`` puts everything under one folder instead, for tests and
for machines where the home folder is not to be touched.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

APP_NAME = "ddtree-console"
HOME_VARIABLE = "DDTREE_HOME"
PLATFORM_VARIABLES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")
"""What moves the platform's folders of settings and state, where it is an absolute path."""


@dataclass(frozen=True)
class Paths:
    """The three folders that everything lives in. Nothing is created by naming a path."""

    config: Path
    """What the user writes: settings, themes."""
    state: Path
    """What the console must not lose: services, operations, history."""
    cache: Path
    """What can be made again."""

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def themes(self) -> Path:
        """The user's own themes."""
        return self.config / "themes"

    @property
    def history_file(self) -> Path:
        return self.state / "history.sqlite3"

    @property
    def operations(self) -> Path:
        """One journal per operation (apply, roll-back)."""
        return self.state / "operations"

    @property
    def audit_file(self) -> Path:
        """One line per operation: who, when, what, why."""
        return self.state / "audit.log"

    @property
    def exports(self) -> Path:
        """Saved logs and answers."""
        return self.state / "exports"

    @property
    def crashes(self) -> Path:
        """Reports of the console's own errors."""
        return self.state / "crashes"

    def service(self, unit: str) -> Path:
        """The folder of a supervised local process."""
        return self.state / "services" / unit


def default_paths(environment: Mapping[str, str] | None = None) -> Paths:
    """The paths of this user, or everything under ``$DDTREE_HOME`` when it is set."""
    home = (os.environ if environment is None else environment).get(HOME_VARIABLE, "")
    if home:
        base = Path(home).expanduser().absolute()
        return Paths(base / "config", base / "state", base / "cache")
    from platformdirs import PlatformDirs

    dirs = PlatformDirs(APP_NAME, appauthor=False)
    return Paths(dirs.user_config_path, dirs.user_state_path, dirs.user_cache_path)


def chosen_by(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that chose this process's folders of settings and state, to be put before a command for the same ones.

    A shell of another time or place may have others, or none. Empty where nothing but the user's own home folder chose them.
    """
    home = environment.get(HOME_VARIABLE)
    if home:
        return {HOME_VARIABLE: str(Path(home).expanduser().absolute())}
    # One that is set to nothing was taken back, most likely from a shell that has it.
    found = {} if home is None else {HOME_VARIABLE: ""}
    found |= {name: path for name in PLATFORM_VARIABLES if Path(path := environment.get(name, "")).is_absolute()}
    base = environment.get("HOME", "")
    if Path(base).is_absolute() and not all(name in found for name in PLATFORM_VARIABLES) and base != _own_home():
        found["HOME"] = base
    return found


def _own_home() -> str | None:
    """The user's home folder by the system's list of users; ``None`` where that does not have the user."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def private_folder(path: Path) -> Path:
    """Make ``path`` (and its parents) readable by this user alone: unit files and command lines may hold keys.

    Raises:
        OSError: it cannot be created.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def sync_folder(path: Path | str) -> None:
    """Have the names in a folder on disk: of files that are new, replaced or gone.

    Raises:
        OSError: it cannot be opened, or the disk says no.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_file(path: Path | str, *, offset: int = 0, limit: int | None = None) -> bytes:
    """The bytes of a regular file; ``offset`` and ``limit``: of so many of them, from there on.

    A pipe that nobody writes to would be waited for without end, and a device may never end.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        with open(handle, "rb", buffering=0, closefd=False) as file:
            if offset:
                file.seek(offset)
            # Files in /proc have no size, so the end is found by reading.
            return (file.readall() if limit is None else file.read(limit)) or b""
    finally:
        os.close(handle)
