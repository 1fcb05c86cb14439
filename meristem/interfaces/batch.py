"""Interfaces of training: data types (Row, Batch, Hidden, Outcome), `Backbone`, `Model`, `Objective`, and `collate`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from meristem.config.settings import Settings

Array = NDArray[Any]
State = dict[str, Tensor]
"""Segment memory, KV cache or recurrent state: tensors whose first dimension is the row of the batch."""

TEXT_INPUTS = ("tokens", "source")
"""Names of inputs that hold token ids."""
CONTEXT_MODES = ("causal", "bidirectional", "two_stream", "both_directions", "encoder_decoder")
"""Attention patterns of backbones. With `memory`, `image` and `characters` these are all capabilities."""


@dataclass(kw_only=True)
class Row:
    """One row before collation: inputs of the backbone and targets of each loss term, as numpy arrays."""

    inputs: dict[str, Array]
    """Keyword arguments of the backbone, one row of each; the first dimension is time."""
    targets: dict[str, dict[str, Array]] = field(default_factory=dict)
    """Per loss term `at` (positions on the row's prediction axis) and arrays of the same length (`values`, …)."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Plain data that stays on the CPU: offsets, original text, which tokens are special."""
    sample_id: int = 0


@dataclass(kw_only=True)
class Batch:
    """Collated rows: tensors for the backbone, flat targets for the losses, counts known before the forward pass."""

    inputs: dict[str, Any]
    targets: dict[str, dict[str, Tensor]]
    target_counts: dict[str, int]
    sample_index: Tensor
    """Row → index of its sample in `sample_ids`: one sample may become several rows."""
    sample_ids: list[int]
    metadata: list[dict[str, Any]]
    num_tokens: int
    """Source and target tokens of all rows without padding: the unit of token budgets and throughput."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device.type == "cpu":
            return self
        inputs = {
            key: tensor.to(device, non_blocking=True) if isinstance(tensor, Tensor) else tensor
            for key, tensor in self.inputs.items()
        }
        targets = {
            term: {key: tensor.to(device, non_blocking=True) for key, tensor in target.items()}
            for term, target in self.targets.items()
        }
        return replace(self, inputs=inputs, targets=targets, sample_index=self.sample_index.to(device))


@dataclass(kw_only=True)
class Hidden:
    """Output of a backbone."""

    last_hidden_state: Tensor
    """[batch, time, hidden size]; [N, hidden size] where only the positions `wanted` were computed."""
    output_positions: Tensor | None = None
    """Sorted flat positions [N], where the last layer was computed only at these."""
    layers: Sequence[Tensor] = ()
    """Output of every layer, embeddings first; only with `want=("layers",)`."""
    encoder_hidden_state: Tensor | None = None
    """Encoder output of an encoder-decoder."""
    state: State = field(default_factory=dict)
    attention: Sequence[Tensor] = ()
    """Attention weights per layer [batch, heads, queries, keys]; only with `want=("attention",)`."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Passed from an objective's `encode` to its `loss`."""

    def select(self, positions: Tensor) -> Tensor:
        """Hidden states at flat positions: [N] → [N, hidden size]."""
        if self.output_positions is not None:
            positions = torch.searchsorted(self.output_positions, positions)
        return self.last_hidden_state.reshape(-1, self.last_hidden_state.shape[-1]).index_select(0, positions)


@dataclass(kw_only=True)
class Outcome:
    """Result of a forward pass: loss sums per term, never means."""

    loss_sums: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Name → (sum, count)."""
    score_histograms: dict[str, Tensor] = field(default_factory=dict)
    """Name → histogram of binary scores (`metrics.roc_auc`): an evaluation sums them and computes ROC AUC."""
    state: State = field(default_factory=dict)
    loss: Tensor | None = None
    """Σ weight · sum / total over the terms; set by the learner."""


@dataclass(frozen=True)
class Head:
    """A head declared by an objective. Equal declarations under one name share the head; unequal ones are an error."""

    kind: str
    sizes: tuple[tuple[str, int], ...] = ()


class Backbone(nn.Module, ABC):
    """A model without heads: inputs → Hidden. It never computes a loss."""

    Settings: ClassVar[type[Settings]]
    capabilities: ClassVar[frozenset[str]]
    hidden_size: int
    max_length: int
    """Maximum input length in tokens."""
    supports_output_positions: ClassVar[bool] = False
    """Whether `forward` takes `wanted`, flat positions at which alone the last layer is computed."""
    supports_gradient_checkpointing: ClassVar[bool] = True
    """Whether its layers can recompute activations in the backward pass (gradient checkpointing)."""
    supports_text_tasks: ClassVar[bool] = True
    """Whether it can be fine-tuned on text tasks; a captioner only on image tasks."""
    encoder_prefixes: ClassVar[Mapping[str, str]] = {}
    """Parameter name prefix in a BERT-like encoder → prefix here, for initializing from such an encoder."""

    @abstractmethod
    def forward(self, *, state: State | None = None, **inputs: Any) -> Hidden:
        """Hidden states of the inputs; `state` is the one returned by an earlier call."""

    def empty_memory(self, batch_size: int) -> State:
        """Empty segment memory, which training carries from step to step; {} for backbones without memory."""
        return {}

    @abstractmethod
    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """A head of this kind as the model family defines it (BERT's transform layer, GPT's tied embedding)."""

    @abstractmethod
    def embedding(self) -> nn.Embedding:
        """The token embedding, into which other vocabularies and word vectors are copied."""


class IncrementalDecoder(Protocol):
    """One-token decoding with a KV cache or recurrent state, as `backbone.incremental_decoder()` returns it.

    The state's layout is private to the backbone (KV cache, segment memory, recurrent state), with the batch as first
    dimension; `next` [B] counts the tokens each row has processed.
    """

    max_length: int | None
    """Tokens a row may hold before the last half of its text must be prefilled again; None means no limit."""

    def init_state(self, batch_size: int, capacity: int, **inputs: Tensor) -> State:
        """Empty state with capacity for `capacity` tokens per row; `inputs` are the encoder's (source, image)."""

    def prefill(self, tokens_BT: Tensor, lengths_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Process prompts padded on the right → hidden states [B, D] of each row's last token, and the new state."""

    def decode_step(self, tokens_B: Tensor, state: State, shared_length: int | None) -> tuple[Tensor, State]:
        """Process one token per row; `shared_length` is the number of tokens so far where all rows have the same."""

    def grow_state(self, state: State, capacity: int) -> State:
        """The same state with capacity for more tokens."""

    def concat_states(self, first: State, second: State) -> State:
        """The rows of two states of equal capacity, concatenated along the batch dimension."""


class Model(nn.Module):
    """A backbone and its heads by name: the module whose parameters a checkpoint holds."""

    def __init__(self, backbone: Backbone, heads: Mapping[str, Head]) -> None:
        super().__init__()
        self.backbone = backbone
        self.head_specs = dict(heads)
        self.heads = nn.ModuleDict(
            {name: backbone.build_head(head.kind, **dict(head.sizes)) for name, head in heads.items()}
        )
        self.decoder_start_ids: tuple[int, ...] | None = None
        """Decoder start tokens of source-to-target generation, from its objectives."""
        self.causal_start_ids: tuple[int, ...] | None = None
        """Start tokens of causal generation, where an objective sets them."""
        self.source_kinds: frozenset[str] = frozenset()
        """Kinds of source the decoder was trained on, from its objectives (see `Objective.source_kinds`)."""
        self.untrained_heads: frozenset[str] = frozenset()
        """Heads missing from an imported checkpoint: randomly initialized, useless before they are trained."""

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device


@dataclass(frozen=True)
class ViewSpec:
    """How an objective cuts the token dataset into samples: a module of dataset/views and its options."""

    kind: str
    options: tuple[tuple[str, Any], ...] = ()


RngFactory = Callable[[str], np.random.Generator]
"""Purpose → random generator of one sample."""


class Objective(ABC):
    """A training objective: prepares inputs and targets, and computes the loss. It has no parameters, so that data
    workers can pickle it."""

    Settings: ClassVar[type[Settings]]
    name: str
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
    source_kinds: frozenset[str] = frozenset()
    """What a decoder is conditioned on: text, image, or a text with masks (BART) or sentinels (T5) for its gaps."""

    @abstractmethod
    def __init__(self, settings: Any, tokenizer: Any) -> None:
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
        """What an explored batch adds to the history, as JSON data."""
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
        position_kwargs = {} if positions is None else {"wanted": positions}
        return model.backbone(state=state, **batch.inputs, **position_kwargs)  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped

    @abstractmethod
    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The loss of each term as a SUM over its predictions, and metrics.

        `model.training` says whether this is training, with what regularizes it (dropout, label smoothing, class
        weights, penalties), or evaluation.
        """


def collate(rows: Sequence[Row], objective: Objective, pad_values: Mapping[str, int]) -> Batch:
    """Stack rows into a batch; rows of unequal length are padded on the right, and `present` is the padding mask."""
    keys = list(rows[0].inputs)
    row_lengths = {key: np.array([len(row.inputs[key]) for row in rows]) for key in keys}
    lengths = row_lengths[objective.axis]
    max_lengths = {key: int(key_lengths.max()) for key, key_lengths in row_lengths.items()}
    inputs: dict[str, Any] = {
        key: _pad_and_stack([row.inputs[key] for row in rows], max_lengths[key], pad_values.get(key, 0)) for key in keys
    }
    for key, key_lengths in row_lengths.items():
        on_axis = key not in (objective.axis, *objective.off_axis_inputs) and bool((key_lengths == lengths).all())
        # an input with an axis of its own gets its own padding mask, such as `source_present`
        if not on_axis and key_lengths.min() < max_lengths[key]:
            name = "present" if key == objective.axis else f"{key}_present"
            inputs[name] = torch.from_numpy(np.arange(max_lengths[key]) < key_lengths[:, None])
    sample_ids = list(dict.fromkeys(row.sample_id for row in rows))
    index_of = {sample_id: index for index, sample_id in enumerate(sample_ids)}
    batch = Batch(
        inputs=inputs,
        targets=_collate_targets(rows, max_lengths[objective.axis]),
        target_counts={},
        sample_index=torch.tensor([index_of[row.sample_id] for row in rows]),
        sample_ids=sample_ids,
        metadata=[row.metadata for row in rows],
        num_tokens=sum(int(row_lengths[key].sum()) for key in TEXT_INPUTS if key in row_lengths),
    )
    batch.target_counts = objective.count_targets(batch)
    return batch


def _pad_and_stack(arrays: Sequence[Array], length: int, pad_value: int) -> Tensor:
    if all(len(array) == length for array in arrays):
        return torch.from_numpy(np.stack(arrays))
    padded = np.full((len(arrays), length, *arrays[0].shape[1:]), pad_value, dtype=arrays[0].dtype)
    for index, array in enumerate(arrays):
        padded[index, : len(array)] = array
    return torch.from_numpy(padded)


def _collate_targets(rows: Sequence[Row], length: int) -> dict[str, dict[str, Tensor]]:
    """Targets per loss term; positions `at` become flat indices into [rows · length]."""
    terms = list(dict.fromkeys(term for row in rows for term in row.targets))
    targets: dict[str, dict[str, Tensor]] = {}
    for term in terms:
        term_targets = [(index, row.targets[term]) for index, row in enumerate(rows) if term in row.targets]
        targets[term] = {
            "at": torch.from_numpy(
                np.concatenate(
                    [np.asarray(target["at"], np.int64) + row_index * length for row_index, target in term_targets]
                )
            )
        }
        for key in term_targets[0][1]:
            if key != "at":
                targets[term][key] = torch.from_numpy(np.concatenate([target[key] for _, target in term_targets]))
    return targets
