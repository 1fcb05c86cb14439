"""Robustness report in the terminal: tables of perturbations, flipped samples, abstention, hostile input, own tests."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from meristem.drawing.task_report import format_metric
from meristem.drawing.terminal_tables import report_table, short_text, with_title
from meristem.trust.robustness.robustness_report import NoiseResult, RobustnessReport

MAX_FLIPPED = 5
"""Flipped samples printed."""


def robustness_tables(report: RobustnessReport) -> Iterator[RenderableType]:
    """The tables of the report, in order."""
    yield Text(summary_line(report), style="bold")
    yield _noise_table(report)
    if skipped := [result for result in report.results if result.skipped]:
        reasons = dict.fromkeys(f"{result.perturbation}: {result.skipped}" for result in skipped)
        yield Text(f"Not measured: {'; '.join(reasons)}", style="dim")
    if report.worst is not None and report.worst.examples:
        yield _examples_table(report)
    if report.calibration is not None:
        yield _coverage_table(report)
    if report.behaviour_tests:
        yield _behaviour_table(report)
    yield _hostile_table(report)


def summary_line(report: RobustnessReport) -> str:
    """The clean metric and the worst drop."""
    clean = f"{report.metric} {format_metric(report.clean[report.metric])} on {report.num_samples:,} clean samples"
    if report.worst is None:
        return clean
    worst = report.worst
    return f"{clean}; worst drop {format_metric(worst.drop)} ({worst.perturbation}, severity {worst.severity:g})"


def _noise_table(report: RobustnessReport) -> RenderableType:
    table = report_table(["perturbation"], ["severity", report.metric, "drop", "95 % interval", "changed", "ECE"])
    clean_error = "" if report.calibration is None else f"{report.calibration.error:.3f}"
    table.add_row("none", "", _short(report.clean[report.metric]), "", "", "", clean_error)
    for result in report.measured:
        table.add_row(
            result.perturbation + ("*" if result.label_risk else ""),
            f"{result.severity:g}",
            _short(result.metrics[report.metric]),
            _short(result.drop),
            _interval(result.drop_interval),
            f"{100 * result.changed:.0f} %",
            "" if result.calibration_error is None else f"{result.calibration_error:.3f}",
        )
    star = " (* labels may change with the text)" if any(result.label_risk for result in report.measured) else ""
    return with_title(f"{report.task} under noise, largest drop first{star}", table)


def _short(value: float) -> str:
    return f"{value + 0.0:.3f}"


def _interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else " – ".join(map(_short, bounds))


def _examples_table(report: RobustnessReport) -> RenderableType:
    worst = report.worst
    assert isinstance(worst, NoiseResult)
    table = report_table()
    table.add_column("gold", max_width=20, overflow="fold")
    table.add_column("with noise", max_width=20, overflow="fold")
    table.add_column("text", ratio=1, overflow="fold")
    for example in worst.examples[:MAX_FLIPPED]:
        text = Text.assemble(short_text(example.after, 160), "\n", (example.location, "dim"))
        table.add_row(short_text(example.gold, 40), short_text(example.noisy_answer, 40), text)
    return with_title(f"Right without noise, wrong with {worst.perturbation}, severity {worst.severity:g}", table)


def _coverage_table(report: RobustnessReport) -> RenderableType:
    assert report.calibration is not None
    table = report_table(["samples"], ["answers given", "accuracy", "abstain below"])
    for name, calibration in (("clean", report.calibration), ("noisy", report.noisy_calibration)):
        for point in () if calibration is None else calibration.coverage:
            table.add_row(name, f"{100 * point.coverage:.0f} %", f"{point.accuracy:.4f}", f"{point.threshold:.3f}")
    return with_title("Accuracy of the answers that are given, if the others are withheld (--abstain-below)", table)


def _behaviour_table(report: RobustnessReport) -> RenderableType:
    table = report_table(["test", "kind"], ["cases", "failed", "95 % interval"])
    table.add_column("first failure", overflow="fold")
    for result in report.behaviour_tests:
        example = result.examples[0] if result.examples else None
        table.add_row(
            short_text(result.name, 40),
            result.kind.replace("_", " "),
            f"{result.cases:,}",
            f"{100 * result.failure_rate:.0f} %",
            _interval(result.failure_interval),
            "" if example is None else short_text(f"{' → '.join(example.texts)}: {example.answer}", 100),
        )
    return with_title("Tests of one's own", table)


def _hostile_table(report: RobustnessReport) -> RenderableType:
    table = report_table(["request", "outcome"])
    table.add_column("", overflow="fold")
    for request in report.hostile_requests:
        style = "bold red" if request.outcome == "failed" else ""
        table.add_row(request.name, Text(request.outcome, style=style), short_text(request.detail, 80))
    return with_title("Hostile requests", table)
