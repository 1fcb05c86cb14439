"""The `Task` interface for fine-tuning: an objective over labelled samples, composed of parts, with a signature."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic

from pydantic import Field
from torch import Tensor
from typing_extensions import TypeVar

from meristem.config.registry import ComponentKind, Registry
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.inputs.template import BackboneMode, InputTemplate, add_task_tokens
from meristem.interfaces.backbone import Hidden, Model, State
from meristem.interfaces.objective import Objective, Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import HeadClasses, TaskMetrics, TaskParts
from meristem.interfaces.task_signature import TaskSignature
from meristem.models.settings import ModelSettings
from meristem.tasks.settings import TaskSettings
from meristem.tokenizers.tokenizer import Tokenizer


class CommonTaskSettings(TaskSettings):
    """Settings of every task; what is not set comes from the model."""

    backbone_mode: BackboneMode | None = None
    """How the backbone attends to a text; that of the model family if not set."""
    max_length: int | None = Field(None, ge=4)
    """Maximum tokens of a sequence, special tokens included; the model's maximum length if not set."""
    decoder_start_ids: tuple[int, ...] = ()
    """Decoder start tokens of an encoder-decoder; as in pretraining if not set."""

    @classmethod
    def of_classes(cls, classes: HeadClasses) -> dict[str, Any]:
        """The settings that follow from what the logits of an imported head stand for."""
        return {}


S = TypeVar("S", bound=CommonTaskSettings, default=Any)
"""Settings of a task; of an unknown class where a task is one of several, as the registry returns it."""


class Task(Objective, Generic[S]):
    """An objective over labelled samples, composed of parts.

    Its settings hold what `fit_settings` took from the training data (the label set), so that a run loads without it.
    """

    Settings: ClassVar[type[CommonTaskSettings]]
    signature: ClassVar[TaskSignature]
    sample_type: str = "text"
    """A module of labelled/sample_types: text, pair, words, span, choice, turns, source_target, image."""
    requires_any: ClassVar[frozenset[str]] = frozenset(
        {"bidirectional", "causal", "both_directions", "encoder_decoder"}
    )
    """Capabilities of which a backbone needs at least one."""
    requires = frozenset()
    settings: S
    """Settings of the recipe, completed by `fit_settings`."""
    parts: TaskParts

    def __init__(self, settings: S, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.sample_type = self.sample_type_for(settings)
        self.parts = self.compose(settings, tokenizer)
        parts, auxiliary = self.parts, self.parts.auxiliary_loss
        self.heads = {**parts.states.heads, **(auxiliary.heads if auxiliary else {}), **parts.head.heads}
        self.loss_weights = {**parts.head.loss_weights, **(auxiliary.loss_weights if auxiliary else {})}
        self.max_rows_per_sample = parts.encoder.max_rows_per_sample
        self.decoder_start_ids, self.source_kinds = parts.head.decoder_start_ids, parts.head.source_kinds

    @classmethod
    @abstractmethod
    def compose(cls, settings: S, tokenizer: Tokenizer) -> TaskParts:
        """The parts of the task with these settings."""

    # ------------------------------------------------------------ before training

    @classmethod
    def sample_type_for(cls, settings: S) -> str:
        """The sample type with these settings; most tasks have only one."""
        return cls.sample_type

    @classmethod
    def fit_settings(cls, settings: S, samples: Sequence[Sample]) -> S:
        """The settings completed from the training data: label set, range of a score."""
        return settings

    @classmethod
    def complete_settings(cls, settings: S, model_settings: ModelSettings) -> S:
        """The settings completed from those of the model: its maximum length."""
        max_length = model_settings.max_length if settings.max_length is None else settings.max_length
        return settings.model_copy(update={"max_length": max_length})

    @classmethod
    def extend_tokenizer(cls, settings: S, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with start, delimiter and extract tokens for causal models, unless it has them already."""
        return add_task_tokens(tokenizer) if settings.backbone_mode == "causal" else tokenizer

    @classmethod
    def sample_texts(cls, sample: Sample) -> list[str]:
        """The texts of a sample, those to be generated too, for training a tokenizer on them."""
        golds = sample.gold or () if cls.signature.output == "text" else ()
        return [*cls.signature.texts(sample.inputs), *golds]

    # ------------------------------------------------------------ input, training, predictions

    @property
    def template(self) -> InputTemplate | None:
        """The template of its texts; none for tasks without input texts."""
        return self.parts.encoder.template

    def encode_samples(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """The pieces of the samples, in order."""
        return self.parts.encoder.encode_samples(samples)

    def prepare(self, row: Row, draw: RngFactory) -> Row | list[Row]:
        """The rows of a piece."""
        return self.parts.encoder.prepare(row, draw)

    def output_positions(self, batch: Batch) -> Tensor | None:
        """The positions whose states are used, unless an auxiliary loss uses all."""
        return None if "lm" in self.loss_weights else self.parts.head.output_positions(batch)

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Hidden states for the head."""
        return self.parts.states.encode(model, batch, state, self.output_positions(batch))

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The loss of the head, and the auxiliary one."""
        outcome = self.parts.head.loss(model, hidden, batch)
        auxiliary = self.parts.auxiliary_loss
        return outcome if auxiliary is None else auxiliary.add(model, hidden, batch, outcome)

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[Any]:
        """One candidate prediction per piece of the batch."""
        return self.parts.head.decode(model, hidden, batch)

    def margin(self, candidate: Any) -> float | None:
        """How far, as a probability, the answer in a candidate is from another one; None if the head cannot tell."""
        return self.parts.head.margin(candidate) if self.parts.head.has_margins else None

    def merge_pieces(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[Any]:
        """One prediction per sample."""
        return self.parts.head.merge(samples, pieces, candidates)

    def generate(self, model: Model, pieces: Sequence[SamplePiece]) -> list[Any] | None:
        """Predictions by text generation; None for tasks that decode hidden states."""
        return self.parts.head.generate(model, pieces)

    # ------------------------------------------------------------ input and output for people

    @property
    def metrics(self) -> TaskMetrics:
        """Its metrics."""
        return self.parts.metrics

    @property
    def metric(self) -> str:
        """Main metric, which also selects the best checkpoint."""
        return self.parts.metrics.main

    def parse_input(self, value: Any) -> Sample:
        """User input (a text or named fields) as a sample without a gold answer."""
        return Sample(inputs=self.parts.encoder.complete_inputs(self.signature.parse(self.name, value)))

    def format_output(self, prediction: Any, sample: Sample) -> Any:
        """A prediction in the format of transformers' pipelines."""
        return self.parts.output.format(prediction, sample)

    def format_top_outputs(self, prediction: Any, sample: Sample, top: int) -> list[Any]:
        """The `top` most probable predictions, best first."""
        return self.parts.output.format_top(prediction, sample, top)

    def describe_sample(self, sample: Sample) -> str:
        """A sample with its gold as one or two lines of text."""
        return self.parts.output.describe(sample)

    def example_commands(self, run_path: str, sample: Sample) -> list[str]:
        """Command lines that predict on such a sample, for the report of a run."""
        command = self.signature.command(run_path, sample.inputs)
        return [] if command is None else [command]


TASKS: Registry[Task] = Registry(ComponentKind.TASK, Task)  # type: ignore[type-abstract]
"""Fine-tuning tasks by name: `TASKS["classification"]` is the class in tasks/classification.py."""
