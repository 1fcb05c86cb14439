"""The rich console for tables, progress bars and messages of the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from meristem.utils.terminal import printable


class TerminalConsole(Console):
    """A console that prints untrusted text verbatim: no markup, no emoji codes, no control characters.

    Control characters are escaped on a terminal, or everywhere with `escape=True`. In a notebook the lines are one
    block of plain text under the cell, not an HTML output each.
    """

    def __init__(self, *, escape: bool = False, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})
        self._escape = escape
        if self.is_jupyter:
            self.is_jupyter, self.stderr = False, False

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as rich text; escaped first, so that column widths include the escapes."""
        return super().render_str(self._printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable, escaped; rich's own control segments are left unchanged."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=self._printable(segment.text))

    def _printable(self, text: str) -> str:
        return printable(text) if self._escape or self.is_terminal else text
