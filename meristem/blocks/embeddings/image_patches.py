"""Image embeddings: square patches (ViT) or a convolutional stem, with grid position embeddings."""

# B batch, P image size in pixels, R rows and columns of the patch grid, D hidden size

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.precision import to_compute_dtype
from meristem.config.errors import MeristemError

ImageStemName = Literal["patches", "convolutions"]
ImagePositionName = Literal["learned", "grid"]


class PatchEmbedding(nn.Module):
    """Linear projection of each square patch (ViT, Dosovitskiy et al. 2020)."""

    def __init__(self, patch_size: int, hidden_size: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.project = nn.Linear(3 * patch_size**2, hidden_size)
        nn.init.normal_(self.project.weight, std=self.project.in_features**-0.5)
        nn.init.zeros_(self.project.bias)

    def forward(self, image_BPP3: Tensor) -> Tensor:
        """[B, P, P, 3] → [B, R·R, D]."""
        (batch_size, image_size), patch_size = image_BPP3.shape[:2], self.patch_size
        grid = image_BPP3.reshape(
            batch_size, image_size // patch_size, patch_size, image_size // patch_size, patch_size * 3
        )
        return self.project(grid.transpose(2, 3).reshape(batch_size, -1, 3 * patch_size**2))  # type: ignore[no-any-return]  # nn.Module.__call__


class ConvolutionalStem(nn.Module):
    """Strided convolutions that halve the image until each grid cell covers a patch, and overlap its neighbours."""

    def __init__(self, patch_size: int, hidden_size: int) -> None:
        super().__init__()
        halvings = patch_size.bit_length() - 1
        channels = [3, *(max(16, hidden_size >> (halvings - level)) for level in range(1, halvings)), hidden_size]
        self.layers = nn.ModuleList(
            nn.Conv2d(in_channels, out_channels, 3, stride=2, padding=1)
            for in_channels, out_channels in pairwise(channels)
        )
        self.project = nn.Linear(hidden_size, hidden_size)

    def forward(self, image_BPP3: Tensor) -> Tensor:
        """[B, P, P, 3] → [B, R·R, D]."""
        x = image_BPP3.permute(0, 3, 1, 2)
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.project(x.flatten(2).transpose(1, 2))  # type: ignore[no-any-return]  # nn.Module.__call__


class GridPositionEmbedding(nn.Module):
    """Position embedding of the patch grid: one vector per cell, or the sum of a row and a column vector."""

    def __init__(self, name: ImagePositionName, grid_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(grid_size if name == "grid" else grid_size**2, hidden_size)
        self.columns = nn.Embedding(grid_size, hidden_size) if name == "grid" else None

    def init_weights(self, init_std: float) -> None:
        """Initialize the embeddings from a normal distribution."""
        for table in (self.rows, self.columns):
            if table is not None:
                nn.init.normal_(table.weight, std=init_std)

    def forward(self) -> Tensor:
        """Position embeddings [R·R, D]."""
        if self.columns is None:
            return self.rows.weight
        return (self.rows.weight[:, None] + self.columns.weight).flatten(0, 1)


class ImageEmbedding(nn.Module):
    """Image → encoder input: patch embedding plus position embedding, optional norm, dropout."""

    def __init__(
        self,
        name: ImageStemName,
        hidden_size: int,
        *,
        image_size: int,
        patch_size: int,
        position_encoding: ImagePositionName,
        norm: nn.Module | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.image_size = image_size
        self.cut = (
            PatchEmbedding(patch_size, hidden_size) if name == "patches" else ConvolutionalStem(patch_size, hidden_size)
        )
        self.positions = GridPositionEmbedding(position_encoding, image_size // patch_size, hidden_size)
        self.norm, self.dropout = norm, dropout

    def forward(self, image: Tensor) -> Tensor:
        """[B, P, P, 3], uint8 or floats from 0 to 1 → [B, R·R, D]."""
        image_size = self.image_size
        if image.shape[1:] != (image_size, image_size, 3):
            actual_size = "×".join(map(str, image.shape[1:]))
            raise MeristemError(
                f"image: this model takes images of {image_size}×{image_size}×3, not {actual_size}; resize them, or "
                f"train with model.image_size and dataset.image_size of that size"
            )
        x = self.cut(self._scale_pixels(image)) + self.positions()
        x = to_compute_dtype(x if self.norm is None else self.norm(x))
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def _scale_pixels(self, image: Tensor) -> Tensor:
        """Pixel values scaled to [−1, 1]."""
        if image.dtype == torch.uint8:
            weights = next(self.cut.parameters())
            return image.to(weights.dtype) / 127.5 - 1
        return image * 2 - 1
