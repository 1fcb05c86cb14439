"""The `Objective` interface: prepares inputs and targets and computes a loss; `Outcome`, `ViewSpec`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from meristem.config.registry import ComponentKind, Registry
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model, State
from meristem.objectives.settings import ObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(kw_only=True)
class Outcome:
    """Result of a forward pass: loss sums per term, never means."""

    loss_sums: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Name → (sum, count)."""
    score_histograms: dict[str, Tensor] = field(default_factory=dict)
    """Name → histogram of binary scores (`metrics.roc_auc`): an evaluation sums them and computes ROC AUC."""
    state: State = field(default_factory=dict)
    observations: list[Any] = field(default_factory=list)
    """What a training pass adds to the history of an objective that keeps one, as JSON data."""
    loss: Tensor | None = None
    """Σ weight · sum / total over the terms; set by the learner."""


@dataclass(frozen=True)
class ViewSpec:
    """How an objective cuts the token dataset into samples: a module of dataset/views and its options."""

    kind: str
    options: tuple[tuple[str, Any], ...] = ()


class Objective(ABC):
    """A training objective: prepares inputs and targets, and computes the loss. It has no parameters, so that data
    workers can pickle it."""

    Settings: ClassVar[type[ObjectiveSettings]]
    name: ClassVar[str]
    requires: ClassVar[frozenset[str]]
    """Capabilities a backbone must have."""
    axis: str = "tokens"
    """The input whose time dimension is the prediction axis, which the positions `at` index."""
    off_axis_inputs: ClassVar[frozenset[str]] = frozenset({"source"})
    """Inputs that never run along that axis, even where their lengths happen to be equal."""
    view: ViewSpec = ViewSpec("windows")
    memory_view: ViewSpec | None = None
    """The view for a backbone with segment memory; None if the objective does not use memory."""
    max_rows_per_sample: int = 1
    """Maximum number of rows that one sample becomes."""
    updates_per_batch: int = 1
    """Optimizer updates per explored batch (rollout)."""
    keeps_history: bool = False
    """Whether it carries JSON data from step to step (`observations`, `update_history`), saved with the train state."""
    heads: Mapping[str, Head]
    loss_weights: Mapping[str, float]
    """Loss term → weight; its keys are the terms."""
    decoder_start_ids: tuple[int, ...] | None = None
    """Tokens that every target starts with, for objectives that train generation."""
    predicts_masked_next: bool = False
    """Whether it trains the causal head to predict masked tokens at the position before them (hybrid)."""
    text_pooling: str | None = None
    """How it pools hidden states to the embedding of a text: mean, first or last; None if it trains no embeddings."""
    source_kinds: frozenset[str] = frozenset()
    """What a decoder is conditioned on: text, image, or a text with masks (BART) or sentinels (T5) for its gaps."""

    @abstractmethod
    def __init__(self, settings: ObjectiveSettings, tokenizer: Tokenizer) -> None:
        """Settings, and the tokenizer, whose special tokens the objective uses."""

    @abstractmethod
    def prepare(self, row: Row, draw: RngFactory) -> Row | list[Row]:
        """Corrupt or mask one sample and set its targets; runs in data workers, in numpy."""

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of predictions per loss term in this batch, known before the forward pass."""
        return {term: len(batch.targets[term]["at"]) if term in batch.targets else 0 for term in self.loss_weights}

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """The batch extended by what the model computes without gradient: rollouts, reference log-probabilities.

        `history` is what `update_history` returned after the last step; None before the first step and in dry runs
        (counting FLOPs, measuring speed).
        """
        return batch

    def observations(self, batch: Batch) -> list[Any]:
        """What an explored batch adds to the history, as JSON data; a pass adds `Outcome.observations`."""
        return []

    def update_history(self, history: Any, observations: Sequence[Any]) -> Any:
        """The history after a step, as JSON data, from the observations of all processes.

        It must not depend on the order of the observations, which changes with the number of processes.
        """
        return history

    def after_step(self, model: Model, metrics: Mapping[str, tuple[Tensor, Tensor]]) -> str | None:
        """Called after an optimizer step with metrics (sum, count) over all processes; a reason to stop, or None."""
        return None

    def output_positions(self, batch: Batch) -> Tensor | None:
        """Sorted flat positions [N] whose hidden states the loss uses, where they are few; None means all."""
        return None

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Hidden states of the batch: one call of the backbone."""
        positions = self.output_positions(batch) if model.backbone.supports_output_positions else None
        position_kwargs = {} if positions is None else {"output_positions": positions}
        return model.backbone(state=state, **batch.inputs, **position_kwargs)  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped

    @abstractmethod
    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The loss of each term as a SUM over its predictions, and metrics.

        `model.training` says whether this is training, with what regularizes it (dropout, label smoothing, class
        weights, penalties), or evaluation.
        """


OBJECTIVES: Registry[Objective] = Registry(ComponentKind.OBJECTIVE, Objective)  # type: ignore[type-abstract]
"""Pretraining objectives by name: `OBJECTIVES["mlm"]` is the class in objectives/mlm.py."""
POLICY_OBJECTIVES: Registry[Objective] = Registry(ComponentKind.POLICY, Objective)  # type: ignore[type-abstract]
"""Objectives of reward training by name."""
