"""Pictures made sequences: square patches, or the grid that strided convolutions leave."""

# B batch, P pixels of a side, R rows of the grid and as many columns, D width

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.errors import MeristemError

LookName = Literal["patches", "convolutions"]
GridName = Literal["learned", "grid"]


class Patches(nn.Module):
    """Each patch of a picture through one linear map (Dosovitskiy et al. 2020)."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.patch = patch
        self.project = nn.Linear(3 * patch**2, width)
        nn.init.normal_(self.project.weight, std=self.project.in_features**-0.5)
        nn.init.zeros_(self.project.bias)

    def forward(self, image_BPP3: Tensor) -> Tensor:
        """[B, P, P, 3] → [B, R·R, D]."""
        rows, side, patch = len(image_BPP3), image_BPP3.shape[1], self.patch
        grid = image_BPP3.reshape(rows, side // patch, patch, side // patch, patch * 3)
        return self.project(grid.transpose(2, 3).reshape(rows, -1, 3 * patch**2))  # type: ignore[no-any-return]  # nn.Module.__call__


class Convolutions(nn.Module):
    """Convolutions that halve a picture until each place stands for a patch, and see a little beyond it."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        halvings = patch.bit_length() - 1
        channels = [3, *(max(16, width >> (halvings - number)) for number in range(1, halvings)), width]
        self.layers = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1) for before, after in pairwise(channels)
        )
        self.project = nn.Linear(width, width)

    def forward(self, image_BPP3: Tensor) -> Tensor:
        """[B, P, P, 3] → [B, R·R, D]."""
        x = image_BPP3.permute(0, 3, 1, 2)
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.project(x.flatten(2).transpose(1, 2))  # type: ignore[no-any-return]  # nn.Module.__call__


class GridPositions(nn.Module):
    """Where a place of the grid is: a vector of its own, or one for its row and one for its column."""

    def __init__(self, name: GridName, side: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(side if name == "grid" else side**2, width)
        self.columns = nn.Embedding(side, width) if name == "grid" else None

    def initialise(self, deviation: float) -> None:
        """Normal tables."""
        for table in (self.rows, self.columns):
            if table is not None:
                nn.init.normal_(table.weight, std=deviation)

    def forward(self) -> Tensor:
        """[R·R, D]."""
        if self.columns is None:
            return self.rows.weight
        return (self.rows.weight[:, None] + self.columns.weight).flatten(0, 1)


class Look(nn.Module):
    """A picture on its way into an encoder: patches, where they are, a norm where one is wanted."""

    def __init__(
        self,
        name: LookName,
        width: int,
        *,
        picture: int,
        patch: int,
        positions: GridName,
        norm: nn.Module | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.picture = picture
        self.cut = Patches(patch, width) if name == "patches" else Convolutions(patch, width)
        self.positions = GridPositions(positions, picture // patch, width)
        self.norm, self.dropout = norm, dropout

    def forward(self, image: Tensor) -> Tensor:
        """[B, P, P, 3], bytes or numbers from 0 to 1 → [B, R·R, D]."""
        side = self.picture
        if image.shape[1:] != (side, side, 3):
            given = "×".join(map(str, image.shape[1:]))
            raise MeristemError(
                f"image: this model reads pictures of {side}×{side}×3, not {given}; resize them, or "
                f"train with model.picture and store.picture of that size"
            )
        x = self.cut(self._levels(image)) + self.positions()
        x = x if self.norm is None else self.norm(x)
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def _levels(self, image: Tensor) -> Tensor:
        """Colours from −1 to 1."""
        if image.dtype == torch.uint8:
            weights = next(self.cut.parameters())
            return image.to(weights.dtype) / 127.5 - 1
        return image * 2 - 1
