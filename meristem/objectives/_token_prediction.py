"""Cross-entropy over the vocabulary, shared by all token-prediction objectives: settings, loss and top-k accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.objectives.settings import ObjectiveSettings


class TokenLossSettings(ObjectiveSettings):
    """Settings of a cross-entropy loss over the vocabulary."""

    renamed: ClassVar[dict[str, str]] = {
        "l1_outputs": "l1_logits",
        "l1_states": "l1_hidden_states",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "label_smoothing_factor": "label_smoothing",
    }

    weight: float = Field(1.0, gt=0)
    """Weight of this objective's loss in the sum."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Label smoothing ε (Szegedy et al. 2016)."""
    l1_logits: float = Field(0.0, ge=0)
    """Weight of an L1 penalty on logits (mean absolute value) in training; not part of the evaluation loss."""
    l1_hidden_states: float = Field(0.0, ge=0)
    """Weight of an L1 penalty on hidden states (mean absolute value) in training; a separate metric in evaluation."""


def loss_weights(settings: TokenLossSettings, term: str) -> Mapping[str, float]:
    """Loss term → weight: the cross-entropy, and the L1 penalty on hidden states if it is on."""
    hidden_l1 = {f"{term}.states": settings.l1_hidden_states} if settings.l1_hidden_states else {}
    return {term: settings.weight, **hidden_l1}


def count_targets(settings: TokenLossSettings, term: str, batch: Batch) -> dict[str, int]:
    """Loss term → count: predictions, and positions of the L1 penalty on hidden states if it is on."""
    hidden_l1 = {f"{term}.states": count_positions(batch)} if settings.l1_hidden_states else {}
    return {term: len(batch.targets[term]["at"]) if term in batch.targets else 0, **hidden_l1}


def count_positions(batch: Batch) -> int:
    """Number of tokens in a batch without padding."""
    present = batch.inputs.get("present")
    return int(batch.inputs["tokens"].numel() if present is None else present.sum())


def add_hidden_l1(term: str, states_BTD: Tensor, batch: Batch, outcome: Outcome, *, training: bool) -> None:
    """Add Σ mean|hidden state| over all positions but padding: a loss term in training, a metric in evaluation."""
    l1_BT, present = states_BTD.abs().mean(-1), batch.inputs.get("present")
    total = l1_BT.sum() if present is None else l1_BT.masked_fill(~present, 0.0).sum()
    if training:
        outcome.loss_sums[term] = total
    else:
        outcome.metrics[term] = (total, torch.full((), float(batch.target_counts[term]), device=total.device))


def token_loss(
    settings: TokenLossSettings,
    term: str,
    model: Model,
    hidden: Hidden,
    batch: Batch,
    *,
    head_name: str | None = None,
    observes_accuracy: bool = False,
) -> Outcome:
    """Cross-entropy at the target positions; in evaluation without smoothing and penalties, with top-1 and top-5.

    With `observes_accuracy` a training pass reports which tokens were predicted, as an observation.
    """
    head = model.heads[head_name or term]
    assert isinstance(head, VocabularyHead)
    labels = batch.targets[term]
    training = model.training  # smoothing and penalties only regularize training
    vocab_loss = head.compute_loss(
        hidden.select(labels["at"]),
        labels["values"],
        smoothing=settings.label_smoothing if training else 0.0,
        l1=settings.l1_logits if training else 0.0,
    )
    outcome = Outcome(loss_sums={term: vocab_loss.total}, state=hidden.state)
    if settings.l1_hidden_states:
        add_hidden_l1(f"{term}.states", hidden.last_hidden_state, batch, outcome, training=training)
    num_predictions = torch.full((), float(len(labels["at"])), device=vocab_loss.total.device)
    if vocab_loss.ranks_N is not None:
        outcome.metrics[f"{term}.top1"] = ((vocab_loss.ranks_N < 1).sum().float(), num_predictions)
        outcome.metrics[f"{term}.top5"] = ((vocab_loss.ranks_N < 5).sum().float(), num_predictions)
    if observes_accuracy and training and vocab_loss.is_top_N is not None:
        outcome.observations.append(_count_predictions(labels["values"], vocab_loss.is_top_N))
    return outcome


def _count_predictions(targets_N: Tensor, is_top_N: Tensor) -> dict[str, list[int]]:
    """Token ids among the targets, how often each was one, and how often it had the highest score."""
    ids, index, predicted = torch.unique(targets_N, return_inverse=True, return_counts=True)
    correct = torch.zeros_like(ids).index_add_(0, index, is_top_N.to(ids.dtype))
    return {"ids": ids.tolist(), "predicted": predicted.tolist(), "correct": correct.tolist()}
