"""A judgement on labelled samples as it is handed out: one plain mapping, and a page where one is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk
from meristem.checkpoint.revive import Revived
from meristem.drawing.page import written_now
from meristem.drawing.report import Report, as_json
from meristem.drawing.report_page import page
from meristem.errors import MeristemError
from meristem.learning.learner import Learner
from meristem.recipe import Recipe
from meristem.task import Judged, Metrics, Task

FORMS = {".html": page, ".json": as_json}
"""What a report may be, by the end of its name."""


def reported(
    revived: Revived,
    task: Task,
    judged: Judged,
    *,
    split: str,
    data: str,
    notices: Sequence[str],
    losses: Metrics | None = None,
    baselines: Mapping[str, Metrics] | None = None,
    asked: Mapping[str, Any] | None = None,
    report: str | Path | None = None,
) -> dict[str, Any]:
    """The numbers with their intervals; `asked` is how they came about where it was not by training."""
    if report is not None:
        write_report(
            Path(report),
            Report(
                name=revived.run.path.name,
                task=task.name if asked is None else f"{task.name}, asked in words without training",
                model=described(revived.recipe, revived.learner),
                split=split,
                judged=judged,
                metric=task.metric,
                sizes={split: judged.samples},
                sources=[data],
                baselines=baselines or {},
                notices=notices,
                recipe=asked or revived.recipe.plain(),
                date=written_now(),
            ),
        )
    return {
        "metrics": {**(losses or {}), **judged.metrics},
        "intervals": {name: list(edges) for name, edges in judged.intervals.items()},
        "run": str(revived.run.path),
        "step": revived.step,
        "task": task.name,
        "data": data,
        "samples": {split: judged.samples},
        "signature": judged.signature,
        "notices": list(notices),
    }


def form(path: Path) -> Any:
    """What makes a report of that name; asked before the work, so that hours of it are not lost to a name."""
    if path.suffix not in FORMS or not path.parent.is_dir():
        why = f"there is no folder {path.parent}" if path.suffix in FORMS else "a page ends in .html, facts in .json"
        raise MeristemError(f"--report {path}: {why}")
    return FORMS[path.suffix]


def write_report(path: Path, report: Report) -> None:
    """The page, or the same facts for programs."""
    disk.replace(path, [form(path)(report).encode("utf-8", "replace")])


def described(recipe: Recipe, learner: Learner) -> str:
    """A model in a line: its family, its size, where it began."""
    parameters = sum(p.numel() for p in learner.model.parameters())
    begun = recipe.start.path
    told = f"{recipe.model.family}, {parameters / 1e6:.1f} M parameters"
    return f"{told}, begun from {begun}" if begun is not None else f"{told}, from scratch"
