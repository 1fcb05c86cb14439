"""Label noise report in the terminal: suspects, the noise matrix, near duplicates, triggers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from meristem.drawing.terminal_tables import report_table, short_text, with_title
from meristem.trust.label_noise.label_noise_report import LabelNoiseReport

MAX_SUSPECTS, MAX_PAIRS, MAX_MATRIX_LABELS = 20, 10, 8
"""Rows printed; the JSON has all."""


def label_noise_tables(report: LabelNoiseReport) -> Iterator[RenderableType]:
    """The tables of the report, in order."""
    yield Text(noise_summary(report), style="bold")
    if report.suspects:
        yield _suspects_table(report)
    if len(report.labels) <= MAX_MATRIX_LABELS:
        yield _matrix_table(report)
    if report.duplicates:
        yield _duplicates_table(report)
    if report.triggers:
        yield _triggers_table(report)


def noise_summary(report: LabelNoiseReport) -> str:
    """What was found, in one line."""
    return (
        f"{report.num_samples:,} {report.unit}: about {100 * report.noise_rate:.1f} % wrong labels "
        f"({len(report.suspects):,} suspects), {len(report.leaks):,} near duplicates across files, "
        f"{len(report.contradictions):,} with another label, {len(report.triggers):,} planted triggers"
    )


def _suspects_table(report: LabelNoiseReport) -> RenderableType:
    table = report_table()
    for heading in ("given", "suggested"):
        table.add_column(heading, max_width=16, overflow="fold")
    table.add_column("p", justify="right", no_wrap=True)
    table.add_column("text", ratio=1, overflow="fold")
    for suspect in report.suspects[:MAX_SUSPECTS]:
        text = Text.assemble(short_text(suspect.text, 120), "\n", (suspect.location, "dim"))
        probability = f"{suspect.given_probability:.2f} → {suspect.suggested_probability:.2f}"
        table.add_row(short_text(suspect.given, 30), short_text(suspect.suggested, 30), probability, text)
    shown = min(MAX_SUSPECTS, len(report.suspects))
    return with_title(f"Labels that are probably wrong, the first {shown} of {len(report.suspects):,}", table)


def _matrix_table(report: LabelNoiseReport) -> RenderableType:
    numbers = [str(number) for number in range(1, len(report.labels) + 1)]
    table = report_table(["", "given"], numbers)
    for number, label, row in zip(numbers, report.labels, report.noise_matrix, strict=True):
        table.add_row(number, short_text(label, 24), *(f"{100 * share:.1f}" for share in row))
    return with_title(
        f"Estimated noise matrix: % of the {report.unit} with a given label (row) that truly have which", table
    )


def _duplicates_table(report: LabelNoiseReport) -> RenderableType:
    table = report_table(["sample", "is nearly"])
    table.add_column("labels", no_wrap=True)
    table.add_column("text", ratio=1, overflow="fold")
    worst_first = sorted(report.duplicates, key=lambda pair: (not pair.contradicts, not pair.across_files))
    for pair in worst_first[:MAX_PAIRS]:
        labels = f"{pair.label} / {pair.other_label}" if pair.contradicts else pair.label
        table.add_row(
            short_text(pair.location, 30), short_text(pair.other_location, 30), labels, short_text(pair.text, 80)
        )
    return with_title(f"Near duplicates across files or with another label: {len(report.duplicates):,}", table)


def _triggers_table(report: LabelNoiseReport) -> RenderableType:
    table = report_table(["sequence", "label"], ["samples", "with label", "expected"])
    table.add_column("first", overflow="fold")
    for trigger in report.triggers:
        table.add_row(
            short_text(trigger.sequence, 40),
            short_text(trigger.label, 20),
            f"{trigger.samples:,}",
            f"{100 * trigger.share_with_label:.0f} %",
            f"{100 * trigger.expected_share:.0f} %",
            short_text(", ".join(trigger.locations[:3]), 80),
        )
    return with_title("Rare sequences that fix the label against the rest of the text", table)
