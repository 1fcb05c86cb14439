"""ONNX graphs of causal models: one graph for prefill and decoding, with the KV cache as input and output."""

# B batch, T new tokens, S all tokens so far, D hidden size, H heads, G key-value heads, C head dimension

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.attention.relative_attention import sinusoidal_encoding
from meristem.blocks.transformer.relative_stack import RelativeLayer
from meristem.interfaces.backbone import Model
from meristem.interop.onnx_export.graph_masks import CausalMasks, ConcatKVCache, additive_mask
from meristem.interop.onnx_export.onnx_graph import GraphInput, OnnxGraph, cache_inputs, present_names
from meristem.models.gpt2 import GPT2
from meristem.models.transformer_xl import TransformerXL


class OnnxCausal(nn.Module):
    """GPT, GPT-2 and the causal Transformer."""

    def __init__(self, backbone: GPT2, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Tokens [B, T] and a mask over all so far [B, S] → logits [B, T, V], and keys and values of all so far."""
        masks = CausalMasks(attention_mask, input_ids.shape[1])
        x, stack = self._embed(input_ids, masks.positions_BT), self.backbone.stack
        embedded, present = x, list[Tensor]()
        extra_values = {} if stack.value_embeddings is None else stack.value_embeddings(input_ids)
        s = stack.settings
        full_mask = masks.attention_mask(None, x.dtype)
        window_mask = full_mask if s.attention_window is None else masks.attention_mask(s.attention_window, x.dtype)
        for number, layer in enumerate(stack.layers):
            layer_mask = window_mask if (number + 1) % s.attention_window_every == 0 else full_mask
            x = x if stack.shortcut is None else stack.shortcut(x, embedded, number)
            x = layer(
                x,
                layer_mask,
                ConcatKVCache.for_layer(past[2 * number], past[2 * number + 1], masks.positions_BT, present),
                extra_values=extra_values.get(number),
            )
        return self.head(stack.final_norm(x)), present

    def _embed(self, tokens_BT: Tensor, positions_BT: Tensor) -> Tensor:
        e = self.backbone.embed
        x: Tensor = e.tokens(tokens_BT)
        if e.positions is not None:
            x = x + e.positions(positions_BT)
        return x if e.norm is None else e.norm(x)


class OnnxRelativeCausal(nn.Module):
    """Transformer-XL: every token attends to the last `context_length` ones, itself included."""

    def __init__(self, backbone: TransformerXL, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head, self.reach = backbone, head, backbone.incremental_decoder().context_length

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Tokens [B, T] and a mask over all so far [B, S] → logits [B, T, V], and keys and values of all so far."""
        masks = CausalMasks(attention_mask, input_ids.shape[1])
        stack, x = self.backbone.stack, self.backbone.embed(input_ids)
        present: list[Tensor] = []
        distances_S = torch.arange(attention_mask.shape[1], device=x.device)
        clamp = stack.settings.clamp_distance
        waves_1SD = sinusoidal_encoding(
            distances_S[None] if clamp is None else distances_S[None].clamp(max=clamp),
            self.backbone.hidden_size,
            x.dtype,
        )
        mask = additive_mask(masks.hidden_mask(self.reach), x.dtype)
        for number, layer in enumerate(stack.iter_layers()):
            cache = ConcatKVCache.for_layer(past[2 * number], past[2 * number + 1], masks.positions_BT, present)
            x = layer.finish_layer(x, _attend(layer, layer.norm_attention_input(x), waves_1SD, masks, mask, cache))
        return self.head(stack.final_norm(x)), present


def _attend(
    layer: RelativeLayer,
    hidden_states: Tensor,
    waves_1SD: Tensor,
    masks: CausalMasks,
    mask: Tensor,
    cache: ConcatKVCache,
) -> Tensor:
    a, (batch_size, time, _) = layer.attention, hidden_states.shape
    q_BTHC = a.query(hidden_states).view(batch_size, time, a.num_heads, a.head_dim)
    key_value = a.key_value(hidden_states).view(batch_size, time, 2, a.num_heads, a.head_dim).permute(2, 0, 3, 1, 4)
    keys, values = cache.update(key_value[0], key_value[1])
    distances_HSC = a.project_distances(waves_1SD)[:, 0]
    distance_scores_BHTS = (q_BTHC + a.biases.distance).transpose(1, 2) @ distances_HSC.mT
    distances_BHTS = masks.distances_BTS.clamp(min=0)[:, None].expand(-1, a.num_heads, -1, -1)
    bias = distance_scores_BHTS.gather(3, distances_BHTS) * a.head_dim**-0.5
    attended = F.scaled_dot_product_attention(
        (q_BTHC + a.biases.content).transpose(1, 2), keys, values, attn_mask=bias + mask
    )
    return a.output(attended.transpose(1, 2).reshape(batch_size, time, -1))  # type: ignore[no-any-return]  # nn.Module.__call__


def build_causal_graph(model: Model, file: str = "model.onnx") -> OnnxGraph:
    """The graph of a causal model."""
    backbone, head = model.backbone, model.heads["clm"]
    if isinstance(backbone, TransformerXL):
        module: nn.Module = OnnxRelativeCausal(backbone, head)
        kv_heads = backbone.settings.heads
    else:
        assert isinstance(backbone, GPT2)
        module = OnnxCausal(backbone, head)
        kv_heads = backbone.settings.kv_heads or backbone.settings.heads
    s = backbone.settings
    past = cache_inputs(s.layers, kv_heads, s.hidden_size // s.heads, parts=[("", "past")])
    return OnnxGraph(
        file=file,
        module=module,
        inputs=(GraphInput("input_ids", ("batch", "length")), GraphInput("attention_mask", ("batch", "total"))),
        past=past,
        outputs=("logits", *present_names(past)),
        heads=("clm",),
    )
