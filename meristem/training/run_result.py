"""End of a run: final evaluation, test metrics, model card and training curves, and the `RunResult`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk, load
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import Recipe
from meristem.drawing.training_curves import can_draw, draw_curves
from meristem.learning.learner import Learner
from meristem.training.budget import evaluation_tokens
from meristem.training.data.training_data import TrainingData
from meristem.training.metrics_format import format_metrics_line
from meristem.training.precision import Precision
from meristem.training.privacy.record import PrivacyRecord
from meristem.training.report import model_card
from meristem.training.report.privacy_card import privacy_card_lines
from meristem.training.run_logger import RunLogger, format_duration
from meristem.training.settings import NEVER
from meristem.training.train_state import TrainState
from meristem.utils.result_tables import Record, Tabular
from meristem.utils.shell_quoting import shell_path


@dataclass(kw_only=True)
class RunContext:
    """A run in progress and everything it consists of."""

    recipe: Recipe
    run: RunFolder
    training_data: TrainingData
    learner: Learner
    state: TrainState
    logger: RunLogger
    precision: Precision = "float32"
    planned_tokens: float = math.inf
    """Tokens read in all planned steps."""

    @property
    def evaluation_recipe(self) -> Recipe:
        """The recipe with `evaluate_tokens` reduced for a short run."""
        train = self.recipe.train
        tokens = evaluation_tokens(train, self.planned_tokens)
        return replace(self.recipe, train=train.model_copy(update={"evaluate_tokens": tokens}))


@dataclass(frozen=True, kw_only=True)
class RunResult(Tabular):
    """Result of a finished run."""

    run: Path
    step: int
    metrics: dict[str, float]
    """Validation metrics of the final weights, which are the best ones with early stopping."""
    test: dict[str, float]
    used: dict[str, float]
    example_commands: list[str]
    """Example commands that show what the model can do."""
    judged_by: str = "loss"
    """Metric by which the best checkpoint is selected."""

    def records(self) -> list[Record]:
        """One row per metric, with its validation and test values."""
        names = dict.fromkeys([*self.metrics, *self.test])
        return [{"metric": name, "validation": self.metrics.get(name), "test": self.test.get(name)} for name in names]

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name}={value:.4g}" for name, value in self.metrics.items())
        return f"RunResult({self.run}, step {self.step:,}: {metrics or 'no metrics'})"


def _evaluate_split(context: RunContext, split: str) -> dict[str, float]:
    if split == "validation" and context.recipe.train.evaluate_every == NEVER:
        return {}
    evaluate = context.training_data.build_evaluator(
        context.evaluation_recipe, context.learner, split, context.logger.log
    )
    return {} if evaluate is None else evaluate()


def budget_used(state: TrainState) -> dict[str, float]:
    """What a run has used, by kind of budget."""
    minutes = state.seconds / 60
    return {"steps": state.step, "tokens": state.tokens, "flops": state.flops, "minutes": minutes}


def make_result(context: RunContext, validation: dict[str, float], test: dict[str, float]) -> RunResult:
    """The result of a run with these final metrics."""
    run_path, training_data = context.run.path, context.training_data
    return RunResult(
        run=run_path,
        step=context.state.step,
        metrics=validation,
        test=test,
        used=budget_used(context.state),
        example_commands=training_data.example_commands(shell_path(run_path), context.learner.model),
        judged_by=training_data.selection_metric,
    )


def finish_run(context: RunContext, validation_metrics: dict[str, float] | None) -> RunResult:
    """Evaluate the test split, write curves, reports and model card, and mark the run as finished."""
    recipe, run, state, logger = context.recipe, context.run, context.state, context.logger
    if recipe.uses_best_checkpoint and state.best_step not in (0, state.step):
        best = load.load_checkpoint(run.checkpoints, which="best")
        if best is not None:
            context.learner.model.load_state_dict(best.snapshot.model)
            validation_metrics = None
            logger.log(f"Using the checkpoint with the best validation: step {state.best_step} of {state.step}")
    if validation_metrics is None:
        validation_metrics = _evaluate_split(context, "validation")
    test_metrics = _evaluate_split(context, "test")
    training_data, model = context.training_data, context.learner.model
    result = make_result(context, validation_metrics, test_metrics)
    if not training_data.distributed.is_rank_zero:
        return result
    if test_metrics and not logger.has_metrics("test", state.step):
        logger.write_metrics("test", state.step, test_metrics)
        logger.log(f"test  {format_metrics_line(test_metrics)}")
    if can_draw():
        title = f"{recipe.name}: {state.step:,} steps, {state.tokens:,} tokens"
        draw_curves(run.metrics_path, run.path / "curves.png", title=title)
    report_lines = training_data.write_reports(run, context.learner, logger)
    source_lines, card_commands = training_data.source_lines(), training_data.example_commands(".", model)
    if state.privacy:
        record_of_privacy = PrivacyRecord.from_dict(state.privacy)
        report_lines = [*report_lines, *privacy_card_lines(record_of_privacy)]
        logger.log(f"Private training ended with {record_of_privacy.describe()}")
    text = model_card.render_card(
        recipe, context.learner, source_lines, state, validation_metrics, test_metrics, card_commands, report_lines
    )
    disk.atomic_write(run.path / "README.md", [text.encode()])
    record: dict[str, Any] = {
        "step": state.step,
        "best_step": state.best_step,
        "judged_by": result.judged_by,
        "validation": validation_metrics,
        "test": test_metrics,
        "used": result.used,
    }
    if state.privacy:
        record["privacy"] = {"epsilon": PrivacyRecord.from_dict(state.privacy).epsilon, **state.privacy}
    run.mark_finished({**record, "finished": time.strftime("%Y-%m-%d %H:%M:%S")})
    logger.log(
        f"Done: {state.step:,} steps, {state.tokens:,} tokens, {state.flops:.2e} FLOPs in "
        f"{format_duration(state.seconds)}; the model is in {run.path}"
    )
    return result


def finished_result(context: RunContext, record: Mapping[str, Any]) -> RunResult:
    """The result of a run that had ended before, from its record; the log says why there is nothing to do."""
    state, run_path = context.state, context.run.path
    if state.step >= state.total:
        context.logger.log(
            f"{run_path} has used its budget ({state.budget}): nothing to do. A larger budget resumes it, "
            f"for instance train.steps={state.total * 2}"
        )
    elif state.stopped:
        context.logger.log(f"{run_path} stopped at step {state.step}: {state.stopped}")
    else:
        context.logger.log(f"{run_path} stopped early at step {state.step} ({state.describe_best()}): nothing to do")
    validation, test = (_metrics_from_json(record.get(split, {})) for split in ("validation", "test"))
    return make_result(context, validation, test)


def _metrics_from_json(saved_metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Metrics from JSON, with NaN for null."""
    return {name: math.nan if value is None else value for name, value in saved_metrics.items()}
