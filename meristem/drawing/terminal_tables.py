"""Tables of reports in the terminal: headings, alignment, titles and shortened texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meristem.drawing.html_page import shorten_middle


def report_table(headings: Sequence[str] = (), numbers: Sequence[str] = (), **options: Any) -> Table:
    """An empty table: columns of text, then right-aligned columns of numbers; `options` are those of text columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, **options)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def with_title(title: str, table: RenderableType) -> RenderableType:
    """A title on one line, even if the table is narrower."""
    return Group(Text(title, style="bold"), Padding(table, (0, 0, 0, 1)))


def short_text(text: str, max_chars: int = 60) -> Text:
    """A text for a cell, its middle left out where it is long."""
    return Text(shorten_middle(text, max_chars))
