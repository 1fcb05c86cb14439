"""The parts of a task: input encoder, state reader, head with its loss and decoder, metrics, output format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.interfaces.objective import Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_evaluation import ConfusionMatrix, Metrics, Mistake, Resampler
from meristem.interfaces.task_signature import OutputKind


class InputEncoder(ABC):
    """Samples → pieces → rows of model inputs with their targets."""

    template: InputTemplate | None = None
    """The template of its texts; none for tasks without input texts."""
    max_rows_per_sample: int = 1
    export_obstacles: tuple[str, ...] = ()
    """What of it no transformers class does, for the message of an export."""

    @abstractmethod
    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Tokenize all samples at once and split or truncate them to the model's maximum length; order is kept."""

    def complete_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs of a sample from those that a user gives: as they are, unless words must be found in a text."""
        return inputs

    @abstractmethod
    def prepare(self, row: Row, draw: RngFactory) -> Row | list[Row]:
        """The rows of the piece in `row.metadata["piece"]`, with targets where its gold is known."""


class StateReader(ABC):
    """The modules between backbone and task head, and the hidden states that they compute."""

    heads: Mapping[str, Head]
    export_obstacles: tuple[str, ...] = ()
    """What of it no transformers class does."""

    @abstractmethod
    def encode(self, model: Model, batch: Batch, state: State | None, positions: Tensor | None) -> Hidden:
        """Hidden states of a batch; only those at flat `positions` if given and the model can do that."""


@dataclass(frozen=True, kw_only=True)
class HeadClasses:
    """What the logits of a head stand for."""

    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    """single, multiple or regression, for heads that predict labels or a number."""
    target_range: tuple[float, float] | None = None
    """The numbers that 0 and 1 stand for, for a regression."""


class TaskHead(ABC):
    """A head with its loss and its decoder: hidden states → loss, hidden states → predictions."""

    heads: Mapping[str, Head]
    loss_weights: Mapping[str, float]
    decoder_start_ids: tuple[int, ...] | None = None
    """As of objectives: tokens that every generated target starts with."""
    source_kinds: frozenset[str] = frozenset()
    """As of objectives: what a decoder is conditioned on."""
    classes: HeadClasses = HeadClasses()
    export_obstacles: tuple[str, ...] = ()
    """What of it neither a transformers class nor a graph of the encoder and its head does."""
    class_obstacles: tuple[str, ...] = ()
    """What of it no transformers class has, but a graph leaves out or outputs."""
    has_margins: bool = False
    """Whether `margin` is defined; otherwise predictions are float32 unless bfloat16 is asked for."""
    has_mixture: bool = False
    """Whether it has several parts, whose logits are weighed by validation samples."""

    def margin(self, candidate: Any) -> float:
        """How far, as a probability, the answer in a candidate is from another one."""
        raise NotImplementedError

    def output_positions(self, batch: Batch) -> Tensor | None:
        """Sorted flat positions whose states it uses, where they are few; None means all."""
        return None

    @abstractmethod
    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The loss of each term as a sum over its predictions, and metrics."""

    @abstractmethod
    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Any]:
        """One candidate prediction per piece of the batch, as plain Python data."""

    def scored_parts(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, ...] | None:
        """What `fit_mixture` needs of a batch: the logits of each part, and the targets; None without gold labels."""
        raise NotImplementedError

    def fit_mixture(self, model: Model, scored: Sequence[tuple[Tensor, ...]]) -> None:
        """Weigh the parts of a head by validation samples."""
        raise NotImplementedError

    def merge(self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]) -> list[Any]:
        """One prediction per sample, merged from the candidates of its pieces; by default each sample is one piece."""
        return list(candidates)

    def generate(self, model: Model, pieces: Sequence[SamplePiece]) -> list[Any] | None:
        """Predictions by text generation; None for heads that use `decode` and `merge`."""
        return None


class AuxiliaryLoss(ABC):
    """A loss beside that of the task, on the same hidden states."""

    heads: Mapping[str, Head]
    loss_weights: Mapping[str, float]

    @abstractmethod
    def add(self, model: Model, hidden: Hidden, batch: Batch, outcome: Outcome) -> Outcome:
        """The outcome with this loss added."""


class TaskMetrics(ABC):
    """Metrics of predictions against golds, baselines, confusion and mistakes."""

    main: str
    """Main metric, which also selects the best checkpoint; `loss` where generating predictions takes too long."""

    @abstractmethod
    def resampler(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> Resampler:
        """A function from resampled indices to metrics, for bootstrap intervals; 1,000 calls should take seconds."""

    def compute(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> Metrics:
        """Metrics over the whole set, as the reference libraries compute them; every sample has a gold answer."""
        return self.resampler(predictions, samples)(np.arange(len(samples)))

    def support(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Metric name → number of items it averages over (positives, entities), where those are not the samples."""
        return {}

    def signature(self, samples: Sequence[Sample]) -> str:
        """How the metrics on these samples are computed, where that is usually cited (sacrebleu); else empty."""
        return ""

    def baselines(self, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, Metrics]:
        """Name → metrics of constant predictions: the most frequent label, the mean, the empty answer."""
        return {}

    def confusion(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> ConfusionMatrix | None:
        """The confusion matrix; None for tasks without labels."""
        return None

    def mistakes(self, predictions: Sequence[Any], samples: Sequence[Sample]) -> list[Mistake]:
        """Wrong predictions, most confident first."""
        return []

    def unseen_labels(self, samples: Sequence[Sample]) -> list[str]:
        """Warnings about gold labels that do not occur in the training data, with their locations."""
        return []


class OutputFormat(ABC):
    """Predictions in the format of transformers' pipelines: {label, score}, {answer, score, start, end}, …"""

    kind: OutputKind
    located_in: str = "text"
    """The input in which `start` and `end` of the output are characters."""

    @abstractmethod
    def format(self, prediction: Any, sample: Sample) -> Any:
        """The prediction."""

    def format_top(self, prediction: Any, sample: Sample, top: int) -> list[Any]:
        """The `top` most probable predictions, best first; by default only one."""
        output = self.format(prediction, sample)
        return output if isinstance(output, list) else [output]

    def describe(self, sample: Sample) -> str:
        """A sample with its gold as one or two lines of text, for checking how its row was parsed."""
        text = " | ".join(str(value) for value in sample.inputs.values())
        return f"{text}  →  {sample.gold}"


@dataclass(frozen=True, kw_only=True)
class TaskParts:
    """What a task is composed of."""

    encoder: InputEncoder
    states: StateReader
    head: TaskHead
    metrics: TaskMetrics
    output: OutputFormat
    auxiliary_loss: AuxiliaryLoss | None = None

    @property
    def export_obstacles(self) -> tuple[str, ...]:
        """What no transformers class does."""
        return (*self.head.class_obstacles, *self.graph_obstacles)

    @property
    def graph_obstacles(self) -> tuple[str, ...]:
        """What makes the logits others than those of the encoder and its head on one row."""
        return (*self.head.export_obstacles, *self.encoder.export_obstacles, *self.states.export_obstacles)
