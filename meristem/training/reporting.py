"""What a finished task run leaves behind: report.html, report.json, and its part of the model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from meristem.checkpoint.run import Run
from meristem.drawing.curves import read_metrics
from meristem.drawing.page import shortened, written_now
from meristem.drawing.report import Report, number
from meristem.evaluation.reported import described, write_report
from meristem.learning.learner import Learner
from meristem.recipe import Recipe
from meristem.task import Judged, Sample, Task

NAMED = 40
"""Labels that a model card names."""


def report_of(
    run: Run,
    recipe: Recipe,
    learner: Learner,
    task: Task,
    samples: Mapping[str, Sequence[Sample]],
    *,
    split: str,
    judged: Judged,
    notices: Sequence[str],
    sources: Sequence[str],
    commands: Sequence[str],
) -> Report:
    """Everything known about a run that has ended, in one place."""
    return Report(
        name=run.path.name,
        task=recipe.task.name,
        model=described(recipe, learner),
        split=split,
        judged=judged,
        metric=task.metric,
        sizes={name: len(some) for name, some in samples.items()},
        sources=sources,
        baselines=task.baselines(samples["train"], samples[split]),
        notices=notices,
        recipe=recipe.plain(),
        commands=commands,
        curves=read_metrics(run.metrics_path),
        date=written_now(),
    )


def write(report: Report, folder: Path) -> None:
    """The page, and the same facts for programs."""
    for name in ("report.html", "report.json"):
        write_report(folder / name, report)


def card_lines(report: Report, labels: Sequence[str]) -> list[str]:
    """The task in a model card: what it answers, how well, how sure that is, beside what needs no model."""
    judged = report.judged
    headings = ["measure", "value", "95 % interval", *(_cell(name) for name in report.baselines)]
    lines = ["## Task", "", f"{report.task}{_named(labels)}", ""]
    lines += [f"On {judged.samples:,} {report.split} samples:", "", _row(headings), _row(["---"] * len(headings))]
    for name in report.metrics:
        low_high = judged.intervals.get(name)
        interval = f"{number(low_high[0])} – {number(low_high[1])}" if low_high else ""
        beside = [number(found[name]) if name in found else "" for found in report.baselines.values()]
        lines.append(_row([_cell(name), number(judged.metrics[name]), interval, *beside]))
    if judged.signature:
        lines += ["", f"Computed as `{judged.signature}`."]
    lines += ["", "Intervals by bootstrap. `report.html` has the confusions and the most confident mistakes.", ""]
    if report.notices:
        lines += ["What is strange about the data:", "", *(f"- {_cell(line, 300)}" for line in report.notices), ""]
    return lines


def _named(labels: Sequence[str]) -> str:
    if not labels:
        return "."
    some = ", ".join(f"`{_cell(label)}`" for label in labels[:NAMED])
    return f", {len(labels)} labels: {some}{', …' if len(labels) > NAMED else ''}."


def _cell(text: str, most: int = 60) -> str:
    """A text that cannot break a Markdown table."""
    return shortened(text, most).replace("|", "\\|").replace("`", "'")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
