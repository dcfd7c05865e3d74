"""One answer as it streams, each verify's tokens on a ground of their own."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Markdown, Static

from ..answers import Answer


class AnswerView(VerticalScroll, can_focus=True):
    """Plain text while it streams (a Markdown widget must not be updated under the mouse); Markdown once it has ended."""

    topic = "playground"
    ALLOW_MAXIMIZE = True

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, classes="framed")
        self.border_title = "Answer"
        self._static = Static("", markup=False)
        self._markdown: Markdown | None = None
        self._text = Text()

    def compose(self) -> ComposeResult:
        yield self._static

    @property
    def text(self) -> str:
        return self._text.plain

    def show_answer(self, answer: Answer | None, count: int, remark: str) -> None:
        """Show one of ``count`` answers; ``remark`` stands in the lower edge, and without one what the shades mean."""
        if answer is None:
            self.border_title = "Answer"
            self._put(Text("No answer yet: enter sends the prompt, e edits it.", style="dim"))
            self.border_subtitle = Text(remark).markup
            return
        which = f"Answer {answer.number + 1} of {count} ─ " if count > 1 else ""
        self.border_title = Text(which + answer.figures(brief=True)).markup
        shades = self._shades()
        self.border_subtitle = Text(
            remark or ("shades: one verify each" if shades else "underline on, off: one verify each")
        ).markup
        at_end = self.scroll_y >= self.max_scroll_y - 1
        self._put(answer.shaded(shades))
        if answer.record is None and at_end:
            self.scroll_end(animate=False)

    def _shades(self) -> tuple[str, ...]:
        """The theme's three grounds; none where they would all look alike."""
        sixteen = self.app.console.color_system == "standard" and not self.app.is_headless
        if self.app.no_color or sixteen:
            return ()
        variables = self.app.theme_variables
        return tuple(variables[name] for name in ("shade-1", "shade-2", "shade-3") if variables.get(name))

    def _put(self, text: Text) -> None:
        if text != self._text:
            self._text = text
            self._static.update(text)

    async def toggle_markdown(self, answer: Answer) -> None:
        """Show a finished answer as Markdown, or go back to its shaded text."""
        if self._markdown is not None:
            await self.plain()
            return
        self._markdown = Markdown(answer.text)
        self._static.display = False
        await self.mount(self._markdown)

    async def plain(self) -> None:
        """Back to plain text."""
        if self._markdown is not None:
            await self._markdown.remove()
            self._markdown = None
            self._static.display = True
