"""The few hundred directions in which the texts of a table differ most: fits in them take seconds, not minutes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from meristem.randomness import generator
from meristem.reinforce.clicks.matrix import Floats, Sparse

MOST, MORE = 640, 32
"""Directions that are kept, and how many more are looked for so that these are right."""
ROUNDS = 1
SMALLEST = 1e-10
"""Of the longest direction's square: a direction shorter than it is round-off."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Texts along their main directions [texts, directions], and the directions [columns, directions]."""

    texts: torch.Tensor
    columns: torch.Tensor

    @classmethod
    def of(cls, matrix: Sparse) -> Directions:
        """Repeated products with the matrix turn drawn directions into its main ones (Halko et al. 2011)."""
        rows, columns = matrix.shape
        drawn = generator(0, "click directions", 0, 0).standard_normal((rows, min(rows, columns, MOST + MORE)))
        basis = torch.linalg.qr(torch.from_numpy(drawn))[0]
        for _ in range(ROUNDS):
            basis = torch.linalg.qr(matrix.across @ (matrix.down @ basis))[0]
        reached = matrix.down @ basis  # [columns, directions]
        square, turn = torch.linalg.eigh(reached.T @ reached)
        kept = (square > SMALLEST * square[-1]) & (torch.arange(len(square)) >= len(square) - MOST)
        turned = turn[:, kept] / square[kept].sqrt()
        columns_ = reached @ turned
        return cls(matrix.across @ columns_, columns_)

    @property
    def shape(self) -> tuple[int, int]:
        """Texts and directions."""
        return self.texts.shape[0], self.texts.shape[1]

    def times(self, weights: Floats) -> Floats:
        """[texts] the matrix times one weight a direction."""
        return (self.texts @ torch.from_numpy(np.ascontiguousarray(weights))).numpy()

    def back(self, rows: Floats) -> Floats:
        """[directions] the transposed matrix times one number a text."""
        return (self.texts.T @ torch.from_numpy(np.ascontiguousarray(rows))).numpy()

    def squares(self, rows: Floats) -> Floats:
        """[directions] the same of squared values."""
        return ((self.texts**2).T @ torch.from_numpy(np.ascontiguousarray(rows))).numpy()

    def unturned(self, weights: Floats) -> Floats:
        """[columns] weights of directions as weights of columns."""
        return (self.columns @ torch.from_numpy(np.ascontiguousarray(weights))).numpy()
