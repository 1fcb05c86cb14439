from __future__ import annotations

from typing import Any

import pytest
import torch

from meristem.blocks.attention.attention_mask import AttentionMask
from meristem.blocks.attention.relative_bias import RelativeBias
from meristem.blocks.transformer.decoder import TransformerDecoder
from meristem.blocks.transformer.stack import StackSettings


def build_decoder(layers: int = 3, **settings: Any) -> TransformerDecoder:
    torch.manual_seed(0)
    plain = StackSettings(**{"layers": 1, "hidden_size": 16, "heads": 4, "max_length": 32, "init_std": 0.3, **settings})
    decoder = TransformerDecoder(plain, layers)
    decoder.init_weights()
    return decoder.double().eval()


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_a_layer_is_three_parts_each_with_its_residual(norm_position: str) -> None:
    decoder = build_decoder(1, norm_position=norm_position)
    (layer,) = decoder.iter_layers()
    x, source = torch.randn(2, 1, 16, dtype=torch.float64), torch.randn(2, 5, 16, dtype=torch.float64)
    parts = [
        (layer.attention_norm, lambda y: layer.attention.output(layer.attention.project(y)[..., 32:])),  # sees itself
        (layer.cross_norm, lambda y: layer.cross(y, layer.cross.project_source(source), AttentionMask())),
        (layer.feed_forward_norm, layer.feed_forward),
    ]
    y = x
    for norm, part in parts:
        y = y + part(norm(y)) if norm_position == "pre" else norm(y + part(y))
    torch.testing.assert_close(decoder(x, source).last_hidden_state, decoder.final_norm(y), atol=1e-12, rtol=0)


@pytest.mark.parametrize("qk_norm", [True, False])
def test_queries_and_keys_are_normalized_where_that_is_set(qk_norm: bool) -> None:
    decoder, x = build_decoder(qk_norm=qk_norm), torch.randn(2, 4, 16, dtype=torch.float64)
    before = decoder(x, None).last_hidden_state
    with torch.no_grad():
        for layer in decoder.iter_layers():
            layer.attention.project.weight[:32] *= 3.0  # queries and keys
            layer.attention.project.bias[:32] *= 3.0
    assert torch.allclose(decoder(x, None).last_hidden_state, before, atol=1e-6) is qk_norm


def test_a_projected_source_gives_the_same_output() -> None:
    decoder, x = build_decoder(kv_heads=2), torch.randn(2, 4, 16, dtype=torch.float64)
    source, present = torch.randn(2, 5, 16, dtype=torch.float64), torch.arange(5) < torch.tensor([[5], [2]])
    projected = decoder.project_source(source)
    assert projected.shape == (2, 3, 2, 2, 5, 4)
    expected = decoder(x, source, source_present=present).last_hidden_state
    torch.testing.assert_close(
        decoder(x, projected, source_present=present).last_hidden_state, expected, atol=1e-12, rtol=0
    )
    cache = decoder.empty_slots(2, 9, x)
    torch.testing.assert_close(
        decoder(x, projected, source_present=present, cache=cache).last_hidden_state, expected, atol=1e-12, rtol=0
    )
    assert (cache[:, :, :, :, :4].abs().amax((-1, -3)) > 0).all()
    assert cache[:, :, :, :, 4:].abs().max() == 0


def test_some_layers_may_have_a_window() -> None:
    x = torch.randn(1, 12, 16, dtype=torch.float64, requires_grad=True)
    source = torch.randn(1, 3, 16, dtype=torch.float64)

    def reach(**settings: Any) -> int:
        (grad,) = torch.autograd.grad(build_decoder(**settings)(x, source).last_hidden_state[0, 11, 0], x)
        return 11 - int((grad[0].abs().sum(-1) > 0).nonzero()[0])

    assert reach(attention_window=3) == 6
    assert reach(attention_window=2, attention_window_every=2) == 11


def test_residual_projections_are_initialized_as_set() -> None:
    normal, scaled, zero = (
        next(build_decoder(output_init=kind).iter_layers()) for kind in ("normal", "scaled", "zero")
    )
    for part in ("attention.output", "cross.output", "feed_forward.narrow"):
        weights = [layer.get_submodule(part).weight for layer in (normal, scaled, zero)]
        torch.testing.assert_close(weights[1], weights[0] / 9**0.5)
        assert weights[2].abs().max() == 0


def test_one_bias_serves_every_layer() -> None:
    plain = StackSettings(layers=1, hidden_size=16, heads=4, max_length=32)
    decoder = TransformerDecoder(plain, 3, relative=RelativeBias(4, 8, 20, bidirectional=False)).double()
    x, source = (torch.randn(1, size, 16, dtype=torch.float64) for size in (6, 3))
    assert sum("relative" in name for name, _ in decoder.named_parameters()) == 1
    decoder(x, source).last_hidden_state.square().sum().backward()
    grad = decoder.relative.table.weight.grad  # type: ignore[union-attr]
    assert grad is not None
    assert (grad[:5].abs().amax(1) > 0).all()  # distances 0 … 5 fall into buckets 0 … 4


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_checkpointing_changes_no_gradient(dropout: float) -> None:
    decoder, gradients = build_decoder(dropout=dropout).train(), []
    x, source = (torch.randn(2, size, 16, dtype=torch.float64) for size in (6, 4))
    for recompute in (False, True):
        decoder.recompute = recompute
        decoder.zero_grad()
        torch.manual_seed(5)
        decoder(x, source).last_hidden_state.pow(2).sum().backward()
        gradients.append([p.grad.clone() for p in decoder.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(list(decoder.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
