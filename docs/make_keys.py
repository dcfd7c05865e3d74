"""Write docs/keys.md from the program's own bindings: ``python docs/make_keys.py``.

What a key does is said here in a few words more than a footer has room for; an action without an entry is described by
its own tooltip.
"""

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

An action on a ctrl chord alone, or one that does not exist, is said when the console opens, and the rest of the keymap works.
"""

WORDS = {
    "screen.dashboard": "open the dashboard",
    "screen.configure": "open Configure",
    "screen.truth": "open the truth table",
    "screen.logs": "open the log",
    "screen.playground": "open the playground",
    "change.window": "compact draft cache on or off",
    "change.window_smaller": "its size: the next smaller step",
    "change.window_larger": "the next larger step",
    "change.layers_window": "the drafter layers' own window: as trained, or off",
    "change.budget_up": "tree budget: the next larger step",
    "change.budget_down": "the next smaller step",
    "change.topk_up": "top-k: one step more",
    "change.topk_down": "one step less",
    "change.speculation": "speculation on or off",
    "operation.apply": "show the plan of these edits and apply it",
    "change.discard": "take all edits back",
    "operation.restart": "start the service, or restart it, and confirm",
    "operation.rollback": "roll back to the last confirmed configuration",
    "operation.stop": "stop the service",
    "plot.shorter": "plots: a shorter span of time",
    "plot.longer": "a longer one",
    "panel.maximise": "the panel in focus fills the screen, and back",
    "app.explain": "explain the panel in focus",
    "app.quit": "quit; asks only while an operation runs",
    "app.help": "the keys that work here",
    "app.palette": "find any action by its name",
    "prompt.open": "open the prompt dock under the plots",
    "prompt.hide": "close it",
    "prompt.stop": "stop the prompts that run",
    "prompt.leave": "leave a text field",
    "prompt.earlier": "in a prompt: the prompt before",
    "prompt.later": "the prompt after",
    "settings.up": "the setting above",
    "settings.down": "the setting below",
    "settings.edit": "type a value",
    "settings.forget": "take this edit back",
    "settings.next": "the next value",
    "settings.previous": "the previous value",
    "settings.flag": "set any flag by its name",
    "settings.save_profile": "save these settings as a profile",
    "settings.load_profile": "load or compare a profile",
    "truth.up": "the row above",
    "truth.down": "the row below",
    "truth.mend": "press the key that mends this row",
    "log.follow": "stay at the newest line",
    "log.search": "search (regular expression)",
    "log.next": "the next match",
    "log.previous": "the previous match",
    "log.level": "filter by level",
    "log.starts": "this start, or all",
    "log.confirmation": "jump to the confirmation line",
    "log.fold": "open or close a traceback",
    "log.copy": "copy the line",
    "log.save": "save what is shown",
    "log.tree": "draw one verify",
    "log.left": "scroll to the left",
    "log.right": "scroll to the right",
    "log.up": "a line up",
    "log.down": "a line down",
    "log.page_up": "a page up",
    "log.page_down": "a page down",
    "log.home": "the first line",
    "log.end": "the last line",
    "log.end_search": "end the search",
    "playground.send": "send the prompt",
    "playground.edit": "edit the prompt",
    "playground.suites": "choose from a suite",
    "playground.stop": "stop",
    "playground.previous": "the answer before",
    "playground.next": "the answer after",
    "playground.compare_plain": "the same prompt with plain decoding: same output?",
    "playground.compare_earlier": "compare with the answer before",
    "playground.tree": "draw one verify",
    "playground.markdown": "a finished answer as Markdown",
    "playground.copy": "copy the answer",
    "playground.save": "save the answer",
}


def render() -> str:
    """The document's text."""
    bindings = [binding for binding in all_bindings() if binding.id]
    parts = [INTRODUCTION]
    for title, prefixes in GROUPS.items():
        parts.append(f"## {title}\n\n| key | action | what it does |\n|---|---|---|")
        for binding in bindings:
            if str(binding.id).split(".")[0] in prefixes:
                keys = " ".join(f"`{key}`" for key in key_names(binding.key).split())
                words = WORDS.get(str(binding.id)) or binding.tooltip or binding.description
                parts.append(f"| {keys} | `{binding.id}` | {words} |")
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    DOCUMENT.write_text(render(), "utf-8")
