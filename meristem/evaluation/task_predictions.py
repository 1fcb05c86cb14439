"""Task predictions on samples, their loss where gold labels are known, and their metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from meristem.config.errors import MeristemError
from meristem.evaluation.held_out_loss import SEED, eval_mode, mean_or_nan
from meristem.generation.token_scores import forward_passes
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import Hidden
from meristem.interfaces.objective import Objective, Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import TaskEvaluation
from meristem.learning.build import TOKEN_INPUTS
from meristem.learning.learner import Learner
from meristem.metrics.bootstrap import confidence_intervals
from meristem.utils.randomness import SampleRng

MAX_TOKENS_PER_PASS, MAX_ROWS_PER_PASS = 4096, 256
"""Limits of one forward pass, padding included."""
MAX_SHOWN_MISTAKES = 20
"""Mistakes shown in a report."""


@dataclass(kw_only=True)
class TaskPredictions:
    """One prediction per sample, and the mean of each loss term over samples with gold labels (else NaN)."""

    predictions: list[Any]
    losses: dict[str, float] = field(default_factory=dict)


def predict(
    learner: Learner,
    samples: Sequence[Sample],
    pieces: Sequence[SamplePiece] | None = None,
    *,
    name: str = "task",
    task: Objective | None = None,
    with_predictions: bool = True,
) -> TaskPredictions:
    """Predict all samples, batched by length; without `with_predictions` only the loss is computed.

    The task is the learner's by name, unless `task` is given, whose heads the model must have.
    """
    task, model = task or learner.objectives[name], learner.model
    assert isinstance(task, Task)
    pieces = task.encode_samples(samples) if pieces is None else pieces
    candidates: list[Any] = [None] * len(pieces)
    losses, has_gold = _LossSums(), any(sample.gold is not None for sample in samples)
    with eval_mode(learner):
        generated = task.generate(model, pieces) if with_predictions else None
        sizes = [max(1, piece.num_tokens * task.max_rows_per_sample) for piece in pieces]
        passes = forward_passes(sizes, MAX_TOKENS_PER_PASS, max_rows=MAX_ROWS_PER_PASS)
        for indices in passes if generated is None or has_gold else ():
            batch = _build_batch(task, pieces, indices).to(model.device)
            hidden = task.encode(model, batch)
            if has_gold and any(batch.target_counts.values()):
                losses.add(task.loss(model, hidden, batch), batch)
            if _has_nan(hidden, batch) or losses.is_nan:
                raise NaNError("the model's outputs are NaN, so it cannot predict: use an older checkpoint")
            if with_predictions and generated is None:
                for index, candidate in zip(batch.sample_ids, task.decode(model, hidden, batch), strict=True):
                    candidates[index] = candidate
        means = losses.means(task.loss_weights)
    if not with_predictions:
        return TaskPredictions(predictions=[], losses=means)
    return TaskPredictions(
        predictions=generated if generated is not None else task.merge_pieces(samples, pieces, candidates), losses=means
    )


class NaNError(MeristemError):
    """Hidden states or scores are NaN: argmax would take them for a prediction, and count it as correct by chance."""


def _has_nan(hidden: Hidden, batch: Batch) -> bool:
    """Whether a hidden state at a position that is not padding is NaN."""
    nan_mask, present = hidden.last_hidden_state.isnan().any(-1), batch.inputs.get("present")
    return bool((nan_mask if present is None or present.shape != nan_mask.shape else nan_mask & present).any())


@dataclass
class _LossSums:
    """Sum of losses and number of predictions per term."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, output: Outcome, batch: Batch) -> None:
        for term, total in output.loss_sums.items():
            self.sums[term] = self.sums.get(term, 0.0) + float(total)
            self.counts[term] = self.counts.get(term, 0) + batch.target_counts.get(term, 0)

    @property
    def is_nan(self) -> bool:
        """Whether a sum is NaN."""
        return any(math.isnan(total) for total in self.sums.values())

    def means(self, weights: Mapping[str, float]) -> dict[str, float]:
        """The loss, and each term if there are several."""
        means = {term: mean_or_nan(total, self.counts[term]) for term, total in self.sums.items()}
        total_loss = sum(weights[term] * value for term, value in means.items()) if means else math.nan
        return {"loss": total_loss, **(means if len(means) > 1 else {})}


def _build_batch(task: Task, pieces: Sequence[SamplePiece], indices: Sequence[int]) -> Batch:
    """The batch of some pieces."""
    rows: list[Row] = []
    for index in indices:
        prepared = task.prepare(Row(inputs={}, metadata={"piece": pieces[index]}), SampleRng(SEED, 0, index))
        for row in prepared if isinstance(prepared, list) else [prepared]:
            row.sample_id = index
            rows.append(row)
    return collate(rows, task, dict.fromkeys(TOKEN_INPUTS, 0))  # padding is masked, so its value does not matter


def evaluate_predictions(
    task: Task, predictions: Sequence[Any], samples: Sequence[Sample], *, with_intervals: bool = True
) -> TaskEvaluation:
    """Metrics, confusion matrix and mistakes of predictions; `with_intervals` adds 95 % bootstrap intervals."""
    return TaskEvaluation(
        metrics=task.metrics.compute(predictions, samples),
        intervals=confidence_intervals(
            task.metrics.resampler(predictions, samples), len(samples), support=task.metrics.support(samples)
        )
        if with_intervals
        else {},
        num_samples=len(samples),
        signature=task.metrics.signature(samples),
        confusion=task.metrics.confusion(predictions, samples),
        mistakes=tuple(task.metrics.mistakes(predictions, samples)[:MAX_SHOWN_MISTAKES]),
    )
