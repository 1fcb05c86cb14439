"""Task predictions on samples, their loss where gold labels are known, and their metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meristem.config.errors import MeristemError
from meristem.evaluation.held_out_loss import SEED, HeldOutSums, eval_mode
from meristem.generation.token_scores import forward_passes
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Objective
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task import Task
from meristem.interfaces.task_evaluation import TaskEvaluation
from meristem.learning.build import TOKEN_INPUTS
from meristem.learning.inference_options import forward_precision, head_precision, in_float32
from meristem.learning.learner import Learner
from meristem.metrics.bootstrap import confidence_intervals
from meristem.utils.randomness import SampleRng

MAX_TOKENS_PER_PASS, MAX_ROWS_PER_PASS = 4096, 256
"""Limits of one forward pass, padding included."""
MIN_MARGIN = 0.03
"""Answers with a smaller margin are computed again in float32; bfloat16 moved a probability by up to 0.007."""
MAX_MIXTURE_PIECES = 2000
"""Validation samples by which the parts of a head are weighed, the first ones."""
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
    losses = HeldOutSums(weights=dict(task.loss_weights))
    has_gold = any(sample.gold is not None for sample in samples)
    with eval_mode(learner):
        predictions = task.generate(model, pieces) if with_predictions else None
        if predictions is None or has_gold:
            passes = _ForwardPasses(model, task, pieces, losses if has_gold else None)
            candidates = passes.decode(with_predictions and predictions is None)
            if with_predictions and predictions is None:
                predictions = task.merge_pieces(samples, pieces, candidates)
    return TaskPredictions(predictions=predictions or [], losses=losses.losses())


def fit_mixture(learner: Learner, task: Task, pieces: Sequence[SamplePiece]) -> None:
    """Weigh the parts of the task's head, if it has several, by validation samples."""
    pieces = pieces[:MAX_MIXTURE_PIECES]
    sizes = [max(1, piece.num_tokens * task.max_rows_per_sample) for piece in pieces]
    scored, model, head = [], learner.model, task.parts.head
    if not head.has_mixture:
        return
    with eval_mode(learner):
        for indices in forward_passes(sizes, MAX_TOKENS_PER_PASS, max_rows=MAX_ROWS_PER_PASS):
            batch = _build_batch(task, pieces, indices).to(model.device)
            scored.append(head.scored_parts(model, in_float32(task.encode(model, batch)), batch))
        if known := [item for item in scored if item is not None]:
            head.fit_mixture(model, known)


class _ForwardPasses:
    """Forward passes over all pieces, in bfloat16 where the model may and the answers stay those of float32."""

    def __init__(self, model: Model, task: Task, pieces: Sequence[SamplePiece], losses: HeldOutSums | None) -> None:
        """`losses` collects the loss, where there are gold labels."""
        self._model, self._task, self._pieces, self._losses = model, task, pieces, losses
        self._sizes = [max(1, piece.num_tokens * task.max_rows_per_sample) for piece in pieces]
        self._candidates: list[Any] = [None] * len(pieces)

    def decode(self, with_candidates: bool) -> list[Any]:
        """One candidate prediction per piece; answers that are close to another one are computed again in float32."""
        everything = range(len(self._pieces))
        may_differ = not self._task.parts.head.has_margins and self._model.bfloat16_min_tokens != 0
        with forward_precision(self._model, 0 if may_differ else sum(self._sizes)) as reduced:
            self._run(everything, with_candidates)
        if reduced is None or not with_candidates:
            return self._candidates
        margins = {index: self._task.margin(self._candidates[index]) for index in everything}
        self._losses = None
        self._run([index for index, margin in margins.items() if margin is not None and margin < MIN_MARGIN], True)
        return self._candidates

    def _run(self, selected: Sequence[int], with_candidates: bool) -> None:
        task, model, losses = self._task, self._model, self._losses
        sizes = [self._sizes[index] for index in selected]
        for batch_indices in forward_passes(sizes, MAX_TOKENS_PER_PASS, max_rows=MAX_ROWS_PER_PASS):
            batch = _build_batch(task, self._pieces, [selected[index] for index in batch_indices]).to(model.device)
            hidden = in_float32(task.encode(model, batch))
            with head_precision(model):
                if losses is not None and any(batch.target_counts.values()):
                    losses.add(task.loss(model, hidden, batch), batch.target_counts)
                if _has_nan(hidden, batch) or (losses and any(map(math.isnan, losses.sums.values()))):
                    raise NaNError("the model's outputs are NaN, so it cannot predict: use an older checkpoint")
                if with_candidates:
                    for index, candidate in zip(batch.sample_ids, task.decode(model, hidden, batch), strict=True):
                        self._candidates[index] = candidate


class NaNError(MeristemError):
    """Hidden states or scores are NaN: argmax would take them for a prediction, and count it as correct by chance."""


def _has_nan(hidden: Hidden, batch: Batch) -> bool:
    """Whether a hidden state at a position that is not padding is NaN."""
    nan_mask, present = hidden.last_hidden_state.isnan().any(-1), batch.inputs.get("present")
    return bool((nan_mask if present is None or present.shape != nan_mask.shape else nan_mask & present).any())


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
