"""What a run is and has done: read from its checkpoint, its tokenizer and its metrics, not from its recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from meristem.checkpoint import load
from meristem.checkpoint.revive import revive
from meristem.checkpoint.run import Run
from meristem.drawing.curves import read_metrics
from meristem.training.journal import duration
from meristem.training.loop import entries
from meristem.training.standing import Standing


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """A run's own numbers."""

    run: str
    finished: bool
    family: str
    objective: str
    parameters: int
    vocabulary: int
    """Tokens that its tokenizer has."""
    steps: int
    planned_steps: int
    budget: str
    tokens: int
    flops: float
    seconds: float
    best_step: int
    validation: dict[str, float]
    """Of the last evaluation."""
    best_validation: dict[str, float]
    test: dict[str, float]
    started_from: str | None


def describe_run(run: Run) -> RunDescription | None:
    """The numbers of a run that has a checkpoint; none before it took a step."""
    loaded = load.load(run.checkpoints)
    if loaded is None:
        return None
    revived = revive(run.path)
    standing = Standing.of(loaded.snapshot.state, step=loaded.snapshot.step)
    lines = read_metrics(run.metrics_path) if run.metrics_path.is_file() else []
    evaluations = [line for line in lines if line.get("kind") == "evaluation"]
    best = [line for line in evaluations if line.get("step") == standing.best_step]
    start = revived.recipe.start
    return RunDescription(
        run=str(run.path),
        finished=run.finished is not None,
        family=revived.recipe.model.family,
        objective=", ".join(one.name for one in revived.learner.objectives.values()),
        parameters=sum(p.numel() for p in revived.learner.model.parameters()),
        vocabulary=revived.tokenizer.size,
        steps=standing.step,
        planned_steps=standing.total,
        budget=standing.budget,
        tokens=standing.tokens,
        flops=standing.flops,
        seconds=standing.seconds,
        best_step=standing.best_step,
        validation=_numbers(evaluations[-1]) if evaluations else {},
        best_validation=_numbers(best[-1]) if best else {},
        test=_numbers((run.finished or {}).get("test") or {}),
        started_from=start.path or (f"word vectors {start.vectors}" if start.vectors else None),
    )


def _numbers(line: dict[str, Any]) -> dict[str, float]:
    known = {name: value for name, value in line.items() if name not in ("step", "kind")}
    return {name: float(value) for name, value in known.items() if isinstance(value, int | float)}


def run_table(found: RunDescription) -> Table:
    """The same for a person."""
    state = "finished" if found.finished else "not finished"
    title = Text(f"{found.run}: {found.family}, {found.objective}, {state}")
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    rows = {
        "parameters": f"{found.parameters:,}",
        "vocabulary": f"{found.vocabulary:,} tokens",
        "steps taken": f"{found.steps:,} of {found.planned_steps:,} ({found.budget})",
        "tokens read": f"{found.tokens:,}",
        "operations": f"{found.flops:.3g} FLOPs",
        "time": duration(found.seconds),
        "last validation": "  ".join(entries(found.validation)) or "none",
        f"best validation, step {found.best_step:,}": "  ".join(entries(found.best_validation)),
        "test": "  ".join(entries(found.test)),
        "started from": found.started_from or "scratch",
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, Text(value))
    return table
