"""Description of a run: progress, size and metrics from its checkpoint, tokenizer and metrics.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from meristem.checkpoint import load
from meristem.checkpoint.load_run import load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.drawing.training_curves import read_metrics
from meristem.learning.build import describe_objectives
from meristem.training.metrics_format import format_metrics
from meristem.training.run_logger import format_duration
from meristem.training.train_state import TrainState


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """State of a run; the field names are JSON keys of `meristem describe --json`."""

    run: str
    finished: bool
    family: str
    objective: str
    parameters: int
    vocabulary: int
    """Size of its tokenizer."""
    steps: int
    planned_steps: int
    budget: str
    tokens: int
    flops: float
    seconds: float
    best_step: int
    validation: dict[str, float]
    """Metrics of the last evaluation."""
    best_validation: dict[str, float]
    test: dict[str, float]
    started_from: str | None


def describe_run(run: RunFolder) -> RunDescription | None:
    """Describe a run; None if it has no checkpoint yet."""
    checkpoint = load.load_checkpoint(run.checkpoints)
    if checkpoint is None:
        return None
    loaded_run = load_run(run.path)
    state = TrainState.from_dict(checkpoint.snapshot.state, step=checkpoint.snapshot.step)
    metric_lines = read_metrics(run.metrics_path) if run.metrics_path.is_file() else []
    evaluations = [line for line in metric_lines if line.get("kind") == "evaluation"]
    best_evaluations = [line for line in evaluations if line.get("step") == state.best_step]
    start = loaded_run.recipe.start
    return RunDescription(
        run=str(run.path),
        finished=run.finish_record is not None,
        family=loaded_run.recipe.model.family,
        objective=describe_objectives(loaded_run.recipe, loaded_run.learner.objectives),
        parameters=sum(p.numel() for p in loaded_run.learner.model.parameters()),
        vocabulary=loaded_run.tokenizer.vocab_size,
        steps=state.step,
        planned_steps=state.total,
        budget=state.budget,
        tokens=state.tokens,
        flops=state.flops,
        seconds=state.seconds,
        best_step=state.best_step,
        validation=_numeric_values(evaluations[-1]) if evaluations else {},
        best_validation=_numeric_values(best_evaluations[-1]) if best_evaluations else {},
        test=_numeric_values((run.finish_record or {}).get("test") or {}),
        started_from=start.path or (f"word vectors {start.word_vectors}" if start.word_vectors else None),
    )


def _numeric_values(line: dict[str, Any]) -> dict[str, float]:
    metrics = {name: value for name, value in line.items() if name not in ("step", "kind")}
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}


def run_table(description: RunDescription) -> Table:
    """The description as a table for the terminal."""
    state = "finished" if description.finished else "not finished"
    title = Text(f"{description.run}: {description.family}, {description.objective}, {state}")
    rows = {
        "parameters": f"{description.parameters:,}",
        "vocabulary": f"{description.vocabulary:,} tokens",
        "steps taken": f"{description.steps:,} of {description.planned_steps:,} ({description.budget})",
        "tokens read": f"{description.tokens:,}",
        "FLOPs": f"{description.flops:.3g}",
        "time": format_duration(description.seconds),
        "last validation": "  ".join(format_metrics(description.validation)) or "none",
        f"best validation, step {description.best_step:,}": "  ".join(format_metrics(description.best_validation)),
        "test": "  ".join(format_metrics(description.test)),
        "initial weights": description.started_from or "from scratch",
    }
    return two_column_table(title, rows, overflow="fold")


def two_column_table(title: Text, rows: Mapping[str, str], **value_options: Any) -> Table:
    """Names and values without a header; names without a value are left out."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(**value_options)
    for name, value in rows.items():
        if value:
            table.add_row(name, Text(value))
    return table
