"""A task's answers to samples, their loss where gold is known, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from meristem.batch import Row, collate
from meristem.evaluation.held_out import SEED, resting
from meristem.learning.assemble import WORDS
from meristem.learning.learner import Learner
from meristem.metrics.bootstrap import intervals
from meristem.randomness import Draw
from meristem.task import Judged, Piece, Sample, Task

TOKENS, ROWS = 8192, 256
"""What one pass reads at the most, padding counted."""
SHOWN = 20
"""Mistakes that a report shows."""


@dataclass(kw_only=True)
class Answered:
    """One answer for each sample, and the mean of each term of the loss where gold was known."""

    answers: list[Any]
    losses: dict[str, float] = field(default_factory=dict)


def answer(
    learner: Learner,
    samples: Sequence[Sample],
    pieces: Sequence[Piece] | None = None,
    *,
    name: str = "task",
    answers: bool = True,
) -> Answered:
    """Read every piece once, those of like lengths together; without `answers` only the loss is found."""
    task, model = learner.objectives[name], learner.model
    fill = dict.fromkeys(WORDS, 0)  # what padding holds is never read
    assert isinstance(task, Task)
    pieces = task.pieces(samples) if pieces is None else pieces
    found: list[Any] = [None] * len(pieces)
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    with resting(learner):
        written = task.write(model, samples) if answers else None
        for some in _batches(pieces, task.rows_per_sample):
            rows: list[Row] = []
            for number in some:
                made = task.prepare(Row(inputs={}, notes={"piece": pieces[number]}), Draw(SEED, 0, number))
                rows += [replace(row, sample=number) for row in (made if isinstance(made, list) else [made])]
            batch = collate(rows, task, fill).to(model.device)
            hidden = task.encode(model, batch)
            if any(batch.counts.values()):
                outcome = task.loss(model, hidden, batch)
                for term, total in outcome.sums.items():
                    sums[term] = sums.get(term, 0.0) + float(total)
                    counts[term] = counts.get(term, 0) + batch.counts.get(term, 0)
            if answers and written is None:
                for number, candidate in zip(batch.ids, task.decode(model, hidden, batch), strict=True):
                    found[number] = candidate
    means = {term: total / max(1, counts[term]) for term, total in sums.items()}
    losses = {
        "loss": sum(task.weights[term] * mean for term, mean in means.items()),
        **(means if len(means) > 1 else {}),
    }
    if not answers:
        return Answered(answers=[], losses=losses)
    return Answered(answers=written if written is not None else task.gather(samples, pieces, found), losses=losses)


def judge(task: Task, answers: Sequence[Any], samples: Sequence[Sample], *, sure: bool = True) -> Judged:
    """Everything there is to say about answers; `sure` finds intervals by resampling."""
    return Judged(
        metrics=task.score(answers, samples),
        intervals=intervals(task.resampled(answers, samples), len(samples)) if sure else {},
        samples=len(samples),
        signature=task.signature(),
        confusion=task.confusion(answers, samples),
        mistakes=tuple(task.mistakes(answers, samples)[:SHOWN]),
    )


def _batches(pieces: Sequence[Piece], each: int) -> Iterator[list[int]]:
    """Places of pieces, by length, as many together as one pass takes."""
    order = np.argsort([piece.size for piece in pieces], kind="stable")
    some: list[int] = []
    for number in order.tolist():
        if some and (len(some) >= ROWS or (len(some) + 1) * pieces[number].size * each > TOKENS):
            yield some
            some = []
        some.append(number)
    if some:
        yield some
