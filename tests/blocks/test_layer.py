from __future__ import annotations

import torch
from torch import nn

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.attention.multi_head import MultiHeadAttention
from meristem.blocks.transformer.feed_forward import FeedForward
from meristem.blocks.transformer.layer import NormPosition, TransformerLayer


def build_layer(norm_position: NormPosition, dropout: float = 0.0) -> TransformerLayer:
    torch.manual_seed(0)
    norms = (nn.LayerNorm(8), nn.LayerNorm(8))
    return TransformerLayer(
        MultiHeadAttention(8, 2), FeedForward(8, 16, "gelu"), norms, norm_position=norm_position, dropout=dropout
    )


def test_norm_before_and_norm_after() -> None:
    x, attention_mask = torch.randn(2, 5, 8), AttentionMask()
    pre, post = build_layer("pre"), build_layer("post")
    middle = x + pre.attention(pre.attention_norm(x), attention_mask)
    torch.testing.assert_close(pre(x, attention_mask), middle + pre.feed_forward(pre.feed_forward_norm(middle)))
    middle = post.attention_norm(x + post.attention(x, attention_mask))
    torch.testing.assert_close(post(x, attention_mask), post.feed_forward_norm(middle + post.feed_forward(middle)))


def test_dropout_is_on_both_residuals_and_only_in_training() -> None:
    layer, x = build_layer("pre", dropout=0.999), torch.randn(1, 4, 8)
    torch.manual_seed(0)
    assert (layer(x, AttentionMask()) == x).float().mean() > 0.9
    torch.testing.assert_close(layer.eval()(x, AttentionMask()), build_layer("pre").eval()(x, AttentionMask()))
