"""The `Task` interface for fine-tuning: an objective over labelled samples, with predictions and evaluation metrics."""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from meristem.config.registry import ComponentKind, Registry
from meristem.inputs.batch import Batch
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Hidden, Model
from meristem.interfaces.objective import Objective
from meristem.tasks.settings import TaskSettings
from meristem.tokenizers.tokenizer import Tokenizer

Indices = NDArray[np.int64]
Metrics = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One labelled example: its inputs, its gold answer where known, and where it was read from."""

    inputs: Mapping[str, Any]
    """Input name → value: text, text_b, words, question, passage, choices, turns, source, picture."""
    gold: Any = None
    location: str = ""
    """`file:line` or similar, for error messages."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The row it was read from, column → value, where other columns are still needed."""


@dataclass(frozen=True, kw_only=True)
class SamplePiece:
    """One model input: a whole sample, or one sliding window of a long one."""

    sample_index: int
    """Index of its sample in the list passed to `encode_samples`."""
    num_tokens: int
    """Length in tokens, special tokens included; batches group pieces of similar length (length bucketing)."""
    features: Mapping[str, Any]
    """Inputs of `prepare`: token ids, offsets, boundaries."""
    num_truncated: int = 0
    """Tokens of the sample that were truncated and are in none of its pieces."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong prediction and the model's confidence in it."""

    location: str
    """File and line of the sample."""
    input_text: str
    gold: str
    prediction: str
    confidence: float


@dataclass(frozen=True, kw_only=True)
class ConfusionMatrix:
    """Sparse confusion matrix: counts of the (gold, predicted) pairs that occur. Dense, 100,000 labels take 80 GB."""

    labels: tuple[str, ...]
    gold_ids: NDArray[np.int64]
    """Gold label index of each pair; pairs are sorted by gold, then by prediction."""
    predicted_ids: NDArray[np.int64]
    pair_counts: NDArray[np.int64]
    """Number of occurrences of each pair."""

    @classmethod
    def from_labels(cls, labels: Sequence[str], golds: Sequence[str], predictions: Sequence[str]) -> ConfusionMatrix:
        """Count the pairs of one gold label and one predicted label per sample."""
        index_of = {label: index for index, label in enumerate(labels)}
        gold_ids, predicted_ids = (
            np.array([index_of[label_name] for label_name in names], np.int64) for names in (golds, predictions)
        )
        pairs, pair_counts = np.unique(gold_ids * len(labels) + predicted_ids, return_counts=True)
        gold_ids, predicted_ids = np.divmod(pairs, max(1, len(labels)))
        return cls(
            labels=tuple(labels),
            gold_ids=gold_ids,
            predicted_ids=predicted_ids,
            pair_counts=pair_counts.astype(np.int64),
        )

    @classmethod
    def from_matrix(cls, labels: Sequence[str], matrix: NDArray[np.int64]) -> ConfusionMatrix:
        """From a dense matrix: gold labels in rows, predictions in columns."""
        gold_ids, predicted_ids = np.nonzero(matrix)
        pair_counts = matrix[gold_ids, predicted_ids]
        return cls(labels=tuple(labels), gold_ids=gold_ids, predicted_ids=predicted_ids, pair_counts=pair_counts)

    @property
    def matrix(self) -> NDArray[np.int64]:
        """Dense matrix [gold, predicted]; only for small label sets."""
        matrix = np.zeros((len(self.labels), len(self.labels)), np.int64)
        matrix[self.gold_ids, self.predicted_ids] = self.pair_counts
        return matrix


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation:
    """Evaluation of a task on one split: metrics, confidence intervals, confusion matrix, mistakes."""

    metrics: Metrics
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """95 % bootstrap confidence interval of each metric."""
    num_samples: int = 0
    signature: str = ""
    """How a metric was computed, where it is usually cited with it (the sacrebleu signature)."""
    confusion: ConfusionMatrix | None = None
    mistakes: tuple[Mistake, ...] = ()


class Task(Objective):
    """An objective over labelled samples.

    Its settings hold what `fit_settings` took from the training data (the label set), so that a run loads without it.
    """

    sample_type: str
    """A module of labelled/sample_types: text, pair, words, span, choice, turns, written, picture."""
    requires_any: ClassVar[frozenset[str]]
    """Capabilities of which a backbone needs at least one: bidirectional, causal, both_directions, encoder_decoder."""
    Settings: ClassVar[type[TaskSettings]]
    settings: Any
    """Settings of the recipe, completed by `fit_settings`."""
    metric: str
    """Main metric, which also selects the best checkpoint; `loss` where generating predictions takes too long."""
    requires = frozenset()
    template: InputTemplate | None = None
    """The template of its texts; none for tasks without input texts."""

    @classmethod
    def sample_type_for(cls, settings: Any) -> str:
        """The sample type with these settings; most tasks have only one."""
        return cls.sample_type

    @classmethod
    def fit_settings(cls, settings: Any, samples: Sequence[Sample]) -> TaskSettings:
        """The settings completed from the training data: label set, range of a score."""
        return settings  # type: ignore[no-any-return]  # of the task's own class

    @classmethod
    def extend_tokenizer(cls, settings: Any, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer, with any additional tokens the task needs."""
        return tokenizer

    def unseen_label_warnings(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about gold labels that do not occur in the training data, with their locations."""
        return []

    @classmethod
    def sample_texts(cls, sample: Sample) -> list[str]:
        """The texts of a sample, for training a tokenizer on them."""
        parts = [value for value in sample.inputs.values() if isinstance(value, str | list | tuple)]
        return [part if isinstance(part, str) else " ".join(map(str, part)) for part in parts]

    @abstractmethod
    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Tokenize all samples at once and split or truncate them to the model's maximum length; order is kept."""

    @abstractmethod
    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Any]:
        """One candidate prediction per piece of the batch, as plain Python data."""

    def merge_pieces(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[Any]:
        """One prediction per sample, merged from the candidates of its pieces; by default each sample is one piece."""
        return list(candidates)

    def generate(self, model: Model, samples: Sequence[Sample]) -> list[Any] | None:
        """Predictions by text generation; None for tasks that use `decode` and `merge_pieces`."""
        return None

    @abstractmethod
    def compute_metrics(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> Metrics:
        """Metrics over the whole set, from the reference libraries; every sample has a gold answer."""

    def bootstrap_metrics(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> Callable[[Indices], Metrics]:
        """A function from resampled indices to metrics, for bootstrap intervals; 1,000 calls should take seconds."""
        return lambda indices: self.compute_metrics([predictions[i] for i in indices], [samples[i] for i in indices])

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Metric name → number of items it averages over (positives, entities), where those are not the samples."""
        return {}

    def metric_signature(self, samples: Sequence[Sample]) -> str:
        """How the metrics on these samples are computed, where that is usually cited (sacrebleu); else empty."""
        return ""

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Name → metrics of constant predictions: the most frequent label, the mean, the empty answer."""
        return {}

    def confusion_matrix(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """The confusion matrix; None for tasks without labels."""
        return None

    def mistakes(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong predictions, most confident first."""
        return []

    @abstractmethod
    def format_output(self, prediction: Any, sample: Sample) -> Any:
        """A prediction in the format of transformers' pipelines: {label, score}, {answer, score, start, end}, …"""

    def format_top_outputs(self, prediction: Any, sample: Sample, top: int) -> list[Any]:
        """The `top` most probable predictions in the format of `format_output`, best first; by default only one."""
        output = self.format_output(prediction, sample)
        return output if isinstance(output, list) else [output]

    def describe_sample(self, sample: Sample) -> str:
        """A sample as one or two lines of text, for checking how its row was parsed."""
        text = " | ".join(str(value) for value in sample.inputs.values())
        return f"{text}  →  {sample.gold}"

    def parse_input(self, value: str | Mapping[str, Any]) -> Sample:
        """User input (a text or named fields) as a sample without a gold answer."""
        return Sample(inputs={self.sample_type: value} if isinstance(value, str) else value)

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """Command lines that predict on such a sample, for the report of a run."""
        text = sample.inputs.get("text", next(iter(sample.inputs.values())))
        return [f"meristem predict {run_path} {shlex.quote(str(text))}"]


TASKS: Registry[Task] = Registry(ComponentKind.TASK, Task)  # type: ignore[type-abstract]
"""Fine-tuning tasks by name: `TASKS["classification"]` is the class in tasks/classification.py."""
