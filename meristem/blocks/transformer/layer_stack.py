"""Base of stacks of transformer layers: their attention and feed-forward, norms, masks, initialization, KV cache."""

# B batch, L layers, G key-value heads, C channels of one head

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meristem.blocks.attention.attention_mask import AttentionMask, MaskSpec
from meristem.blocks.attention.multi_head import MultiHeadAttention
from meristem.blocks.attention.position_encoding import RotaryEmbedding
from meristem.blocks.attention.relative_bias import RelativeBias
from meristem.blocks.transformer.feed_forward import FeedForward
from meristem.blocks.transformer.norms import build_norm
from meristem.blocks.weight_init import init_normal, scale_residual_outputs

if TYPE_CHECKING:
    from meristem.blocks.transformer.stack import StackSettings

LayerT = TypeVar("LayerT", bound=nn.Module)


class LayerStack(nn.Module, ABC, Generic[LayerT]):
    """Layers with a final norm if pre-norm; a sub-class says what a layer is and what runs through it."""

    def __init__(
        self,
        settings: StackSettings,
        num_layers: int,
        *,
        scale: float | None = None,
        relative: RelativeBias | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.scale, self.relative = settings, scale, relative
        self.layers = nn.ModuleList(self._build_layers(num_layers))
        self.final_norm = self.build_norm() if settings.norm_position == "pre" else nn.Identity()
        self.recompute = False
        """Gradient checkpointing: recompute activations in the backward pass instead of storing them."""

    @abstractmethod
    def build_layer(self, rotary: RotaryEmbedding | None) -> LayerT:
        """One layer."""

    @abstractmethod
    def residual_outputs(self, layer: LayerT) -> tuple[nn.Linear, ...]:
        """The projections of a layer into the residual stream."""

    def _build_layers(self, num_layers: int) -> Iterator[LayerT]:
        """The layers; those with the same base share their rotary positions."""
        s, rotaries = self.settings, dict[float, RotaryEmbedding]()
        for layer_index in range(num_layers):
            base = s.rotary_base_of(layer_index)
            if s.position_encoding == "rotary" and base not in rotaries:
                rotaries[base] = RotaryEmbedding(s.max_length, s.hidden_size // s.heads, base)
            yield self.build_layer(rotaries.get(base))

    def build_norm(self) -> nn.Module:
        """A norm of the hidden size."""
        s = self.settings
        return build_norm(s.norm, s.hidden_size, s.norm_epsilon, bias=s.bias)

    def build_self_attention(self, rotary: RotaryEmbedding | None) -> MultiHeadAttention:
        """The self-attention of a layer."""
        s = self.settings
        return MultiHeadAttention(
            s.hidden_size,
            s.heads,
            num_kv_heads=s.kv_heads,
            rotary=rotary,
            dropout=s.dropout,
            bias=s.bias,
            scale=self.scale,
            qk_norm=s.qk_norm,
        )

    def build_feed_forward(self) -> FeedForward:
        """The feed-forward network of a layer."""
        s = self.settings
        return FeedForward(s.hidden_size, s.ffn_size or 4 * s.hidden_size, s.activation, bias=s.bias)

    def iter_layers(self) -> Iterator[LayerT]:
        """The layers, typed."""
        return (cast(LayerT, layer) for layer in self.layers)

    def init_weights(self) -> None:
        """Initialize with normal weights and zero biases; residual projections by `output_init`."""
        init_normal(self, self.settings.init_std)
        outputs = (output for layer in self.iter_layers() for output in self.residual_outputs(layer))
        scale_residual_outputs(outputs, self.settings.output_init)

    def attention_mask(self, mask_spec: MaskSpec, window: int | None) -> AttentionMask:
        """The mask of layers with this window, with the relative bias if there is one."""
        mask = mask_spec.build_mask(window)
        return mask if self.relative is None else self.relative(mask, mask_spec.num_queries, mask_spec.num_keys)

    def run_layer(self, layer: LayerT, *inputs: Any, recompute: bool = True) -> Tensor:
        """The output of a layer, with gradient checkpointing where that is on."""
        if self.recompute and self.training and recompute:
            return checkpoint(layer, *inputs, use_reentrant=False)  # type: ignore[no-any-return]  # torch's is untyped
        return layer(*inputs)  # type: ignore[no-any-return]  # nn.Module.__call__

    def empty_slots(self, batch_size: int, capacity: int, template: Tensor) -> Tensor:
        """Empty KV cache [B, L, 2, G, slots, C] for `capacity` tokens per row."""
        s = self.settings
        head_dim = s.hidden_size // s.heads
        return template.new_zeros(batch_size, len(self.layers), 2, s.kv_heads or s.heads, capacity, head_dim)
