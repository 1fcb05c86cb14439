"""Value embeddings and the embedding shortcut of a stack, against the formulas written out."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.transformer.layer import TransformerLayer
from meristem.models.modern import Modern, ModernSettings

SIZES = {"layers": 3, "hidden_size": 16, "heads": 4, "kv_heads": 2, "max_length": 12, "init_std": 0.3}
TOKENS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def build(**settings: object) -> Modern:
    torch.manual_seed(1)
    return Modern(ModernSettings.model_validate({**SIZES, "output_init": "normal", **settings}), 11).eval()


def attend(layer: TransformerLayer, x: Tensor, added: Tensor, own_scale: Tensor) -> Tensor:
    """Causal attention with four query heads and two groups, whose values are scaled and added to."""
    attention = layer.attention
    heads = attention.project(x).unflatten(-1, (8, 4))
    query_key, values = heads[:, :, :6], own_scale * heads[:, :, 6:] + added.unflatten(-1, (2, 4))
    rotated = attention.norm_and_rotate(query_key, None)
    queries, keys = rotated[:, :, :4].transpose(1, 2), rotated[:, :, 4:].transpose(1, 2)
    out = F.scaled_dot_product_attention(queries, keys, values.transpose(1, 2), is_causal=True, enable_gqa=True)
    return cast(Tensor, attention.output(out.transpose(1, 2).flatten(2)))


@torch.no_grad()
def test_the_stack_is_the_formula() -> None:
    backbone = build(value_embeddings=1, embedding_shortcut=True)
    shortcut, tables = backbone.stack.shortcut, backbone.stack.value_embeddings
    assert shortcut is not None and tables is not None
    for scales in (*shortcut.parameters(), tables.own_scales, tables.embedding_scales):
        scales.copy_(torch.rand_like(scales))
    embedded = x = backbone.embed(TOKENS)
    vectors = tables.tables[0](TOKENS)
    for index, layer in enumerate(cast(list[TransformerLayer], backbone.stack.layers)):
        x = shortcut.residual_scales[index] * x + shortcut.embedding_scales[index] * embedded
        slot = {0: 0, 2: 1}.get(index)  # the table belongs to the first and to the last layer
        own_scale = torch.ones(()) if slot is None else tables.own_scales[slot]
        added = torch.zeros_like(vectors) if slot is None else tables.embedding_scales[slot] * vectors
        x = x + attend(layer, layer.attention_norm(x), added, own_scale)
        x = x + layer.feed_forward(layer.feed_forward_norm(x))
    torch.testing.assert_close(backbone(tokens=TOKENS, causal=True).last_hidden_state, backbone.stack.final_norm(x))


@torch.no_grad()
def test_a_new_shortcut_changes_nothing_and_learns() -> None:
    plain, with_shortcut = build(), build(embedding_shortcut=True)
    expected = plain(tokens=TOKENS, causal=True).last_hidden_state
    assert torch.equal(with_shortcut(tokens=TOKENS, causal=True).last_hidden_state, expected)
    with torch.enable_grad():
        with_shortcut(tokens=TOKENS, causal=True).last_hidden_state.square().sum().backward()
    assert all(parameter.grad is not None for parameter in with_shortcut.parameters())
