"""A command line's own words: flags that nobody knows, and folders that are not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.spec.flags import CONFIG_FILE, FlagError, resolve

FOLDERS = {
    "--model-path": "flags target",
    "--speculative-draft-model-path": "flags drafter",
    "--tokenizer-path": "flags tokenizer",
}
"""Flags whose value is a folder or the name of a model on a hub, and what their check is called."""
_PATH_BEGINNINGS = ("/", "~", "./", "../")
"""A name on a hub has none of these."""


def check_spellings(flags: Mapping[str, str]) -> Check | None:
    """Flags that SGLang 0.5.17 and the plugin do not have; ``None`` when there are none. Another version may know more."""
    unknown = []
    for name in flags:
        if name == CONFIG_FILE:
            continue
        try:
            resolve(name)
        except FlagError as error:
            unknown.append(str(error))
    return warn("flags unknown", " ".join(unknown)) if unknown else None


def check_config_file(flags: Mapping[str, str]) -> Check | None:
    """SGLang's file of more flags: it is there and is text. ``None`` when none is named."""
    name, value = "flags config", flags.get(CONFIG_FILE)
    if value is None:
        return None
    if not value:
        return fail(name, f"{CONFIG_FILE} needs the path of a YAML file.")
    try:
        text = Path(value).expanduser().read_text("utf-8")
    except UnicodeDecodeError:
        return fail(name, f"{CONFIG_FILE} {value}: is not UTF-8 text, and so no YAML.")
    except (OSError, ValueError) as error:
        return fail(name, f"{CONFIG_FILE} {value}: cannot be read: {getattr(error, 'strerror', None) or error}.")
    if not text.strip():
        return warn(name, f"{CONFIG_FILE} {value}: the file is empty.")
    return ok(name, f"{value}: SGLang takes more flags from it, which are not looked at here")


def check_folders(flags: Mapping[str, str]) -> list[Check]:
    """Values that can only be paths, and lead to nothing that a model could be read from."""
    checks = []
    for flag, name in FOLDERS.items():
        value = flags.get(flag, "")
        if not value.startswith(_PATH_BEGINNINGS):
            continue
        path = Path(value).expanduser()
        if not path.exists():
            checks.append(
                fail(name, f"{flag} {value}: there is no such folder on this machine. A model on a hub is named ORG/NAME.")
            )
        elif path.is_dir() and not (path / "config.json").is_file():
            checks.append(fail(name, f"{flag} {value}: there is no config.json in this folder, so it holds no model."))
    return checks
