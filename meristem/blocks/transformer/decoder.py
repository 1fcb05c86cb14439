"""Transformer decoder: causal self-attention and cross-attention to the encoder output.

Without a source, cross-attention is skipped and the same layers are a causal language model.
"""

# B batch, T tokens, S source positions, D hidden size, L layers, G key-value heads, C channels of one head

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.attention.attention_mask import AttentionMask, MaskSpec
from meristem.blocks.attention.cross_attention import CrossAttention
from meristem.blocks.attention.multi_head import LayerKVCache, MultiHeadAttention
from meristem.blocks.attention.position_encoding import RotaryEmbedding
from meristem.blocks.transformer.feed_forward import FeedForward
from meristem.blocks.transformer.layer import NormPosition
from meristem.blocks.transformer.layer_stack import LayerStack
from meristem.interfaces.backbone import Hidden


class TransformerDecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, each with residual and norm."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: CrossAttention,
        feed_forward: FeedForward,
        norms: tuple[nn.Module, nn.Module, nn.Module],
        *,
        norm_position: NormPosition,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross_attention, feed_forward
        self.attention_norm, self.cross_norm, self.feed_forward_norm = norms
        self.norm_position, self.dropout = norm_position, dropout

    def forward(
        self,
        x: Tensor,
        mask: AttentionMask,
        source_keys_values: tuple[Tensor, Tensor] | None,
        source_mask: AttentionMask,
        cache: LayerKVCache | None = None,
    ) -> Tensor:
        """[B, T, D] → [B, T, D]; `source_keys_values` is None where there is no source."""
        if self.norm_position == "pre":
            x = x + self._dropout(self.attention(self.attention_norm(x), mask, cache))
            if source_keys_values is not None:
                x = x + self._dropout(self.cross(self.cross_norm(x), source_keys_values, source_mask))
            return x + self._dropout(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + self._dropout(self.attention(x, mask, cache)))
        if source_keys_values is not None:
            x = self.cross_norm(x + self._dropout(self.cross(x, source_keys_values, source_mask)))
        return self.feed_forward_norm(x + self._dropout(self.feed_forward(x)))  # type: ignore[no-any-return]  # nn.Module.__call__

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class TransformerDecoder(LayerStack[TransformerDecoderLayer]):
    """A stack of decoder layers."""

    def build_layer(self, rotary: RotaryEmbedding | None) -> TransformerDecoderLayer:
        """Self-attention, cross-attention and feed-forward."""
        s = self.settings
        return TransformerDecoderLayer(
            self.build_self_attention(rotary),
            CrossAttention(
                s.hidden_size, s.heads, num_kv_heads=s.kv_heads, dropout=s.dropout, bias=s.bias, scale=self.scale
            ),
            self.build_feed_forward(),
            (self.build_norm(), self.build_norm(), self.build_norm()),
            norm_position=s.norm_position,
            dropout=s.dropout,
        )

    def residual_outputs(self, layer: TransformerDecoderLayer) -> tuple[nn.Linear, ...]:
        """The last projections of self-attention, cross-attention and feed-forward."""
        return layer.attention.output, layer.cross.output, layer.feed_forward.narrow

    def forward(
        self,
        x_BTD: Tensor,
        source: Tensor | None,
        *,
        source_present: Tensor | None = None,
        documents: Tensor | None = None,
        cache: Tensor | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """[B, T, D] → Hidden; its `attention` is the cross-attention, and `extra` holds the self-attention.

        `source` is the encoder output [B, S, D] or what `project_source` returned; without one, `attention` is the
        self-attention. The KV cache [B, L, 2, G, slots, C] is filled with the tokens' keys and values. `documents`
        [B, T] masks attention between documents packed into one row. Rows are padded on the right, so causal
        attention needs no padding mask.
        """
        x, num_tokens, source_mask = x_BTD, x_BTD.shape[1], source_attention_mask(source_present, x_BTD.dtype)
        mask_spec = MaskSpec(
            num_queries=num_tokens,
            num_keys=num_tokens,
            causal=True,
            dtype=x.dtype,
            device=x.device,
            documents=documents,
        )
        masks = {
            window: self.attention_mask(mask_spec, window)
            for window in {self.settings.window_of(index) for index in range(len(self.layers))}
        }
        layer_outputs, self_weights, cross_weights = [x], list[Tensor](), list[Tensor]()
        if "attention" in want:
            masks = {window: replace(mask, attention_weights=self_weights) for window, mask in masks.items()}
            source_mask = replace(source_mask, attention_weights=cross_weights)
        for layer_index, layer in enumerate(self.iter_layers()):
            source_keys_values = None if source is None else _source_keys_values(layer, source, layer_index)
            layer_cache = None if cache is None else _prefill_cache(cache[:, layer_index], num_tokens)
            x = self.run_layer(
                layer, x, masks[self.settings.window_of(layer_index)], source_keys_values, source_mask, layer_cache
            )
            if "layers" in want:
                layer_outputs.append(x)
        return Hidden(
            last_hidden_state=self.final_norm(x),
            layers=tuple(layer_outputs) if "layers" in want else (),
            attention=tuple(self_weights if source is None else cross_weights),
            extra={"decoder_attention": tuple(self_weights)} if "attention" in want and source is not None else {},
        )

    def project_source(self, source_BSD: Tensor) -> Tensor:
        """Keys and values of the source for every layer [B, L, 2, G, S, C]."""
        return torch.stack([torch.stack(layer.cross.project_source(source_BSD), 1) for layer in self.iter_layers()], 1)


def source_attention_mask(present_BS: Tensor | None, dtype: torch.dtype) -> AttentionMask:
    """Cross-attention mask: every query may attend to the whole source except its padding."""
    if present_BS is None:
        return AttentionMask()
    mask = torch.zeros(present_BS.shape, dtype=dtype, device=present_BS.device).masked_fill_(~present_BS, -torch.inf)
    return AttentionMask(additive_mask=mask[:, None, None])


def _source_keys_values(layer: TransformerDecoderLayer, source: Tensor, layer_index: int) -> tuple[Tensor, Tensor]:
    """One layer's keys and values of the source, computed from encoder output or taken from `project_source`."""
    if source.ndim == 3:
        return layer.cross.project_source(source)
    keys, values = source[:, layer_index].unbind(1)
    return keys, values


def _prefill_cache(slots_B2GSC: Tensor, num_tokens: int) -> LayerKVCache:
    positions = torch.arange(num_tokens, device=slots_B2GSC.device).expand(len(slots_B2GSC), num_tokens)
    return LayerKVCache(
        keys=slots_B2GSC[:, 0], values=slots_B2GSC[:, 1], positions=positions, shared_start=0, num_filled=num_tokens
    )
