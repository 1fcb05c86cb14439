"""The report on a corpus in a terminal, on at most two screens."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meristem.corpus.advice import listed, share
from meristem.corpus.examples import excerpt
from meristem.corpus.report import UNKNOWN, CorpusReport
from meristem.drawing.page import shortened, visible

WIDTH = 32
"""Characters of the longest bar."""

NOTHING = "(nothing)"
REASONS, PASSAGES, LANGUAGES = 6, 5, 8


def sections(report: CorpusReport) -> Iterator[RenderableType]:
    """One after the other; what there is nothing to say about is left out."""
    yield report.account.table()
    if report.account.kept:
        yield _titled("Lengths of kept documents, in characters", _lengths(report))
    if report.tokens is not None:
        found = report.tokens
        line = f"{found.tokens:,} tokens, {found.unknown:,} unknown ({100 * found.unknown_share:.3g} %)"
        yield _titled(f"Tokens of {found.tokenizer}", Text(line))
    if any(name != UNKNOWN for name in report.languages):
        of = "" if report.asked_all else f" of a sample of {report.looked.documents:,}"
        told = Text(listed(report.languages, report.languages.total(), LANGUAGES))
        yield _titled(f"Languages{of}", told)
    if report.account.examples:
        yield _titled("Examples of what was dropped", _examples(report))
    if report.account.passages:
        yield _titled("Lines that stand in many documents", _passages(report))
    yield _titled("What you could do", _advice(report))


def _titled(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(title, style="bold"), Padding(body, (0, 0, 1, 1)))


def _grid(*justify: str) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for side in justify:
        table.add_column(justify="right" if side == "right" else "left", no_wrap=side != "text", overflow="fold")
    return table


def _begun(text: str, cells: int) -> str:
    """How a text begins, in so many cells of the terminal; an ideograph takes two."""
    text = visible(text)
    return excerpt(text, cells // 2 if cell_len(text) > 1.5 * len(text) else cells)


def _bar(count: int, most: int) -> Text:
    """A bar in eighths of a character; something is always seen of what is there."""
    eighths = max(round(8 * WIDTH * count / max(most, 1)), 1 if count else 0)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + ("", *"▏▎▍▌▋▊▉")[rest], style="green")


def _lengths(report: CorpusReport) -> Table:
    table = _grid("right", "left", "right", "right")
    most = max(bar.count for bar in report.lengths)
    for bar in report.lengths:
        table.add_row(
            Text(bar.span, style="dim"), _bar(bar.count, most), f"{bar.count:,}", share(bar.count, report.account.kept)
        )
    return table


def _examples(report: CorpusReport) -> Table:
    table = _grid("text", "text")
    table.columns[0].width = 22
    dropped = report.account.dropped
    told = sorted(report.account.examples, key=lambda reason: -dropped[reason])
    for reason in told[:REASONS]:
        place, text = report.account.examples[reason][0]
        table.add_row(
            Text(shortened(reason, 40)),
            Text.assemble(_begun(text, 110) or NOTHING, "\n", (shortened(place, 70), "dim")),
        )
    if len(told) > REASONS:
        table.add_row("", Text(f"and {len(told) - REASONS} more reasons (--report page.html shows all)", style="dim"))
    return table


def _passages(report: CorpusReport) -> Table:
    table = _grid("right", "right", "text")
    for line, count in report.account.passages.most_common(PASSAGES):
        table.add_row(f"{count:,}", share(count, report.account.kept), Text(_begun(line, 120)))
    return table


def _advice(report: CorpusReport) -> RenderableType:
    if not report.advice:
        return Text("Nothing stands out.")
    table = _grid("left", "text")
    for one in report.advice:
        line = Text(shortened(one.finding, 240))
        if one.setting:
            line.append("\n").append(one.setting, style="bold green").append(f"  {one.effect}", style="dim")
        table.add_row("·", line)
    return table
