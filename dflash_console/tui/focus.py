"""Keys that come in one read with the key that opened a field are its text, and no commands.

Textual (8.2.8) hands every key to what has the focus when it arrives, and a key's action comes a few turns of the event loop
later. Over SSH several keys often come at once: of ``pretty``, typed quickly, ``p`` would open the prompt, ``r`` ask about a
restart, and ``y`` answer.
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import App
from textual.dom import NoScreen
from textual.widget import Widget


def take_focus(widget: Widget) -> None:
    """Give the focus at once. ``Widget.focus`` does it after whatever already waits in the queue, the next key among that."""
    try:
        widget.screen.set_focus(widget)
    except NoScreen:
        return


class Key(events.Key):
    """A key that was handed to the field which had the focus when its action's turn came. Its name makes it a key to widgets."""


def hand_to_field(app: App[Any], event: events.Key) -> bool:
    """Whether a key for which nobody before the application had a use is text of the field that has the focus by now.

    A field keeps what it takes as text, so a key that comes this far was sent to what had the focus before.
    """
    field = app.focused
    if field is None or isinstance(event, Key) or not field.check_consume_key(event.key, event.character):
        return False
    field._forward_event(Key(event.key, event.character))
    return True
