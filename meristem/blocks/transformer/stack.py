"""Transformer stack: layers, attention masks, KV cache, gradient checkpointing, and the settings of a stack."""

# B batch, T tokens, D hidden size, L layers, G key-value heads, C channels of one head

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from meristem.blocks.attention.attention_mask import AttentionMask, MaskSpec
from meristem.blocks.attention.multi_head import LayerKVCache
from meristem.blocks.attention.position_encoding import PositionName, RotaryEmbedding
from meristem.blocks.attention.relative_bias import RelativeBias
from meristem.blocks.embeddings.value_embeddings import ValueEmbeddings
from meristem.blocks.transformer.embedding_shortcut import EmbeddingShortcut
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.layer import NormPosition, TransformerLayer
from meristem.blocks.transformer.layer_stack import LayerStack
from meristem.blocks.transformer.norms import NormName
from meristem.blocks.weight_init import OutputInit, check_head_count
from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.backbone import Hidden, State
from meristem.models.settings import ModelSettings


class StackSettings(ModelSettings):
    """Sizes and architecture of a stack of transformer layers."""

    renamed: ClassVar[dict[str, str]] = {
        "width": "hidden_size",
        "groups": "kv_heads",
        "inner": "ffn_size",
        "length": "max_length",
        "norm_place": "norm_position",
        "positions": "position_encoding",
        "window": "attention_window",
        "window_every": "attention_window_every",
        "initial": "init_std",
        "output_initial": "output_init",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "n_layer": "layers",
        "n_layers": "layers",
        "num_layers": "layers",
        "num_hidden_layers": "layers",
        "d_model": "hidden_size",
        "n_embd": "hidden_size",
        "hidden_dim": "hidden_size",
        "dim": "hidden_size",
        "embed_dim": "hidden_size",
        "n_head": "heads",
        "n_heads": "heads",
        "num_heads": "heads",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "n_kv_heads": "kv_heads",
        "intermediate_size": "ffn_size",
        "d_ff": "ffn_size",
        "ffn_dim": "ffn_size",
        "n_inner": "ffn_size",
        "max_seq_len": "max_length",
        "max_seq_length": "max_length",
        "max_position_embeddings": "max_length",
        "block_size": "max_length",
        "n_positions": "max_length",
        "n_ctx": "max_length",
        "context_length": "max_length",
        "seq_len": "max_length",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "dropout",
        "resid_pdrop": "dropout",
        "hidden_act": "activation",
        "layer_norm_eps": "norm_epsilon",
        "layer_norm_epsilon": "norm_epsilon",
        "rms_norm_eps": "norm_epsilon",
        "rope_theta": "rotary_base",
        "initializer_range": "init_std",
        "sliding_window": "attention_window",
    }

    added = frozenset({"qk_norm"})

    needs: ClassVar[SettingConditions] = {
        "rotary_base": (when("position_encoding", "rotary"),),
        "attention_window_every": (when("attention_window"),),
    }

    layers: int = Field(12, ge=1)
    """Number of layers."""
    hidden_size: int = Field(768, ge=8)
    """Hidden size (d_model)."""
    heads: int = Field(12, ge=1)
    """Number of attention heads; must divide the hidden size."""
    kv_heads: int | None = Field(None, ge=1)
    """Number of key-value heads (grouped-query attention); as many as heads unless set."""
    ffn_size: int | None = Field(None, ge=8)
    """Hidden size of the feed-forward network; 4 × hidden_size unless set."""
    max_length: int = Field(512, ge=4)
    """Maximum input length in tokens."""
    activation: ActivationName = "gelu"
    """gelu, gelu_tanh, relu, relu6, relu2, swiglu or geglu."""
    norm: NormName = "layer"
    """layer or rms."""
    norm_position: NormPosition = "pre"
    """Norm before each sub-layer (pre) or after its residual (post)."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """Epsilon of the norms."""
    position_encoding: PositionName = "learned"
    """learned, sinusoidal, rotary or none."""
    rotary_base: float = Field(10_000.0, gt=1)
    """Base of rotary positions: the longest wavelength in units of 2π tokens (rope_theta)."""
    attention_window: int | None = Field(None, ge=1)
    """Sliding window attention: only keys at a smaller distance are visible."""
    attention_window_every: int = Field(1, ge=1)
    """Which layers use the window: every layer (1), every second (2, as in GPT-3), …"""
    qk_norm: bool = False
    """Normalize queries and keys of each head (RMS, without weights), before rotary positions (Henry et al. 2020)."""
    bias: bool = True
    """Biases in linear layers and norms."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of initial weights."""
    output_init: OutputInit = "normal"
    """Initialization of projections into the residual stream: normal, scaled by 1/√(2·layers) (GPT-2), or zero."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        check_head_count(self.hidden_size, self.heads)
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads: {self.kv_heads} key-value heads do not divide {self.heads} heads; choose a divisor of heads"
            )
        if self.position_encoding == "rotary" and (self.hidden_size // self.heads) % 2:
            raise ValueError(
                "position_encoding: rotary needs an even number of channels per head, not "
                f"{self.hidden_size // self.heads}"
            )
        return self

    def window_of(self, layer_index: int) -> int | None:
        """The attention window of a layer; None if it sees all keys."""
        return self.attention_window if (layer_index + 1) % self.attention_window_every == 0 else None

    def rotary_base_of(self, layer_index: int) -> float:
        """The base of the rotary positions of a layer."""
        return self.rotary_base


class TransformerStack(LayerStack[TransformerLayer]):
    """A stack of transformer layers."""

    def __init__(
        self,
        settings: StackSettings,
        *,
        scale: float | None = None,
        relative: RelativeBias | None = None,
        shortcut: EmbeddingShortcut | None = None,
        value_embeddings: ValueEmbeddings | None = None,
    ) -> None:
        super().__init__(settings, settings.layers, scale=scale, relative=relative)
        self.shortcut, self.value_embeddings = shortcut, value_embeddings

    def build_layer(self, rotary: RotaryEmbedding | None) -> TransformerLayer:
        """Self-attention and feed-forward."""
        return TransformerLayer(
            self.build_self_attention(rotary),
            self.build_feed_forward(),
            (self.build_norm(), self.build_norm()),
            norm_position=self.settings.norm_position,
            dropout=self.settings.dropout,
        )

    def residual_outputs(self, layer: TransformerLayer) -> tuple[nn.Linear, ...]:
        """The last projections of self-attention and feed-forward."""
        return layer.attention.output, layer.feed_forward.narrow

    def init_weights(self) -> None:
        """As any stack, and the value embeddings."""
        super().init_weights()
        if self.value_embeddings is not None:
            self.value_embeddings.init_weights(self.settings.init_std)

    def forward(
        self,
        x: Tensor,
        *,
        causal: bool | Tensor,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
        output_positions: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> Hidden:
        """[B, T, D] → Hidden; `want` may name "layers" and "attention". Value embeddings need the token ids.

        `causal` may be [B, 1] booleans: some rows are causal, the others bidirectional.
        `output_positions` are flat positions [N] at which alone the last layer is computed.
        """
        cache = KVCache(state, x) if state else None
        mask_spec = MaskSpec(
            num_queries=x.shape[1],
            num_keys=cache.num_filled if cache else x.shape[1],
            causal=causal,
            dtype=x.dtype,
            device=x.device,
            query_positions=cache.positions if cache and cache.ragged else None,
            present=present,
            documents=documents,
        )
        extra_values = {} if self.value_embeddings is None else self.value_embeddings(tokens)
        masks: dict[int | None, AttentionMask] = {}
        embedded, layer_outputs, weights = x, [x], list[Tensor]()
        for layer_index, layer in enumerate(self.iter_layers()):
            window = self.settings.window_of(layer_index)
            if window not in masks:
                masks[window] = self.attention_mask(mask_spec, window)
            mask = masks[window]
            mask = replace(mask, attention_weights=weights) if "attention" in want else mask
            layer_cache = cache.layer_cache(layer_index) if cache else None
            if self.shortcut is not None:
                x = self.shortcut(x, embedded, layer_index)
            positions = output_positions if layer_index == self.settings.layers - 1 else None
            inputs = x, mask, layer_cache, positions, extra_values.get(layer_index)
            x = self.run_layer(layer, *inputs, recompute=layer_cache is None)
            if "layers" in want:
                layer_outputs.append(x)
        return Hidden(
            last_hidden_state=self.final_norm(x),
            output_positions=output_positions,
            layers=tuple(layer_outputs) if "layers" in want else (),
            attention=tuple(weights),
            state=cache.next_state() if cache else {},
        )

    def empty_cache(self, batch_size: int, capacity: int, template: Tensor) -> State:
        """Empty KV cache for `batch_size` rows of up to `capacity` tokens, as the state of incremental decoding."""
        return {
            "cache": self.empty_slots(batch_size, capacity, template),
            "next": torch.zeros(batch_size, dtype=torch.long, device=template.device),
        }


class KVCache:
    """KV cache of all layers during one forward pass, a view of the state's tensors."""

    def __init__(self, state: State, x: Tensor) -> None:
        self.tensor, self.next_positions, self.num_tokens = state["cache"], state["next"], x.shape[1]
        low, high = (int(v) for v in self.next_positions.aminmax())
        self.shared_start = low if low == high else None
        self.num_filled = high + self.num_tokens
        self.positions = self.next_positions[:, None] + torch.arange(self.num_tokens, device=x.device)
        self.ragged = self.shared_start is None or (self.num_tokens > 1 and low > 0)

    def layer_cache(self, layer_index: int) -> LayerKVCache:
        """The cache of one layer."""
        return LayerKVCache(
            keys=self.tensor[:, layer_index, 0],
            values=self.tensor[:, layer_index, 1],
            positions=self.positions,
            shared_start=self.shared_start,
            num_filled=self.num_filled,
        )

    def next_state(self) -> State:
        """The state after this forward pass."""
        return {"cache": self.tensor, "next": self.next_positions + self.num_tokens}
