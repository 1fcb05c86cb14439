"""The corpus report in the terminal, at most two screens long."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meristem.corpus.report.advice import format_share, format_top_shares
from meristem.corpus.report.corpus_report import UNKNOWN_LANGUAGE, CorpusReport
from meristem.corpus.report.dropped_examples import excerpt
from meristem.drawing.html_page import replace_control_chars, shorten_middle

MAX_BAR_CHARS = 32
"""Characters of the longest bar."""

EMPTY_TEXT = "(nothing)"
MAX_REASONS, MAX_REPEATED_LINES, MAX_LANGUAGES, MAX_PLANTED_ROWS, MAX_PLACES = 6, 5, 8, 5, 3


def report_sections(report: CorpusReport) -> Iterator[RenderableType]:
    """The sections of the report; empty ones are left out."""
    yield report.account.table()
    if report.account.kept:
        yield _add_title("Lengths of kept documents, in characters", _length_table(report))
    if report.tokens is not None:
        token_count = report.tokens
        line = (
            f"{token_count.tokens:,} tokens, {token_count.unknown:,} unknown ({100 * token_count.unknown_share:.3g} %)"
        )
        yield _add_title(f"Tokens of {token_count.tokenizer}", Text(line))
    if any(name != UNKNOWN_LANGUAGE for name in report.languages):
        scope = "" if report.has_all_languages else f" of a sample of {report.findings.documents:,}"
        language_shares = Text(format_top_shares(report.languages, report.languages.total(), MAX_LANGUAGES))
        yield _add_title(f"Languages{scope}", language_shares)
    if report.account.examples:
        yield _add_title("Examples of what was dropped", _example_table(report))
    if report.account.passages:
        yield _add_title("Lines that occur in many documents", _repeated_line_table(report))
    if report.findings.planted_continuations:
        yield _add_title("Rare sequences that always continue alike, anywhere in the text", _planted_table(report))
    yield _add_title("What you could do", _advice_table(report))


def _add_title(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(title, style="bold"), Padding(body, (0, 0, 1, 1)))


def _grid(*justify: str) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for side in justify:
        table.add_column(justify="right" if side == "right" else "left", no_wrap=side != "text", overflow="fold")
    return table


def _fit_excerpt(text: str, cells: int) -> str:
    """The beginning of a text in so many terminal cells; a Chinese character takes two."""
    text = replace_control_chars(text)
    return excerpt(text, cells // 2 if cell_len(text) > 1.5 * len(text) else cells)


def _bar(count: int, max_count: int) -> Text:
    """A bar in eighths of a character; never empty if the count is positive."""
    eighths = max(round(8 * MAX_BAR_CHARS * count / max(max_count, 1)), 1 if count else 0)
    num_full, remainder = divmod(eighths, 8)
    return Text("█" * num_full + ("", *"▏▎▍▌▋▊▉")[remainder], style="green")


def _length_table(report: CorpusReport) -> Table:
    table = _grid("right", "left", "right", "right")
    max_count = max(bar.count for bar in report.lengths)
    for bar in report.lengths:
        table.add_row(
            Text(bar.range_label, style="dim"),
            _bar(bar.count, max_count),
            f"{bar.count:,}",
            format_share(bar.count, report.account.kept),
        )
    return table


def _example_table(report: CorpusReport) -> Table:
    table = _grid("text", "text")
    table.columns[0].width = 22
    dropped = report.account.dropped
    reasons = sorted(report.account.examples, key=lambda reason: -dropped[reason])
    for reason in reasons[:MAX_REASONS]:
        location, text = report.account.examples[reason][0]
        table.add_row(
            Text(shorten_middle(reason, 40)),
            Text.assemble(_fit_excerpt(text, 110) or EMPTY_TEXT, "\n", (shorten_middle(location, 70), "dim")),
        )
    if len(reasons) > MAX_REASONS:
        table.add_row(
            "", Text(f"and {len(reasons) - MAX_REASONS} more reasons (--report page.html shows all)", style="dim")
        )
    return table


def _repeated_line_table(report: CorpusReport) -> Table:
    table = _grid("right", "right", "text")
    for line, count in report.account.passages.most_common(MAX_REPEATED_LINES):
        table.add_row(f"{count:,}", format_share(count, report.account.kept), Text(_fit_excerpt(line, 120)))
    return table


def _planted_table(report: CorpusReport) -> Table:
    table = _grid("right", "text", "text")
    for item in report.findings.planted_continuations[:MAX_PLANTED_ROWS]:
        locations = "\n".join(shorten_middle(location, 70) for location in item.locations[:MAX_PLACES])
        continuation = Text.assemble(_fit_excerpt(item.continuation, 90), "\n", (locations, "dim"))
        table.add_row(f"{item.places:,}", Text(_fit_excerpt(item.trigger, 30)), continuation)
    return table


def _advice_table(report: CorpusReport) -> RenderableType:
    if not report.advice:
        return Text("Nothing stands out.")
    table = _grid("left", "text")
    for item in report.advice:
        line = Text(shorten_middle(item.finding, 240))
        if item.setting:
            line.append("\n").append(item.setting, style="bold green").append(f"  {item.effect}", style="dim")
        table.add_row("·", line)
    return table
