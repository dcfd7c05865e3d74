"""Workers of the screens, none of which fails unseen.

What a host refuses or breaks reaches a worker as :class:`~dflash_console.tui.link.LinkError`, and the worker says it. Anything
else is an error of the console's own: it is told, and reported like one that ends the console, and the console goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

if TYPE_CHECKING:
    from textual.app import App
    from textual.widget import Widget


def begin(
    owner: App[None] | Widget,
    work: Callable[[], Awaitable[None]],
    name: str,
    *,
    group: str = "default",
    exclusive: bool = False,
) -> Worker[None]:
    """Run ``work`` beside the screens.

    Args:
        owner: with whose end the worker ends.
        work: called when the worker begins; never, where it is cancelled before that.
        name: what is done, in words that can stand in a sentence.
        exclusive: end the other workers of this owner's ``group`` first.
    """
    return owner.run_worker(partial(_seen, owner, work, name), name=name, group=group, exclusive=exclusive)


async def _seen(owner: App[None] | Widget, work: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await work()
    except Exception as error:
        from .app import ConsoleApp

        app = owner.app
        if not isinstance(app, ConsoleApp) or not app.tell_error(error, name):
            raise
