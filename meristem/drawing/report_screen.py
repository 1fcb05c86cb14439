"""A task's report in a terminal: tables of numbers, confusions and mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meristem.drawing.page import shortened
from meristem.drawing.report import Report, confusions, number
from meristem.task import Confusion

WIDEST = 10
"""Labels of a confusion matrix that a terminal has room for."""
ROOM = 50
"""Characters that the names of its columns may take."""
CONFUSED, MISTAKES = 8, 5


def tables(report: Report) -> Iterator[RenderableType]:
    """One table after the other."""
    yield _numbers(report)
    if report.judged.signature:
        yield Text(report.judged.signature, style="dim")
    if (confusion := report.judged.confusion) is not None:
        if 1 < len(confusion.labels) <= WIDEST:
            yield _matrix(confusion)
        if confusions(confusion, 1):
            yield _confused(confusion)
    if report.judged.mistakes:
        yield _mistakes(report)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _titled(title: str, table: Table) -> RenderableType:
    """A title that is as wide as it is, whatever the table's width."""
    return Group(Text(title, style="bold"), Padding(table, (0, 0, 0, 1)))


def _text(text: str, most: int = 60) -> Text:
    return Text(shortened(text, most))


def _numbers(report: Report) -> RenderableType:
    judged = report.judged
    table = _table()
    table.add_column("measure", no_wrap=True)
    table.add_column("value", justify="right", style="bold", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    for name in report.baselines:
        table.add_column(_text(name, 40), justify="right", style="dim")
    for name in report.metrics:
        low_high = judged.intervals.get(name)
        interval = f"{number(low_high[0])} – {number(low_high[1])}" if low_high else ""
        beside = [number(found[name]) if name in found else "" for found in report.baselines.values()]
        table.add_row(_text(name), number(judged.metrics[name]), interval, *beside)
    return _titled(f"{report.task} on {judged.samples:,} {report.split} samples", table)


def _matrix(confusion: Confusion) -> RenderableType:
    """Columns are named, or numbered like the rows where their names would not fit."""
    names = [shortened(label, 24) for label in confusion.labels]
    numbered = sum(cell_len(name) + 3 for name in names) > ROOM
    heads = [str(place) for place in range(1, len(names) + 1)] if numbered else names
    table = _table()
    if numbered:
        table.add_column("", justify="right", style="dim")
    table.add_column("")
    for head in heads:
        table.add_column(Text(head), justify="right")
    for place, name in enumerate(names):
        cells = [
            Text(f"{count:,}" if count else "·", style="bold" if other == place else "red" if count else "dim")
            for other, count in enumerate(confusion.counts[place].tolist())
        ]
        table.add_row(*([heads[place]] if numbered else []), Text(name), *cells)
    return _titled("What was taken for what (rows: what is right, columns: what was said)", table)


def _confused(confusion: Confusion) -> RenderableType:
    table = _table()
    for heading in ("right", "said"):
        table.add_column(heading)
    for heading in ("times", "of those"):
        table.add_column(heading, justify="right")
    for one in confusions(confusion, CONFUSED):
        table.add_row(_text(one.gold, 30), _text(one.said, 30), f"{one.count:,}", f"{100 * one.share:.0f} %")
    return _titled("Confused most often", table)


def _mistakes(report: Report) -> RenderableType:
    title = "Furthest off" if report.confidence == "off by" else "The most confident mistakes"
    table = _table()
    table.add_column(report.confidence, justify="right", no_wrap=True)
    table.add_column("right", max_width=24, overflow="fold")
    table.add_column("said", max_width=24, overflow="fold")
    table.add_column("given", ratio=1, overflow="fold")
    for one in report.judged.mistakes[:MISTAKES]:
        given = Text.assemble(_text(one.given, 160), "\n", (shortened(one.place, 60), "dim"))
        table.add_row(report.sure(one.confidence), _text(one.gold, 80), _text(one.said, 80), given)
    return _titled(title, table)
