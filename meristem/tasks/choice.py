"""Multiple choice: each choice is scored together with the context; softmax over the choices."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from meristem.blocks.heads.accuracy import is_correct
from meristem.blocks.precision import at_least_float32
from meristem.config.errors import MeristemError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.encoded_input import truncate_pair
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.task import Indices, Metrics, Mistake, Sample, SamplePiece
from meristem.tasks._encoder_task import EncoderTask, EncoderTaskSettings, Pooling
from meristem.tokenizers.tokenizer import Tokenizer

ChoiceProbs = NDArray[np.float32]
"""A probability for each choice of the sample."""
QUESTION_TEMPLATES = {"cause": "{text} because", "effect": "{text} so"}


class ChoiceTaskSettings(EncoderTaskSettings):
    """Settings of multiple choice."""

    renamed: ClassVar[dict[str, str]] = {
        "choices": "max_choices",
        "joined": "question_templates",
    }

    name: Literal["choice"] = "choice"
    """The task's name."""
    max_choices: int = Field(2, ge=1)
    """Maximum number of choices of a training sample."""
    question_templates: dict[str, str] = QUESTION_TEMPLATES
    """Question type → template that joins it to the context; COPA's cause and effect if not set."""
    pooling: Pooling | None = None
    """Pooling of the states: first, last, mean or max; the summary token ([CLS] or the last) if not set."""


class ChoiceTask(EncoderTask):
    """p(choice | context, choices): softmax over the choices of a sample, each scored in a row of its own."""

    Settings = ChoiceTaskSettings
    name = "choice"
    sample_type = "choice"
    metric = "accuracy"

    def __init__(self, settings: ChoiceTaskSettings, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        kind = "scores" if settings.backbone_mode == "causal" else "pooled"
        self.heads = {**self.encoder_heads(), self.name: self.sized_head(kind, 1)}
        self.loss_weights = self.task_loss_weights
        self.max_rows_per_sample = settings.max_choices

    @classmethod
    def fit_settings(cls, settings: ChoiceTaskSettings, samples: Sequence[Sample]) -> ChoiceTaskSettings:
        """The settings with the maximum number of choices."""
        return settings.model_copy(update={"max_choices": max(len(sample.inputs["choices"]) for sample in samples)})

    # ------------------------------------------------------------ rows

    def context_text(self, inputs: Mapping[str, Any]) -> str:
        """The first text of each pair: the context with the question."""
        text, question = str(inputs["text"]), str(inputs.get("question") or "")
        if question not in self.settings.question_templates:
            return f"{text} {question}" if question else text
        template: str = self.settings.question_templates[question]
        return template.replace("{text}", text.rstrip().removesuffix("."))

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
            parts = {"pairs": tuple(pairs), "gold": sample.gold}
            pieces.append(
                SamplePiece(
                    sample_index=index,
                    num_tokens=longest + self.template.num_special_tokens(2),
                    features=parts,
                    num_truncated=num_cut,
                )
            )
        return pieces

    def prepare(self, row: Row, draw: RngFactory) -> list[Row]:
        """A row for each choice; the first carries the gold."""
        parts: dict[str, Any] = row.metadata["piece"].features
        rows: list[Row] = []
        for choice_index, (context, choice) in enumerate(parts["pairs"]):
            encoded = self.template.build_input(context, choice)
            summary_position = np.array([encoded.summary_position])
            goals = {"read": {"at": summary_position, "choice": np.array([choice_index])}, **self.lm_goal(encoded)}
            if parts["gold"] is not None and not rows:
                goals[self.name] = {"at": summary_position, "values": np.array([parts["gold"]], np.int64)}
            notes = {**row.metadata, "choice": choice_index}
            rows.append(Row(inputs=encoded.inputs, targets=goals, metadata=notes, sample_id=row.sample_id))
        return rows

    # ------------------------------------------------------------ training

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """Logits [samples, max choices], −∞ where a sample has fewer."""
        read_goal = batch.targets["read"]
        row_scores: Tensor = at_least_float32(
            model.heads[self.name](
                self.pool(hidden, batch, self.settings.pooling, read_goal["at"], training=model.training)
            )
        )
        table = row_scores.new_full((len(batch.sample_ids), max(_choice_counts(batch))), float("-inf"))
        return table.index_put((batch.sample_index, read_goal["choice"]), row_scores[:, 0])

    def output_positions(self, batch: Batch) -> Tensor | None:
        """The summary positions, if no other states are needed; else None."""
        return batch.targets["read"]["at"] if self.settings.pooling is None and not self.settings.lm_weight else None

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the correct choice among those of its sample."""
        scores, goal = self.scores(model, hidden, batch), batch.targets.get(self.name)
        if goal is None:
            zero = scores.masked_fill(scores.isinf(), 0.0).sum() * 0.0
            return self.add_lm_loss(model, hidden, batch, Outcome(loss_sums={self.name: zero}))
        scores, values = scores[batch.sample_index[goal["at"] // batch.inputs["tokens"].shape[1]]], goal["values"]
        outcome = Outcome(loss_sums={self.name: F.cross_entropy(scores, values, reduction="sum")})
        num_correct = is_correct(scores, values).sum().float()
        outcome.metrics["accuracy"] = (num_correct, torch.full((), float(len(values)), device=num_correct.device))
        return self.add_lm_loss(model, hidden, batch, outcome)

    # ------------------------------------------------------------ predictions

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[ChoiceProbs]:
        """The probabilities of each sample's choices."""
        probs = self.scores(model, hidden, batch).softmax(1).cpu().numpy()
        return [row[:num_choices] for row, num_choices in zip(probs, _choice_counts(batch), strict=True)]

    def compute_metrics(self, predictions: Sequence[ChoiceProbs], samples: Sequence[Sample]) -> Metrics:
        """Accuracy."""
        return {"accuracy": float(_is_correct_choice(predictions, samples).mean())}

    def bootstrap_metrics(
        self, predictions: Sequence[ChoiceProbs], samples: Sequence[Sample]
    ) -> Callable[[Indices], Metrics]:
        """Accuracy for resampled indices."""
        correct = _is_correct_choice(predictions, samples)
        return lambda indices: {"accuracy": float(correct[indices].mean())}

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """The expected accuracy of random guessing."""
        return {"guessing": {"accuracy": float(np.mean([1 / len(sample.inputs["choices"]) for sample in samples]))}}

    def mistakes(self, predictions: Sequence[ChoiceProbs], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong choices, most confident first."""
        mistakes = [
            Mistake(
                location=sample.location,
                input_text=self.context_text(sample.inputs),
                gold=sample.inputs["choices"][sample.gold],
                prediction=sample.inputs["choices"][int(prediction.argmax())],
                confidence=float(prediction.max()),
            )
            for prediction, sample in zip(predictions, samples, strict=True)
            if int(prediction.argmax()) != sample.gold
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.confidence)

    def format_output(self, prediction: ChoiceProbs, sample: Sample) -> Any:
        """{label, choice, score}: index from 0, text and probability."""
        return self.format_top_outputs(prediction, sample, 1)[0]

    def format_top_outputs(self, prediction: ChoiceProbs, sample: Sample, top: int) -> list[Any]:
        """The most probable choices."""
        choices, top_indices = sample.inputs["choices"], np.argsort(-prediction, kind="stable")[:top].tolist()
        return [{"label": index, "choice": choices[index], "score": float(prediction[index])} for index in top_indices]

    def describe_sample(self, sample: Sample) -> str:
        """The context with its question, and the choices with the correct one in brackets."""
        choices = (
            f"[{choice}]" if index == sample.gold else choice for index, choice in enumerate(sample.inputs["choices"])
        )
        return f"{self.context_text(sample.inputs)}  →  {' | '.join(choices)}"

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """A mapping with `text`, `choices` and optionally `question`."""
        values = {} if isinstance(value, str) else value
        choices = values.get("choices")
        if not isinstance(values.get("text"), str) or not isinstance(choices, list | tuple):
            raise MeristemError(
                'task choice takes a text and its choices: give {"text": "…", "choices": ["…", "…"]} '
                '(--choices "…" --choices "…")'
            )
        sample = Sample(
            inputs={
                "text": values["text"],
                "question": str(values.get("question") or ""),
                "choices": tuple(map(str, choices)),
            }
        )
        _check_choices(sample)
        return sample

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """The command with text, question and choices."""
        choices = " ".join(f"--choices {shlex.quote(choice)}" for choice in sample.inputs["choices"])
        question = f" --question {shlex.quote(sample.inputs['question'])}" if sample.inputs.get("question") else ""
        return [f"meristem predict {run_path} {shlex.quote(sample.inputs['text'])}{question} {choices}"]


def _check_choices(sample: Sample) -> None:
    """Raise if there are no choices, or the gold is not one of them."""
    prefix, num_choices = f"{sample.location}: " if sample.location else "", len(sample.inputs["choices"])
    if not num_choices:
        raise MeristemError(f"{prefix}there are no choices")
    if sample.gold is not None and not 0 <= sample.gold < num_choices:
        raise MeristemError(f"{prefix}the correct choice is {sample.gold}, but choices are 0 to {num_choices - 1}")


def _choice_counts(batch: Batch) -> list[int]:
    """Number of choices of each sample."""
    return [len(row_notes["piece"].features["pairs"]) for row_notes in batch.metadata if row_notes["choice"] == 0]


def _is_correct_choice(predictions: Sequence[ChoiceProbs], samples: Sequence[Sample]) -> NDArray[np.bool_]:
    return np.array([int(probs.argmax()) == sample.gold for probs, sample in zip(predictions, samples, strict=True)])
