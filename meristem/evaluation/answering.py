"""A task's answers to samples, their loss where gold is known, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meristem.batch import Batch, Hidden, Objective, Outcome, Row, collate
from meristem.errors import MeristemError
from meristem.evaluation.held_out import SEED, mean, resting
from meristem.generation.watching import go_on, tokens_per_pass
from meristem.learning.assemble import WORDS
from meristem.learning.learner import Learner
from meristem.metrics.bootstrap import intervals
from meristem.randomness import Draw
from meristem.task import Judged, Piece, Sample, Task

TOKENS, ROWS = 4096, 256
"""What one pass reads at the most, padding counted."""
SHOWN = 20
"""Mistakes that a report shows."""


@dataclass(kw_only=True)
class Answered:
    """One answer for each sample, and the mean of each term of the loss where gold was known (else NaN)."""

    answers: list[Any]
    losses: dict[str, float] = field(default_factory=dict)


def answer(
    learner: Learner,
    samples: Sequence[Sample],
    pieces: Sequence[Piece] | None = None,
    *,
    name: str = "task",
    task: Objective | None = None,
    answers: bool = True,
) -> Answered:
    """Read every piece once, those of like lengths together; without `answers` only the loss is found.

    The task is the learner's by name, unless another is given whose heads the model has.
    """
    task, model = task or learner.objectives[name], learner.model
    assert isinstance(task, Task)
    pieces = task.pieces(samples) if pieces is None else pieces
    found: list[Any] = [None] * len(pieces)
    losses, known = _Losses(), any(sample.gold is not None for sample in samples)
    with resting(learner):
        written = task.write(model, samples) if answers else None
        for some in _batches(pieces, task.rows_per_sample) if written is None or known else ():
            batch = _batch(task, pieces, some).to(model.device)
            hidden = task.encode(model, batch)
            if known and any(batch.counts.values()):
                losses.add(task.loss(model, hidden, batch), batch)
            if _is_nan(hidden, batch) or losses.is_nan:
                raise NaNError("the model's numbers are NaN, so that it has no answers: go on from an older checkpoint")
            if answers and written is None:
                for number, candidate in zip(batch.ids, task.decode(model, hidden, batch), strict=True):
                    found[number] = candidate
        means = losses.means(task.weights)
    if not answers:
        return Answered(answers=[], losses=means)
    return Answered(answers=written if written is not None else task.gather(samples, pieces, found), losses=means)


class NaNError(MeristemError):
    """A model whose states or scores are NaN: argmax would take them for an answer, and count it right by chance."""


def _is_nan(hidden: Hidden, batch: Batch) -> bool:
    """Whether a state of a position that exists is NaN."""
    nan, present = hidden.last.isnan().any(-1), batch.inputs.get("present")
    return bool((nan if present is None or present.shape != nan.shape else nan & present).any())


@dataclass
class _Losses:
    """Each term's sum of losses and number of predictions."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: Outcome, batch: Batch) -> None:
        for term, total in outcome.sums.items():
            self.sums[term] = self.sums.get(term, 0.0) + float(total)
            self.counts[term] = self.counts.get(term, 0) + batch.counts.get(term, 0)

    @property
    def is_nan(self) -> bool:
        """Whether a sum is NaN."""
        return any(math.isnan(total) for total in self.sums.values())

    def means(self, weights: Mapping[str, float]) -> dict[str, float]:
        """The loss, and each term where there are several."""
        means = {term: mean(total, self.counts[term]) for term, total in self.sums.items()}
        whole = sum(weights[term] * value for term, value in means.items()) if means else math.nan
        return {"loss": whole, **(means if len(means) > 1 else {})}


def _batch(task: Task, pieces: Sequence[Piece], some: Sequence[int]) -> Batch:
    """The rows of some pieces."""
    rows: list[Row] = []
    for number in some:
        made = task.prepare(Row(inputs={}, notes={"piece": pieces[number]}), Draw(SEED, 0, number))
        for row in made if isinstance(made, list) else [made]:
            row.sample = number
            rows.append(row)
    return collate(rows, task, dict.fromkeys(WORDS, 0))  # what padding holds is never read


def judge(task: Task, answers: Sequence[Any], samples: Sequence[Sample], *, sure: bool = True) -> Judged:
    """Everything there is to say about answers; `sure` finds 95 % intervals."""
    return Judged(
        metrics=task.score(answers, samples),
        intervals=intervals(task.resampled(answers, samples), len(samples), support=task.support(samples))
        if sure
        else {},
        samples=len(samples),
        signature=task.signature(samples),
        confusion=task.confusion(answers, samples),
        mistakes=tuple(task.mistakes(answers, samples)[:SHOWN]),
    )


def _batches(pieces: Sequence[Piece], each: int) -> Iterator[list[int]]:
    """Places of pieces, by length, as many together as one pass takes."""
    order = np.argsort([piece.size for piece in pieces], kind="stable")
    some: list[int] = []
    most = tokens_per_pass(TOKENS)
    for number in order.tolist():
        if some and (len(some) >= ROWS or (len(some) + 1) * pieces[number].size * each > most):
            yield some
            go_on()
            some = []
        some.append(number)
    if some:
        yield some
