"""Input encoder and head of multiple choice: a row for each choice with the context, softmax over a sample's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.encoded_input import truncate_pair
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import InputEncoder, TaskHead
from meristem.tasks.components.classification_head import count_correct, samples_of_targets
from meristem.tasks.components.lm_loss import LanguageModelLoss
from meristem.tasks.components.pooled_logits import PooledLogits

ChoiceProbs = NDArray[np.float32]
"""A probability for each choice of the sample."""


class ChoiceEncoder(InputEncoder):
    """One piece per sample, with a row for each of its choices."""

    def __init__(
        self,
        template: InputTemplate,
        term: str,
        question_templates: Mapping[str, str],
        max_choices: int,
        lm_loss: LanguageModelLoss,
    ) -> None:
        self.template: InputTemplate = template
        self.term, self.question_templates, self.lm_loss = term, question_templates, lm_loss
        self.max_rows_per_sample = max_choices

    def context_text(self, inputs: Mapping[str, Any]) -> str:
        """The first text of each pair: the context with the question."""
        text, question = str(inputs["text"]), str(inputs.get("question") or "")
        if question not in self.question_templates:
            return f"{text} {question}" if question else text
        return self.question_templates[question].replace("{text}", text.rstrip().removesuffix("."))

    def complete_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs with a question, which may be empty."""
        completed = {"text": inputs["text"], "question": inputs.get("question", ""), "choices": inputs["choices"]}
        _check_choices(Sample(inputs=completed))
        return completed

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Each choice with its context; the longer one is truncated first, a context at its beginning."""
        for sample in samples:
            _check_choices(sample)
        contexts = self.template.tokenize([self.context_text(sample.inputs) for sample in samples], with_offsets=False)
        all_choices = [choice for sample in samples for choice in sample.inputs["choices"]]
        choices = iter(self.template.tokenize(all_choices, with_offsets=False))
        max_tokens, pieces = self.template.max_text_tokens(2), []
        for index, (sample, context) in enumerate(zip(samples, contexts, strict=True)):
            pairs, longest, num_cut = [], 0, 0
            for _ in sample.inputs["choices"]:
                choice = next(choices)
                sizes = len(context.ids), len(choice.ids)
                kept_sizes = truncate_pair(*sizes, max_tokens)
                pairs.append((context.slice(sizes[0] - kept_sizes[0], sizes[0]), choice.slice(0, kept_sizes[1])))
                longest, num_cut = max(longest, sum(kept_sizes)), max(num_cut, sum(sizes) - sum(kept_sizes))
            pieces.append(
                SamplePiece(
                    sample_index=index,
                    num_tokens=longest + self.template.num_special_tokens(2),
                    features={"pairs": tuple(pairs), "gold": sample.gold},
                    num_truncated=num_cut,
                )
            )
        return pieces

    def prepare(self, row: Row, draw: RngFactory) -> list[Row]:
        """A row for each choice; the first carries the gold."""
        features = row.metadata["piece"].features
        rows: list[Row] = []
        for choice_index, (context, choice) in enumerate(features["pairs"]):
            encoded = self.template.build_input(context, choice)
            summary_position = np.array([encoded.summary_position])
            targets = {
                "read": {"at": summary_position, "choice": np.array([choice_index])},
                **self.lm_loss.targets(encoded),
            }
            if features["gold"] is not None and not rows:
                targets[self.term] = {"at": summary_position, "values": np.array([features["gold"]], np.int64)}
            metadata = {**row.metadata, "choice": choice_index}
            rows.append(Row(inputs=encoded.inputs, targets=targets, metadata=metadata, sample_id=row.sample_id))
        return rows


class ChoiceHead(TaskHead):
    """Softmax over the choices of a sample, each scored by the same head with one class."""

    def __init__(self, term: str, scorer: PooledLogits) -> None:
        self.term, self.scorer = term, scorer
        self.heads, self.loss_weights, self.has_margins = scorer.heads, {term: 1.0}, True
        self.export_obstacles = scorer.export_obstacles

    def margin(self, candidate: ChoiceProbs) -> float:
        """How far the best choice is ahead of the second best."""
        best = np.sort(candidate)[-2:]
        return float(best[-1] - best[0]) if len(best) == 2 else 1.0

    def output_positions(self, batch: Batch) -> Tensor | None:
        """Those of the scores."""
        return self.scorer.output_positions(batch)

    def logits(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[samples, max choices]; −∞ where a sample has fewer."""
        row_scores = self.scorer.row_logits(model, hidden, batch)
        table = row_scores.new_full((len(batch.sample_ids), max(_choice_counts(batch))), float("-inf"))
        return table.index_put((batch.sample_index, batch.targets["read"]["choice"]), row_scores[:, 0])

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the correct choice among those of its sample."""
        logits, target = self.logits(model, hidden, batch), batch.targets.get(self.term)
        if target is None:
            return Outcome(loss_sums={self.term: logits.masked_fill(logits.isinf(), 0.0).sum() * 0.0})
        logits, values = logits[samples_of_targets(target["at"], batch)], target["values"]
        return Outcome(
            loss_sums={self.term: F.cross_entropy(logits, values, reduction="sum")},
            metrics={"accuracy": count_correct(logits, values)},
        )

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[ChoiceProbs]:
        """The probabilities of each sample's choices."""
        probs = self.logits(model, hidden, batch).softmax(1).cpu().numpy()
        return [row[:num_choices] for row, num_choices in zip(probs, _choice_counts(batch), strict=True)]


def _check_choices(sample: Sample) -> None:
    """Raise if there are no choices, or the gold is not one of them."""
    prefix, num_choices = f"{sample.location}: " if sample.location else "", len(sample.inputs["choices"])
    if not num_choices:
        raise MeristemError(f"{prefix}there are no choices")
    if sample.gold is not None and not 0 <= sample.gold < num_choices:
        raise MeristemError(f"{prefix}the correct choice is {sample.gold}, but choices are 0 to {num_choices - 1}")


def _choice_counts(batch: Batch) -> list[int]:
    """Number of choices of each sample."""
    return [len(metadata["piece"].features["pairs"]) for metadata in batch.metadata if metadata["choice"] == 0]
