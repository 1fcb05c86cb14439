"""Task report in the terminal: tables of metrics, confusions and mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from meristem.drawing.html_page import shorten_middle
from meristem.drawing.task_report import TaskReport, format_metric, top_confusions
from meristem.drawing.terminal_tables import report_table, short_text, with_title
from meristem.interfaces.task_evaluation import ConfusionMatrix

MAX_MATRIX_LABELS = 10
"""Labels of a confusion matrix that fit in a terminal."""
MAX_HEADER_CHARS = 50
"""Total characters of its column names."""
MAX_CONFUSIONS, MAX_MISTAKES = 8, 5


def task_report_tables(report: TaskReport) -> Iterator[RenderableType]:
    """The tables of the report, in order."""
    yield _metrics_table(report)
    if report.result.signature:
        yield Text(report.result.signature, style="dim")
    if (confusion := report.result.confusion) is not None:
        if 1 < len(confusion.labels) <= MAX_MATRIX_LABELS:
            yield _confusion_matrix(confusion)
        if top_confusions(confusion, 1):
            yield _confusions_table(confusion)
    if report.result.mistakes:
        yield _mistakes_table(report)


def _metrics_table(report: TaskReport) -> RenderableType:
    result = report.result
    table = report_table()
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", style="bold", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    for name in report.baselines:
        table.add_column(short_text(name, 40), justify="right", style="dim")
    for name in report.metric_names:
        interval = " – ".join(map(format_metric, result.intervals.get(name, ())))
        baseline_values = [
            format_metric(metrics[name]) if name in metrics else "" for metrics in report.baselines.values()
        ]
        table.add_row(short_text(name), format_metric(result.metrics[name]), interval, *baseline_values)
    return with_title(f"{report.task} on {result.num_samples:,} {report.split} samples", table)


def _confusion_matrix(confusion: ConfusionMatrix) -> RenderableType:
    """Columns are named, or numbered like the rows where the names would not fit."""
    names = [shorten_middle(label, 24) for label in confusion.labels]
    use_numbers = sum(cell_len(name) + 3 for name in names) > MAX_HEADER_CHARS
    headers = [str(row) for row in range(1, len(names) + 1)] if use_numbers else names
    table = report_table()
    if use_numbers:
        table.add_column("", justify="right", style="dim")
    table.add_column("")
    for header in headers:
        table.add_column(Text(header), justify="right")
    for row, name in enumerate(names):
        cells = [
            Text(f"{count:,}" if count else "·", style="bold" if column == row else "red" if count else "dim")
            for column, count in enumerate(confusion.matrix[row].tolist())
        ]
        table.add_row(*([headers[row]] if use_numbers else []), Text(name), *cells)
    return with_title("Confusion matrix (rows: gold labels, columns: predicted labels)", table)


def _confusions_table(confusion: ConfusionMatrix) -> RenderableType:
    table = report_table(["gold", "predicted"], ["times", "share"])
    for pair in top_confusions(confusion, MAX_CONFUSIONS):
        labels = short_text(pair.gold, 30), short_text(pair.prediction, 30)
        table.add_row(*labels, f"{pair.count:,}", f"{100 * pair.share:.0f} %")
    return with_title("Most frequent confusions", table)


def _mistakes_table(report: TaskReport) -> RenderableType:
    title = "Largest errors" if report.confidence_label == "off by" else "Most confident mistakes"
    table = report_table()
    table.add_column(report.confidence_label, justify="right", no_wrap=True)
    table.add_column("gold", max_width=24, overflow="fold")
    table.add_column("predicted", max_width=24, overflow="fold")
    table.add_column("input", ratio=1, overflow="fold")
    for mistake in report.result.mistakes[:MAX_MISTAKES]:
        location = shorten_middle(mistake.location, 60)
        input_text = Text.assemble(short_text(mistake.input_text, 160), "\n", (location, "dim"))
        confidence = report.format_confidence(mistake.confidence)
        table.add_row(confidence, short_text(mistake.gold, 80), short_text(mistake.prediction, 80), input_text)
    return with_title(title, table)
