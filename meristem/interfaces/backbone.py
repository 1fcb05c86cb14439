"""Interfaces of models: `Backbone`, its `Hidden` states, `Head`, `Model`, and `IncrementalDecoder`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from meristem.config.registry import ComponentKind, Registry
from meristem.inputs.char_ids import TokenCharIds
from meristem.inputs.template import InputTemplate
from meristem.models.settings import ModelSettings

State = dict[str, Tensor]
"""Segment memory, KV cache or recurrent state: tensors whose first dimension is the row of the batch."""


CONTEXT_MODES = ("causal", "bidirectional", "two_stream", "both_directions", "encoder_decoder")
"""Attention patterns of backbones. With `memory`, `image`, `characters` and `mixed_rows` (one batch may have causal and
bidirectional rows) these are all capabilities."""


@dataclass(kw_only=True)
class Hidden:
    """Output of a backbone."""

    last_hidden_state: Tensor
    """[batch, time, hidden size]; [N, hidden size] where only the positions `output_positions` were computed."""
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


@dataclass(frozen=True)
class Head:
    """A head declared by an objective. Equal declarations under one name share the head; unequal ones are an error."""

    kind: str
    sizes: tuple[tuple[str, int], ...] = ()


class Backbone(nn.Module, ABC):
    """A model without heads: inputs → Hidden. It never computes a loss."""

    Settings: ClassVar[type[ModelSettings]]
    capabilities: ClassVar[frozenset[str]]
    settings: ModelSettings
    """The settings that it was built with."""
    hidden_size: int
    max_length: int
    """Maximum input length in tokens."""
    supports_output_positions: ClassVar[bool] = False
    """Whether `forward` takes `output_positions`, flat positions at which alone the last layer is computed."""
    supports_gradient_checkpointing: ClassVar[bool] = True
    """Whether its layers can recompute activations in the backward pass (gradient checkpointing)."""
    has_attention: ClassVar[bool] = True
    """Whether its layers attend, so that attention maps can be drawn; recurrent and state-space layers do not."""
    gains_from_bfloat16: ClassVar[bool] = True
    """Whether bfloat16 products make its training faster: not where recurrent steps take most of the time."""
    float32_layers: ClassVar[frozenset[str]] = frozenset()
    """Names of linear layers that int8 quantization leaves out: their weights are used outside of the layer."""
    supports_text_tasks: ClassVar[bool] = True
    """Whether it can be fine-tuned on text tasks; a captioner only on image tasks."""
    spell: TokenCharIds | None = None
    """Character ids of the tokens it generates; set for backbones that read characters."""
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


MODEL_FAMILIES: Registry[Backbone] = Registry(ComponentKind.FAMILY, Backbone)  # type: ignore[type-abstract]
"""Model families by name: `MODEL_FAMILIES["bert"]` is the backbone of models/bert.py."""


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
        self.task_template: InputTemplate | None = None
        """The input template of the task it was fine-tuned for."""
        self.predicts_masked_next = False
        """Whether its causal head also predicts a masked token at the position before it, from both sides."""
        self.text_pooling: str | None = None
        """How its objective pools hidden states to the embedding of a text, if it trains embeddings."""
        self.source_kinds: frozenset[str] = frozenset()
        """Kinds of source the decoder was trained on, from its objectives (see `Objective.source_kinds`)."""
        self.untrained_heads: frozenset[str] = frozenset()
        """Heads missing from an imported checkpoint: randomly initialized, useless before they are trained."""
        self.bfloat16_min_tokens: int | None = None
        """Tokens per call from which forward passes of inference run in bfloat16; None means always float32."""

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device
