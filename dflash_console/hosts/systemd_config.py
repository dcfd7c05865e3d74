"""A unit's configuration as it was read last: what it makes the unit run, and the edits that would make it run something else.

Nothing here asks the host: see ``systemd_files.py`` for how the files are found, read and written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..evidence.unit_command import CommandView, expand_loaded, specifier_values, view_command
from ..evidence.unit_drop_in import RebaseError, Shadow, find_shadow, rebase
from ..evidence.unit_edit import UnitEditError, write_command
from ..evidence.unit_remarks import unit_remarks
from ..evidence.unit_specifiers import UnitName, replace_specifiers
from ..evidence.unit_step import Places
from .service import ConfigSource, FileEdit, ServiceConfig, Texts
from .systemd_files import FoundFiles
from .systemd_manager import LoadedCommand
from .systemd_state import service_state
from .transport import HostError

_NOT_OURS = ("/usr/", "/lib/", "/run/", "/proc/", "/dev/")
"""A file there is a package's or a generator's."""


@dataclass(frozen=True)
class UnitConfiguration:
    """The files of one unit at one moment."""

    unit: str
    drop_in: str
    """The console's own drop-in, which may not exist."""
    author: str
    """Who edits, for the drop-in's comment."""
    found: FoundFiles

    def shown(
        self, properties: Mapping[str, str], loaded: LoadedCommand | None, folders: Mapping[str, float | None]
    ) -> ServiceConfig:
        """The configuration beside what the manager says of it.

        Args:
            properties: of ``systemctl show``.
            loaded: the command that the manager has loaded; ``None`` = it cannot be known.
            folders: where further files may appear, with the times of their last change.
        """
        found, view = self.found, view_command(self.found.files)
        argv = expand_loaded(loaded.argv, view, loaded.environment) if loaded is not None else None
        problems = [*found.unreadable.values(), *view.problems]
        if view.unit.refused and not found.unreadable:
            problems.append(f"{found.layout.fragment or self.unit}: {view.unit.refused}")
        problems += _missing_files(found, view)
        if not found.layout.fragment:
            problems.insert(0, f"{self.unit}: its unit file is gone")
        if found.mask and properties.get("LoadState") != "masked":
            problems.insert(0, f"{self.unit}: {found.mask} masks it, so nothing can start it")
        if properties.get("LoadState") == "masked":
            # The mask is an empty file in the unit's place: whatever that lacks, this is why.
            problems.insert(0, f"{self.unit}: {service_state(self.unit, properties).detail}")
        shadow = find_shadow(found.files, self.drop_in)
        return ServiceConfig(
            sources=tuple(ConfigSource(path, text, found.mtimes.get(path)) for path, text in self._texts().items()),
            # What systemd has loaded is known to anyone; a guess from a part of the files would not be.
            command=argv if found.unreadable and argv is not None else view.argv,
            loaded=argv,
            environment={name: entry.value for name, entry in view.environment.items()},
            problems=tuple(problems),
            remarks=unit_remarks(view),
            shadowed=_shadow_words(shadow) if shadow is not None else "",
            command_path=view.command.path if view.command is not None else "",
            folders={**folders, **dict.fromkeys(found.absent)},
        )

    def edits(self, command: tuple[str, ...]) -> tuple[FileEdit, ...]:
        """The edits that make ``command`` the effective one. Raises: HostError."""
        try:
            changed = write_command(self.found.files, self._places(), command)
        except UnitEditError as error:
            raise HostError(str(error)) from None
        return self._edits({path: changed.text(path) for path in (*self._texts(), self.drop_in)})

    def rebase(self) -> tuple[FileEdit, ...]:
        """The edits that carry the console's drop-in over to the unit as it is now. Raises: HostError: both changed the same."""
        try:
            changed = rebase(self.found.files, self.drop_in, self.author)
        except RebaseError as error:
            raise HostError(str(error)) from None
        return self._edits({self.drop_in: changed.text(self.drop_in)})

    def release(self) -> tuple[FileEdit, ...]:
        """The edit that removes the console's drop-in, so that the unit's own command is in effect; none when there is none."""
        return self._edits({self.drop_in: None})

    def restorable(self) -> Texts:
        """The files that a roll-back may write, with their texts."""
        ours = {self.drop_in, *self._places().own}
        return {self.drop_in: None} | {path: text for path, text in self._texts().items() if path in ours}

    def command(self) -> tuple[str, ...]:
        """The effective command. Raises: HostError: there is none."""
        view = view_command(self.found.files)
        if view.unit.refused or not view.argv or not self.found.layout.fragment:
            why = view.unit.refused or ("there is no command in it" if self.found.layout.fragment else "its unit file is gone")
            raise HostError(f"{self.unit}: {why}")
        return view.argv

    def ours(self) -> Texts:
        """The files that a roll-back may write where the manager loads nothing of what is there, with their texts: beside those
        of :meth:`restorable` the unit's own file, unless it is a package's. Without those that nobody may read."""
        fragment, folder = self.found.layout.fragment, self.drop_in.rpartition("/")[0]
        own = {path for path in self.found.layout.drop_ins if path.rpartition("/")[0] == folder}
        if fragment and not fragment.startswith(_NOT_OURS):
            own.add(fragment)
        return {path: text for path, text in self._texts().items() if path in own} | dict(self.restorable())

    def _places(self) -> Places:
        files, folder = self.found.files, self.drop_in.rpartition("/")[0]
        own = {source.path for source in files.sources[1:] if source.path.rpartition("/")[0] == folder} - self.found.links
        env = {file.path for file in files.env_files if file.text is not None and not file.path.startswith(_NOT_OURS)}
        # Named without a specifier in a template: every instance reads that file.
        named = {file.path for file in view_command(files).unit.environment_files}
        shared = env & named if UnitName(self.unit).instance else set()
        return Places(self.drop_in, frozenset(own | env), frozenset(shared), self.author)

    def _texts(self) -> dict[str, str]:
        """The unit, its drop-ins and its environment files, in this order."""
        files = self.found.files
        env = {file.path: file.text for file in files.env_files if file.text is not None}
        return {source.path: source.text for source in files.sources} | env

    def _edits(self, texts: Mapping[str, str | None]) -> tuple[FileEdit, ...]:
        edits = []
        for path, text in texts.items():
            old = self.found.files.text(path)
            if old == text:
                continue
            if "\ufffd" in (old or "") + (text or ""):
                raise HostError(
                    f"{path} holds bytes that are no UTF-8: it cannot be edited here without losing them; edit it by hand"
                )
            edits.append(FileEdit(path, old, text))
        return tuple(edits)


def _missing_files(found: FoundFiles, view: CommandView) -> list[str]:
    values = specifier_values(found.files)
    named = [(file, replace_specifiers(file.path, values).value) for file in view.unit.environment_files if not file.optional]
    return [
        f"{file.named_in}:{file.line}: {path} does not exist, so systemd cannot start the unit"
        for file, path in named
        if path in found.absent
    ]


def _shadow_words(shadow: Shadow) -> str:
    changed = f" ({shadow.words})" if shadow.words else ""
    return (
        f"{shadow.path} hides a change of the unit's own command{changed}: rebase it to take the change over, or release it to "
        "go back to the unit's own command"
    )
