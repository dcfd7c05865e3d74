"""Changes of the configuration file: single values and profiles, with everything else in it left as it is, comments too."""

from __future__ import annotations

import codecs
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .config import load_config
from .knobs import Value
from .paths import read_file


def set_value(path: Path, keys: Sequence[str], value: str | int | float | bool | None) -> None:
    """Set (``None`` removes) one value of the file, keeping everything else as it is, comments too.

    Args:
        keys: the tables and the key, outermost first: ``("profiles", "long", "draft_window")``.

    Raises:
        ValueError: the file is broken and is therefore left alone; the message says where.
        OSError: it cannot be written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import Table

    path = path.resolve()
    try:
        # Bytes, because reading a file as text would turn its CR LF into LF.
        data = read_file(path) if path.exists() else b""
        document = tomlkit.parse(data.decode("utf-8-sig"))
    except (TOMLKitError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML ({error}); mend it first, it was left as it is") from None
    table: Table | tomlkit.TOMLDocument = document
    for depth, key in enumerate(keys[:-1]):
        if key not in table:
            # Only the innermost table gets a header of its own; [hosts] above [hosts.gpu-a] would be noise.
            table.add(key, tomlkit.table(is_super_table=depth < len(keys) - 2))
        inner = table[key]
        if not isinstance(inner, Table):
            raise ValueError(f"{path}: {key} is not a table; mend it first, it was left as it is")
        table = inner
    if value is None:
        if keys[-1] in table:
            table.remove(keys[-1])
    else:
        table[keys[-1]] = value
    # Some editors begin a file with a byte order mark, and want it there again.
    mark = codecs.BOM_UTF8.decode() if data.startswith(codecs.BOM_UTF8) else ""
    _replace(path, mark + tomlkit.dumps(document))


def save_profile(path: Path, name: str, settings: Mapping[str, Value]) -> None:
    """Write ``[profiles.NAME]`` with exactly these settings. Raises: as :func:`set_value`."""
    known = load_config(path).config.profiles.get(name, {})
    for knob in known:
        if knob not in settings:
            set_value(path, ("profiles", name, knob), None)
    for knob, value in settings.items():
        set_value(path, ("profiles", name, knob), value)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    try:
        # A profile may hold a key: the new file is never more open than the old one was.
        temporary.touch(0o600)
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.write_bytes(text.encode())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
