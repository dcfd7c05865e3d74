"""A command line's own words: flags that nobody knows, and folders that are not there."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.local_paths import expanded, is_file, unreachable
from engine_launch.spec.flags import CONFIG_FILE, FlagError, resolve

FOLDERS = {
    "--model-path": "flags target",
    "--speculative-draft-model-path": "flags drafter",
    "--tokenizer-path": "flags tokenizer",
}
"""Flags whose value is a folder or the name of a model on a hub, and what their check is called."""
UNEXPANDED = "SGLang does not know ~, which a shell leaves as it is behind = and in quotes: write the path in full."
WINDOW, OLD_WINDOW = "--speculative-draft-window-size", "--speculative-dflash-draft-window-size"
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


def check_config_file(flags: Mapping[str, str], words: Sequence[str] = ()) -> Check | None:
    """SGLang's file of more flags: it is there and SGLang will read it. ``None`` when none is named.

    Args:
        words: the command line as it was written.
    """
    name = "flags config"
    passed_over = next((word for word in words if _is_config(word) and word != CONFIG_FILE), None)
    if passed_over is not None:
        return fail(
            name,
            f"{passed_over}: SGLang reads a file of flags only where {CONFIG_FILE} and its path are two words, and passes over "
            f"this one without saying so. Write {CONFIG_FILE} PATH.",
        )
    if list(words).count(CONFIG_FILE) > 1:
        return fail(name, f"{CONFIG_FILE} is given {list(words).count(CONFIG_FILE)} times, and SGLang takes one file.")
    value = flags.get(CONFIG_FILE)
    if value is None:
        return None
    if not value:
        return fail(name, f"{CONFIG_FILE} needs the path of a YAML file.")
    if value.startswith("~"):
        return fail(name, f"{CONFIG_FILE} {value}: {UNEXPANDED}")
    if not value.lower().endswith((".yaml", ".yml")):
        return fail(name, f"{CONFIG_FILE} {value}: SGLang takes only a file whose name ends in .yaml or .yml.")
    try:
        text = expanded(value).read_text("utf-8")
    except UnicodeDecodeError:
        return fail(name, f"{CONFIG_FILE} {value}: is not UTF-8 text, and so no YAML.")
    except (OSError, ValueError) as error:
        return fail(name, f"{CONFIG_FILE} {value}: cannot be read: {getattr(error, 'strerror', None) or error}.")
    if not text.strip():
        return warn(name, f"{CONFIG_FILE} {value}: the file is empty.")
    problem = _yaml_problem(text)
    if problem:
        return fail(name, f"{CONFIG_FILE} {value}: {problem}")
    return ok(name, f"{value}: SGLang takes more flags from it, which are not looked at here")


def _is_config(word: str) -> bool:
    """Whether SGLang's parser takes a word for ``--config``, be it cut short or with its value behind ``=``."""
    spelling = word.partition("=")[0]
    return len(spelling) >= len("--conf") and CONFIG_FILE.startswith(spelling)


def _yaml_problem(text: str) -> str:
    """Why a file of flags is none, or an empty text; where no reader of YAML is at hand, nothing is said against it."""
    if importlib.util.find_spec("yaml") is None:
        return ""
    yaml = importlib.import_module("yaml")
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"is no YAML: {' '.join(str(error).split())[:200]}."
    if content is not None and not isinstance(content, dict):
        return "holds no flags: write one of them a line, as tp-size: 8."
    refused = [key for key in content or () if str(key).replace("_", "-") == WINDOW.removeprefix("--")]
    if refused:
        return (
            f"SGLang 0.5.17 takes {refused[0]} from no file (the flag has two spellings). Write {OLD_WINDOW.removeprefix('--')} "
            f"there, or give {WINDOW} on the command line."
        )
    return ""


def _may_hold(flag: str, folder: Path, flags: Mapping[str, str]) -> bool:
    """Whether a folder may be what ``flag`` names: a tokenizer needs no configuration of a model, Mistral's own form has another
    file for it, and it may be given apart."""
    apart = flag == "--tokenizer-path" or "--decrypted-config-file" in flags
    return apart or any(is_file(folder / name) for name in ("config.json", "params.json"))


def check_folders(flags: Mapping[str, str], sglang: bool = False) -> list[Check]:
    """Values that can only be paths, and lead to nothing that a model could be read from.

    Args:
        sglang: it is SGLang that will read them, which puts no home folder in the place of ``~``.
    """
    checks = []
    for flag, name in FOLDERS.items():
        value = flags.get(flag, "")
        if not value.startswith(_PATH_BEGINNINGS):
            continue
        path = expanded(value)
        if sglang and value.startswith("~"):
            checks.append(fail(name, f"{flag} {value}: {UNEXPANDED}"))
        elif problem := unreachable(path):
            checks.append(fail(name, f"{flag} {value}: cannot be looked at by this user: {problem}."))
        elif not path.exists():
            checks.append(
                fail(name, f"{flag} {value}: there is no such folder on this machine. A model on a hub is named ORG/NAME.")
            )
        elif path.is_dir() and not _may_hold(flag, path, flags):
            checks.append(fail(name, f"{flag} {value}: there is no config.json in this folder, so it holds no model."))
    return checks
