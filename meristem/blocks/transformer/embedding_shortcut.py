"""Embedding shortcut (modded-nanogpt's x0 residual): every layer reads the residual stream and the embedding again."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EmbeddingShortcut(nn.Module):
    """λ x + μ x₀ before each layer, with learned λ (first 1) and μ (first 0) of each layer."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.residual_scales = nn.Parameter(torch.ones(num_layers))
        self.embedding_scales = nn.Parameter(torch.zeros(num_layers))

    def forward(self, x: Tensor, embedded: Tensor, layer_index: int) -> Tensor:
        """The input of a layer, from that of the stack and the output of the layer before; shapes are equal."""
        residual_scale, embedding_scale = (
            scales[layer_index].to(x.dtype) for scales in (self.residual_scales, self.embedding_scales)
        )
        return x * residual_scale + embedded * embedding_scale
