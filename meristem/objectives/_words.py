"""Predicting words: the settings and the loss that every objective over the vocabulary shares."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from meristem.batch import Batch, Hidden, Model, Outcome
from meristem.blocks.vocabulary import VocabularyHead
from meristem.settings import Settings


class WordsSettings(Settings):
    """How predicted words are judged."""

    weight: float = Field(1.0, gt=0)
    """This objective's share where losses are summed."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of probability spread over the whole vocabulary (ε in Szegedy et al. 2016)."""
    l1_outputs: float = Field(0.0, ge=0)
    """Weight of the mean absolute logit in training; no part of an evaluation's loss."""
    l1_states: float = Field(0.0, ge=0)
    """Weight of the mean absolute hidden state in training; an evaluation reports it beside the loss."""


def weights(settings: WordsSettings, term: str) -> Mapping[str, float]:
    """The terms of such a loss: the words, and the states where they are held small."""
    held = {f"{term}.states": settings.l1_states} if settings.l1_states else {}
    return {term: settings.weight, **held}


def count(settings: WordsSettings, term: str, batch: Batch) -> dict[str, int]:
    """Predictions made, and positions whose states are held small."""
    held = {f"{term}.states": positions(batch)} if settings.l1_states else {}
    return {term: len(batch.goals[term]["at"]) if term in batch.goals else 0, **held}


def positions(batch: Batch) -> int:
    """Positions of `tokens` that exist in a batch: padding has no state that is held small."""
    present = batch.inputs.get("present")
    return int(batch.inputs["tokens"].numel() if present is None else present.sum())


def hold_small(term: str, states_BTD: Tensor, batch: Batch, outcome: Outcome) -> None:
    """Add Σ mean|state| over the positions that exist: a term of the loss in training, else a metric beside it."""
    size_BT, present = states_BTD.abs().mean(-1), batch.inputs.get("present")
    total = size_BT.sum() if present is None else size_BT.masked_fill(~present, 0.0).sum()
    if torch.is_grad_enabled():
        outcome.sums[term] = total
    else:
        outcome.metrics[term] = (total, torch.tensor(float(batch.counts[term]), device=total.device))


def judge(
    settings: WordsSettings, term: str, model: Model, hidden: Hidden, batch: Batch, *, head_name: str | None = None
) -> Outcome:
    """Logits only where there is a loss; without a gradient the plain cross-entropy, and accuracies."""
    head = model.heads[head_name or term]
    assert isinstance(head, VocabularyHead)
    goal = batch.goals[term]
    teach = torch.is_grad_enabled()  # smoothing and penalties teach; what is measured is how likely the words were
    judged = head.judge(
        hidden.at(goal["at"]),
        goal["values"],
        smoothing=settings.label_smoothing if teach else 0.0,
        l1=settings.l1_outputs if teach else 0.0,
    )
    outcome = Outcome(sums={term: judged.total}, state=hidden.state)
    if settings.l1_states:
        hold_small(f"{term}.states", hidden.last, batch, outcome)
    number = torch.tensor(float(len(goal["at"])), device=judged.total.device)
    if judged.rank_N is not None:
        outcome.metrics[f"{term}.top1"] = ((judged.rank_N < 1).sum().float(), number)
        outcome.metrics[f"{term}.top5"] = ((judged.rank_N < 5).sum().float(), number)
    return outcome
