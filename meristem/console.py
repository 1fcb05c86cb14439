"""The rich console that the command line prints tables, progress and messages on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from meristem.terminal import printable


class TerminalConsole(Console):
    """A console on which names and texts of strangers are text: no markup, no emoji codes, no control characters.

    Control characters are escaped where it writes to a terminal, or everywhere with `escape=True`.
    """

    def __init__(self, *, escape: bool = False, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})
        self._escape = escape

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as rich lays it out: escaped first, so that columns are wide enough for the escapes."""
        return super().render_str(self._printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything printed; those by which rich itself moves the cursor are marked as its own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=self._printable(segment.text))

    def _printable(self, text: str) -> str:
        return printable(text) if self._escape or self.is_terminal else text
