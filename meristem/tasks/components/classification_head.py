"""Head, loss and decoder of classification: single-label, multi-label and regression losses on logits per sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.heads.accuracy import is_correct
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task_parts import TaskHead
from meristem.tasks.components.label_set import LabelProbs, LabelSet
from meristem.tasks.components.label_values import ClassWeights, ProblemType
from meristem.tasks.components.ngram_logits import TERM as NGRAMS
from meristem.tasks.components.ngram_logits import fit_mixture
from meristem.tasks.components.pooled_logits import LogitLayer


class ClassificationHead(TaskHead):
    """p(label | sample) with the loss of the problem type, weighted per class in training."""

    def __init__(self, term: str, logit_layer: LogitLayer, labels: LabelSet, class_weights: ClassWeights) -> None:
        self.term, self.logit_layer, self.labels, self.class_weights = term, logit_layer, labels, class_weights
        self.heads, self.loss_weights = logit_layer.heads, {term: 1.0}
        self.classes, self.export_obstacles = labels.classes, logit_layer.export_obstacles
        self.has_mixture = NGRAMS in self.heads
        self.has_margins = labels.problem_type != "regression"

    def margin(self, candidate: LabelProbs) -> float:
        """The distance of the nearest label from the threshold, or of the best label from the second best."""
        return self.labels.margin(candidate)

    def output_positions(self, batch: Batch) -> Tensor | None:
        """Those of the logits."""
        return self.logit_layer.output_positions(batch)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy, binary cross-entropy averaged over labels, or squared error.

        In training the mean over the parts of the head, so that one that fits faster does not silence another.
        """
        parts, target = self.logit_layer.logit_parts(model, hidden, batch), batch.targets.get(self.term)
        if target is None or not len(target["at"]):
            return Outcome(loss_sums={self.term: torch.stack(parts).sum() * 0.0})
        samples, values = samples_of_targets(target["at"], batch), target["values"]
        parts = [part[samples] for part in parts]
        logits = self.logit_layer.mix(model, parts)
        weights = self._weights(logits) if model.training else None
        losses = [
            classification_loss(part, values, self.labels.problem_type, weights)
            for part in (parts if model.training else [logits])
        ]
        outcome = Outcome(loss_sums={self.term: torch.stack(losses).mean()})
        if self.labels.problem_type == "single":
            outcome.metrics["accuracy"] = count_correct(logits, values)
        return outcome

    def scored_parts(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, ...] | None:
        """The logits of each part of the head for samples with a gold label, and their targets."""
        parts, target = self.logit_layer.logit_parts(model, hidden, batch), batch.targets.get(self.term)
        if target is None:
            return None
        samples = samples_of_targets(target["at"], batch)
        return *(part[samples] for part in parts), target["values"]

    def fit_mixture(self, model: Model, scored: Sequence[tuple[Tensor, ...]]) -> None:
        """Weigh the parts of the head so that the loss on these samples is lowest."""
        fit_mixture(
            model,
            scored,
            lambda logits, values: classification_loss(logits, values, self.labels.problem_type, None),
        )

    def _weights(self, logits: Tensor) -> Tensor | None:
        if not isinstance(self.class_weights, dict):
            return None
        return logits.new_tensor([self.class_weights.get(label, 1.0) for label in self.labels.labels])

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[LabelProbs]:
        """Label probabilities, or the number in the range of the training data."""
        return self.labels.probabilities(self.logit_layer.logits(model, hidden, batch))


def classification_loss(logits: Tensor, values: Tensor, problem_type: ProblemType, weights: Tensor | None) -> Tensor:
    """The loss summed over samples."""
    match problem_type:
        case "regression":
            return (logits[:, 0] - values).square().sum()
        case "multiple":
            losses = F.binary_cross_entropy_with_logits(logits, values, pos_weight=weights, reduction="none")
            return losses.mean(1).sum()
        case "single":
            return F.cross_entropy(logits, values, weight=weights, reduction="sum")


def samples_of_targets(positions: Tensor, batch: Batch) -> Tensor:
    """The index of each target's sample in the batch, from its flat position."""
    return batch.sample_index[positions // batch.inputs["tokens"].shape[1]]


def count_correct(logits: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Number of correct predictions, and of predictions."""
    num_correct = is_correct(logits, values).sum().float()
    return num_correct, torch.full((), float(len(values)), device=num_correct.device)
