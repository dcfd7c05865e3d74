"""A unit's files on a host: found in systemd's order, read, and written whole or not at all, with root's rights where needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..evidence.file_edits import Texts
from ..evidence.unit import DIRECTORIES, EffectiveUnit, UnitSource, read_unit
from ..evidence.unit_command import EnvText, UnitFiles, specifier_values
from ..evidence.unit_order import UnitLayout, drop_in_folders, lay_out, unit_candidates
from ..evidence.unit_specifiers import BY_NAME, replace_specifiers, specifier_letters
from ..evidence.unit_words import variables_in
from .replace_file import replace_command
from .systemd_manager import Manager, ManagerFacts, said
from .transport import HostFileError

_GLOB = frozenset("*?[")
_SPECIFIERS = """
for x in o:ID w:VERSION_ID B:BUILD_ID W:VARIANT_ID A:IMAGE_VERSION M:IMAGE_ID; do
  v=$( (. /etc/os-release; eval "printf %s \\"\\${${x#*:}:-}\\"") 2>/dev/null) || v=
  printf '%s=%s\\n' "${x%%:*}" "$v"
done
printf 'H=%s\\n' "$(uname -n)"; h=$(uname -n); printf 'l=%s\\n' "${h%%.*}"
printf 'm=%s\\n' "$(cat /etc/machine-id)"; printf 'b=%s\\n' "$(tr -d - < /proc/sys/kernel/random/boot_id)"
printf 'v=%s\\n' "$(uname -r)"
case $(uname -m) in x86_64) a=x86-64;; aarch64) a=arm64;; *) a=$(uname -m | tr _ -);; esac; printf 'a=%s\\n' "$a"
printf 'g=%s\\nG=%s\\n' "$(id -gn)" "$(id -g)"
printf 's=%s\\n' "$(getent passwd "$(id -u)" | cut -d: -f7)"
"""


@dataclass(frozen=True)
class FoundFiles:
    """A unit's files as they were read."""

    files: UnitFiles
    layout: UnitLayout
    mtimes: dict[str, float]
    unreadable: dict[str, str]
    """Path → why a file that counts cannot be read."""
    absent: tuple[str, ...] = ()
    """Environment files that are named and not there."""
    links: frozenset[str] = frozenset()
    """Drop-ins that are symbolic links: what they lead to may be other units' too."""

    @property
    def mask(self) -> str:
        """The file that masks the unit on disk (a link to ``/dev/null``, or an empty one); empty when none does."""
        path = self.layout.fragment
        return path if self.layout.masked or (path and self.files.text(path) == "") else ""


class UnitFileStore:
    """Finds, reads and writes the files of one unit."""

    def __init__(self, manager: Manager, unit: str) -> None:
        self._manager = manager
        self._transport = manager.transport
        self._unit = unit
        self._specifiers: dict[str, str] | None = None

    async def find(self, names: Sequence[str], fragment: str, instead: Texts | None = None) -> FoundFiles:
        """Everything on disk that makes up the unit, loaded or not.

        Args:
            names: the unit's own name and its aliases.
            fragment: the unit file that the manager has loaded; empty when it has none.
            instead: texts that are taken for those of files, there or not (``None``: not there).

        Raises:
            HostError
        """
        instead = instead or {}
        layout, links = await self._layout(names, fragment, instead)
        paths = [path for path in (layout.fragment, *layout.drop_ins) if path]
        texts = dict(zip(paths, await asyncio.gather(*(self._text(path, instead) for path in paths)), strict=True))
        unreadable = {path: text.why for path, text in texts.items() if text.text is None}
        sources = tuple(UnitSource(path, text.text) for path, text in texts.items() if text.text is not None)
        specifiers = await self._values(sources)
        files = UnitFiles(self._unit, sources, specifiers=specifiers)
        named = await self._env_files(files, instead)
        env = {path: text for path, text in named.items() if not text.missing}
        unreadable.update({path: text.why for path, text in env.items() if text.text is None})
        files = UnitFiles(
            self._unit,
            sources,
            tuple(EnvText(path, text.text) for path, text in env.items()),
            specifiers,
            await self._ambient(sources),
        )
        mtimes = {path: text.mtime for path, text in {**texts, **env}.items() if text.mtime is not None}
        return FoundFiles(files, layout, mtimes, unreadable, tuple(path for path in named if path not in env), links)

    async def read(self, path: str) -> bytes:
        """A file's bytes, with root's rights when this user may not read it. Raises: HostFileError."""
        try:
            return await self._transport.read(path)
        except HostFileError as error:
            argv = await self._manager.root(["cat", "--", path]) if error.denied else None
            if argv is None or argv[0] == "cat":
                raise
            done = await self._transport.run(argv)
            if not done.ok:
                raise HostFileError(path, f"cannot read {path}: {said(done)}", missing="No such file" in said(done)) from None
            return done.stdout

    async def write(self, path: str, text: str | None, *, mode: int = 0o644) -> None:
        """Replace a file, or remove it (``None``). Raises: HostFileError."""
        if text is None:
            done = await self._manager.run_root(["rm", "-f", "--", path], changes=True)
        else:
            data = text.encode()
            argv = replace_command(path, len(data), mode, folder_mode=0o755)
            done = await self._manager.run_root(argv, stdin=data, changes=True)
        if not done.ok:
            why = said(done)
            raise HostFileError(
                path,
                f"cannot write {path}: {why}",
                denied="ermission denied" in why or "not permitted" in why,
                full="No space" in why or "Read-only" in why or "quota" in why,
            )

    async def folders(self, drop_ins: str) -> dict[str, float | None]:
        """Where files may appear that make the unit another, with the times of their last change.

        systemd's own NeedDaemonReload does not notice a drop-in in a folder that is new as well (seen with 252).
        """
        base, name = drop_ins.rpartition("/")[0], drop_ins.rpartition("/")[2]
        runtime = (
            "/run/systemd/system" if self._manager.scope == "system" else f"{(await self._manager.facts()).runtime}/systemd/user"
        )
        paths = [drop_ins, base, f"{runtime}/{name}", runtime]
        return await self._transport.mtimes(tuple(paths))

    async def _layout(self, names: Sequence[str], fragment: str, instead: Texts) -> tuple[UnitLayout, frozenset[str]]:
        load_path = (await self._manager.facts()).load_path
        candidates = unit_candidates(self._unit, load_path)
        folders = drop_in_folders(names or (self._unit,), load_path)
        # The folders are asked about in one go; most of them do not exist, which find says on standard error.
        marked = ["(", "-xtype", "l", "-printf", "@", "-o", "-true", ")", "-printf", "%y %s %p\\0"]
        argv = ["find", "-L", *candidates, *folders, "-maxdepth", "1", *marked]
        done = await self._transport.run(argv)
        kinds: dict[str, str] = {}
        links: set[str] = set()
        for record in done.stdout.decode("utf-8", "replace").split("\0"):
            kind, _, rest = record.partition(" ")
            size, _, path = rest.partition(" ")
            if path and (path in candidates or path.endswith(".conf")):
                links |= {path} if kind.startswith("@") else set()
                kind = kind.removeprefix("@")
                kinds[path] = "e" if kind == "f" and size == "0" and path not in candidates else kind
        for path, text in instead.items():
            if path in candidates or (path.endswith(".conf") and path.rpartition("/")[0] in folders):
                kinds.pop(path, None)
                kinds |= {} if text is None else {path: "f"}
        if fragment and fragment not in kinds and fragment not in instead:
            # An alias, or a unit that a generator or a link brought: the manager knows where it is.
            candidates = (fragment, *candidates)
            kinds[fragment] = "f"
        return lay_out(candidates, folders, kinds), frozenset(links)

    async def _text(self, path: str, instead: Texts) -> _Text:
        if path in instead:
            text = instead[path]
            return _Text(text, None, "" if text is not None else f"there is no {path}", text is None)
        try:
            data, stat = await asyncio.gather(self.read(path), self._mtime(path))
        except HostFileError as error:
            return _Text(None, None, str(error), error.missing)
        return _Text(data.decode("utf-8", "replace"), stat)

    async def _mtime(self, path: str) -> float | None:
        try:
            return (await self._transport.stat(path)).mtime
        except HostFileError:
            return None

    async def _env_files(self, files: UnitFiles, instead: Texts) -> dict[str, _Text]:
        values = specifier_values(files)
        paths: dict[str, None] = {}
        for named in read_unit(files.sources).environment_files:
            path = replace_specifiers(named.path, values).value
            for each in await self._expand(path, instead) if _GLOB & set(path) else (path,):
                paths[each] = None
        texts = await asyncio.gather(*(self._text(path, instead) for path in paths))
        return dict(zip(paths, texts, strict=True))

    async def _expand(self, pattern: str, instead: Texts) -> Iterable[str]:
        from fnmatch import fnmatchcase

        folder, _, name = pattern.rpartition("/")
        try:
            inside = await self._transport.listdir(folder)
        except HostFileError:
            inside = ()
        there = {f"{folder}/{each}" for each in inside} - {path for path, text in instead.items() if text is None}
        there |= {path for path, text in instead.items() if text is not None and path.rpartition("/")[0] == folder}
        return sorted(path for path in there if fnmatchcase(path.rpartition("/")[2], name))

    async def _values(self, sources: Sequence[UnitSource]) -> dict[str, str]:
        letters = frozenset[str]().union(*(specifier_letters(source.text) for source in sources)) - BY_NAME
        if not letters:
            return {}
        if self._specifiers is None:
            facts = await self._manager.facts()
            argv = ["sh", "-c", _SPECIFIERS]
            done = await self._transport.run(argv)
            pairs = (line.partition("=") for line in done.stdout.decode("utf-8", "replace").splitlines())
            found = {name: value for name, equals, value in pairs if equals}
            self._specifiers = {**found, "T": "/tmp", "V": "/var/tmp", **self._of_manager(facts)}
        path = sources[0].path if sources else ""
        return {**self._specifiers, "y": path, "Y": path.rpartition("/")[0]}

    def _of_manager(self, facts: ManagerFacts) -> dict[str, str]:
        if self._manager.scope == "system":
            places = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc"}
            root = {"u": "root", "U": "0", "g": "root", "G": "0", "h": "/root", "s": "/bin/sh"}
            return {**places, **root, "d": f"/run/credentials/{self._unit}"}
        config, home = facts.config_home, facts.home
        cache = facts.environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
        places = {"t": facts.runtime, "S": config, "C": cache, "L": f"{config}/log", "E": config}
        return {**places, "u": facts.user, "U": str(facts.uid), "h": home, "d": f"{facts.runtime}/credentials/{self._unit}"}

    def _directories(self, unit: EffectiveUnit, sources: Sequence[UnitSource], facts: ManagerFacts) -> dict[str, str]:
        """Variables that name the folders that the manager makes for the unit (``StateDirectory=`` …)."""
        places = self._of_manager(facts)
        values = {**places, **specifier_values(UnitFiles(self._unit, tuple(sources)))}
        found = {}
        for setting, letter in zip(DIRECTORIES, "tSCLE", strict=True):
            # A name may be followed by those of links to it.
            names = sorted(replace_specifiers(word.partition(":")[0], values).value for word in unit.lists.get(setting, ()))
            if names:
                variable = f"{setting.removesuffix('Directory').upper()}_DIRECTORY"
                found[variable] = ":".join(f"{places[letter]}/{name}" for name in names)
        if any(unit.setting(f"{how}Credential{kind}") for how in ("Load", "Set") for kind in ("", "Encrypted")):
            found["CREDENTIALS_DIRECTORY"] = places["d"]
        return found

    async def _ambient(self, sources: Sequence[UnitSource]) -> dict[str, str]:
        """Variables that a process of the unit gets beside the unit's own."""
        facts = await self._manager.facts()
        unit = read_unit(sources)
        found = {**facts.environment, **self._directories(unit, sources, facts)}
        user = unit.setting("User")
        taken = {name for word in (unit.start.argv if unit.start is not None else ()) for name in variables_in(word)}
        if user and self._manager.scope == "system" and taken & {"USER", "LOGNAME", "HOME", "SHELL"}:
            done = await self._transport.run(
                [
                    "getent",
                    "passwd",
                    "--",
                    replace_specifiers(user, specifier_values(UnitFiles(self._unit, tuple(sources)))).value,
                ]
            )
            fields = done.stdout.decode("utf-8", "replace").strip().split(":")
            if len(fields) == 7:
                found |= {"USER": fields[0], "LOGNAME": fields[0], "HOME": fields[5], "SHELL": fields[6]}
                # systemd leaves these out where they say nothing.
                if fields[5] in ("/", "/nonexistent"):
                    del found["HOME"]
                if fields[6].endswith(("/nologin", "/false")):
                    del found["SHELL"]
        return found


@dataclass(frozen=True)
class _Text:
    text: str | None
    mtime: float | None = None
    why: str = ""
    """Why it cannot be read."""
    missing: bool = False
