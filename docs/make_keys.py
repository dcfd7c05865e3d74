"""Write docs/keys.md from the program's own bindings and their tooltips: ``python docs/make_keys.py``."""

from __future__ import annotations

from pathlib import Path

from dflash_console.tui.all_bindings import all_bindings
from dflash_console.tui.keymap import key_names

DOCUMENT = Path(__file__).with_name("keys.md")

GROUPS = {
    "Everywhere": ("screen", "app", "panel"),
    "The server and its settings": ("change", "operation"),
    "Dashboard": ("plot", "prompt"),
    "Configure": ("settings",),
    "Truth": ("truth",),
    "Logs": ("log",),
    "Playground": ("playground",),
    "Hosts": ("hosts",),
    "Dialogs": (
        "dialog",
        "plan",
        "apply",
        "unfinished",
        "profiles",
        "hostkey",
        "addhost",
        "choose",
        "suites",
        "compare",
        "tree",
        "commands",
    ),
}
"""Title → first parts of the actions' names."""

INTRODUCTION = """\
# Keys

`?` shows the keys that work on the screen you are on, and `:` finds any action by its name. In a text field printable keys
type; `esc` leaves it. No action needs a ctrl chord: multiplexers and terminals take those.

Every action has a name by which the configuration file can put it on other keys (several with commas; the key's own name
where it is not a letter: `left_square_bracket`, `f2`, `escape`):

```toml
[keymap]
"operation.restart" = "R"
"plot.longer" = "plus,greater_than_sign"
```

An action on a ctrl chord alone, one that does not exist, a key that no terminal sends, or one that two actions of a screen or
dialog would share, is said when the console opens, and by `ddtree-console doctor`; the rest of the keymap works.
"""


def render() -> str:
    """The document's text."""
    bindings = [binding for binding in all_bindings() if binding.id]
    parts = [INTRODUCTION]
    for title, prefixes in GROUPS.items():
        parts.append(f"## {title}\n\n| key | action | what it does |\n|---|---|---|")
        for binding in bindings:
            if str(binding.id).split(".")[0] in prefixes:
                keys = " ".join(f"`{key}`" for key in key_names(binding.key).split())
                parts.append(f"| {keys} | `{binding.id}` | {binding.tooltip or binding.description} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    DOCUMENT.write_text(render(), "utf-8")
