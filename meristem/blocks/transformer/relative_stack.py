"""Relative-attention stack of Transformer-XL and XLNet: segment memory, two-stream attention, checkpointing."""

# B batch, T tokens, K query slots, M memory slots, L distances, D hidden size

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meristem.blocks.attention.relative_attention import (
    RelativeAttention,
    RelativeAttentionBiases,
    RelativeMask,
    apply_dropout,
    sinusoidal_encoding,
)
from meristem.blocks.attention.relative_mask import RelativeMaskSpec
from meristem.blocks.precision import at_least_float32
from meristem.blocks.transformer.feed_forward import ActivationName, FeedForward
from meristem.blocks.transformer.layer import NormPosition
from meristem.blocks.transformer.norms import build_norm
from meristem.blocks.transformer.segment_memory import SegmentMemory
from meristem.blocks.weight_init import OutputInit, check_head_count, scale_residual_outputs
from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.backbone import Hidden, State
from meristem.models.settings import ModelSettings


class RelativeStackSettings(ModelSettings):
    """Sizes, memory and architecture of a relative-attention stack."""

    renamed: ClassVar[dict[str, str]] = {
        "width": "hidden_size",
        "inner": "ffn_size",
        "length": "max_length",
        "memory": "memory_length",
        "memory_evaluating": "eval_memory_length",
        "clamp": "clamp_distance",
        "norm_place": "norm_position",
        "initial": "init_std",
        "output_initial": "output_init",
    }

    needs: ClassVar[SettingConditions] = {
        "eval_memory_length": (when("memory_length", above=0),),
    }

    layers: int = Field(12, ge=1)
    """Number of layers."""
    hidden_size: int = Field(768, ge=8)
    """Hidden size (d_model)."""
    heads: int = Field(12, ge=1)
    """Number of attention heads; must divide the hidden size."""
    ffn_size: int | None = Field(None, ge=8)
    """Hidden size of the feed-forward network; 4 × hidden_size unless set."""
    max_length: int = Field(512, ge=4)
    """Segment length in tokens."""
    memory_length: int = Field(0, ge=0)
    """Memory length: hidden states of previous segments that every layer attends to; 0 is no memory."""
    eval_memory_length: int | None = Field(None, ge=1)
    """Memory length in evaluation, where longer may be better; as in training unless set."""
    clamp_distance: int | None = Field(None, ge=1)
    """Larger distances are clamped to this (clamp_len)."""
    activation: ActivationName = "gelu"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    norm_position: NormPosition = "post"
    """Norm before each sub-layer (pre) or after its residual (post, as in the papers)."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """Epsilon of the norms."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of initial weights."""
    output_init: OutputInit = "normal"
    """Initialization of projections into the residual stream: normal, scaled by 1/√(2·layers), or zero."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        check_head_count(self.hidden_size, self.heads)
        if self.hidden_size % 2:
            raise ValueError(
                f"hidden_size: {self.hidden_size} must be even: distances are encoded as sines and cosines"
            )
        if self.eval_memory_length is not None and not self.memory_length:
            raise ValueError(
                "eval_memory_length: needs memory_length > 0; a model trained without memory cannot use it"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class RelativeLayerInputs:
    """Inputs shared by all layers of a forward pass: distance encoding and the masks of both streams."""

    distances: Tensor
    """[1 or B, L, D]"""
    content: RelativeMask
    query: RelativeMask | None = None


class RelativeLayer(nn.Module):
    """Attention and feed-forward for the content stream, and with the same weights for the query stream."""

    def __init__(
        self, attention: RelativeAttention, feed_forward: FeedForward, norms: tuple[nn.Module, nn.Module],
        *, norm_position: NormPosition, dropout: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = norms
        self.norm_position, self.dropout = norm_position, dropout

    def forward(
        self,
        x_BTD: Tensor,
        g_BKD: Tensor | None,
        memory_BMD: Tensor | None,
        layer_inputs: RelativeLayerInputs,
        only_query: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Output of both streams, and the attention weights of the query stream if there is one, else of the content.

        With `only_query` the content stream is not computed: the last layer does not need it.
        """
        context = x_BTD if memory_BMD is None else torch.cat([memory_BMD, x_BTD], 1)
        normed = self.norm_attention_input(context)
        keys_values = self.attention.project_keys_values(normed)
        distances = self.attention.project_distances(layer_inputs.distances)
        query_weights = None
        if g_BKD is not None:
            assert layer_inputs.query is not None
            attended, query_weights = self.attention(
                self.norm_attention_input(g_BKD), keys_values, distances, layer_inputs.query
            )
            g_BKD = self.finish_layer(g_BKD, attended)
        if only_query and query_weights is not None:
            return x_BTD, g_BKD, query_weights
        attended, weights = self.attention(normed[:, -x_BTD.shape[1] :], keys_values, distances, layer_inputs.content)
        return self.finish_layer(x_BTD, attended), g_BKD, weights if query_weights is None else query_weights

    def norm_attention_input(self, x: Tensor) -> Tensor:
        """The input of attention: normalized if pre-norm."""
        return self.attention_norm(x) if self.norm_position == "pre" else x

    def finish_layer(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output from its input and attention output: residuals, norms and feed-forward."""
        x = x + apply_dropout(attended, self.dropout, self.training)
        if self.norm_position == "pre":
            return x + apply_dropout(self.feed_forward(self.feed_forward_norm(x)), self.dropout, self.training)
        x = self.attention_norm(x)
        return self.feed_forward_norm(x + apply_dropout(self.feed_forward(x), self.dropout, self.training))  # type: ignore[no-any-return]  # nn.Module.__call__


class RelativeStack(nn.Module):
    """A stack of relative-attention layers with segment memory, and a final norm if pre-norm."""

    def __init__(self, settings: RelativeStackSettings, *, num_segments: int = 0, shared_biases: bool = False) -> None:
        super().__init__()
        self.settings = settings
        head_dim = settings.hidden_size // settings.heads
        layer_biases = [
            RelativeAttentionBiases(settings.heads, head_dim, segments=num_segments > 0) for _ in range(settings.layers)
        ]
        self.layers = nn.ModuleList(
            self._build_layer(layer_biases[0] if shared_biases else biases, num_segments) for biases in layer_biases
        )
        self.final_norm = self._build_norm() if settings.norm_position == "pre" else nn.Identity()
        self.recompute = False
        """Gradient checkpointing: recompute activations in the backward pass instead of storing them."""

    def _build_norm(self) -> nn.Module:
        return build_norm("layer", self.settings.hidden_size, self.settings.norm_epsilon)

    def _build_layer(self, biases: RelativeAttentionBiases, num_segments: int) -> RelativeLayer:
        s = self.settings
        return RelativeLayer(
            RelativeAttention(s.hidden_size, s.heads, biases, num_segments=num_segments, dropout=s.dropout),
            FeedForward(s.hidden_size, s.ffn_size or 4 * s.hidden_size, s.activation),
            (self._build_norm(), self._build_norm()),
            norm_position=s.norm_position,
            dropout=s.dropout,
        )

    def init_weights(self) -> None:
        """Initialize with normal weights (u, v and segments too) and zero biases; residual projections by
        `output_initial`."""
        s = self.settings
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=s.init_std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, RelativeAttentionBiases | RelativeAttention):
                for parameter in module.parameters(recurse=False):
                    nn.init.normal_(parameter, std=s.init_std)
        outputs = (
            output for layer in self.iter_layers() for output in (layer.attention.output, layer.feed_forward.narrow)
        )
        scale_residual_outputs(outputs, s.output_init)

    def empty_memory(self, batch_size: int) -> State:
        """Empty segment memory; {} if the memory length is 0."""
        s = self.settings
        template = next(self.parameters()).new_zeros(batch_size, 0, s.hidden_size)
        return SegmentMemory.empty(template, s.layers, s.memory_length).state if s.memory_length else {}

    @property
    def memory_length(self) -> int:
        """Memory length in the current mode (training or evaluation)."""
        s = self.settings
        return s.memory_length if self.training or s.eval_memory_length is None else s.eval_memory_length

    def forward(
        self, x_BTD: Tensor, mask_spec: RelativeMaskSpec, *, queries: Tensor | None = None, at: Tensor | None = None,
        remembers: bool = False, backwards: Tensor | None = None, want: tuple[str, ...] = (),
    ) -> Hidden:  # fmt: skip
        """[B, T, D] → Hidden of the content stream, or of the query stream if there are `queries` [B, K, D] at
        positions `at` [B, K]."""
        x, g, memory = x_BTD, queries, mask_spec.memory
        layer_inputs = RelativeLayerInputs(
            distances=self.distance_encoding(mask_spec, backwards),
            content=mask_spec.content_mask(),
            query=None if at is None else mask_spec.query_mask(at),
        )
        inputs, outputs, weights = [], [x if g is None else g], []
        for layer_index, layer in enumerate(self.iter_layers()):
            inputs.append(at_least_float32(x) if remembers else x)
            layer_memory = None if memory is None else memory.states[:, layer_index].to(x.dtype)
            is_last = g is not None and layer_index == self.settings.layers - 1
            x, g, layer_weights = self._run_layer(layer, x, g, layer_memory, layer_inputs, is_last)
            if "layers" in want:
                outputs.append(x if g is None else g)
            if "attention" in want:
                weights.append(layer_weights.transpose(0, 1))
        return Hidden(
            last_hidden_state=self.final_norm(x if g is None else g),
            layers=tuple(outputs) if "layers" in want else (),
            attention=tuple(weights),
            state=self._next_memory(inputs, mask_spec) if remembers else {},
        )

    def distance_encoding(self, mask_spec: RelativeMaskSpec, backwards_B1: Tensor | None = None) -> Tensor:
        """Sinusoidal encoding of distances [1 or B, L, D]; negated in rows that are read backwards."""
        s = self.settings
        distances = (
            mask_spec.distances
            if s.clamp_distance is None
            else mask_spec.distances.clamp(-s.clamp_distance, s.clamp_distance)
        )
        signed = distances[None] if backwards_B1 is None else torch.where(backwards_B1, -distances, distances)
        return apply_dropout(sinusoidal_encoding(signed, s.hidden_size, mask_spec.dtype), s.dropout, self.training)

    def iter_layers(self) -> Iterator[RelativeLayer]:
        """The layers, typed."""
        return (cast(RelativeLayer, layer) for layer in self.layers)

    def _next_memory(self, layer_inputs: list[Tensor], mask_spec: RelativeMaskSpec) -> State:
        memory = mask_spec.memory or SegmentMemory.empty(layer_inputs[0], self.settings.layers, self.memory_length)
        return memory.next_state(layer_inputs, mask_spec.present, mask_spec.documents, self.memory_length)

    def _run_layer(
        self,
        layer: RelativeLayer,
        x: Tensor,
        g: Tensor | None,
        memory: Tensor | None,
        layer_inputs: RelativeLayerInputs,
        last: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        if self.recompute and self.training:
            return checkpoint(layer, x, g, memory, layer_inputs, last, use_reentrant=False)  # type: ignore[no-any-return]  # torch's is untyped
        return layer(x, g, memory, layer_inputs, last)  # type: ignore[no-any-return]  # nn.Module.__call__
