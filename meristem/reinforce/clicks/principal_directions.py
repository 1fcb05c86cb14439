"""Randomized SVD of text features: fits in a few hundred principal directions take seconds instead of minutes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from meristem.reinforce.clicks.sparse_matrix import Floats, SparseMatrix
from meristem.utils.randomness import generator

NUM_DIRECTIONS, OVERSAMPLING = 640, 32
"""Directions that are kept, and extra ones that make the randomized SVD accurate."""
POWER_ITERATIONS = 1
MIN_EIGENVALUE_RATIO = 1e-10
"""Relative to the largest eigenvalue: smaller ones are round-off."""


@dataclass(frozen=True, eq=False)
class PrincipalDirections:
    """Texts projected on their principal directions [texts, directions], and the directions [columns, directions]."""

    projections: torch.Tensor
    components: torch.Tensor

    @classmethod
    def from_matrix(cls, matrix: SparseMatrix) -> PrincipalDirections:
        """Randomized SVD: power iterations on a random basis (Halko et al. 2011)."""
        rows, columns = matrix.shape
        random_matrix = generator(0, "click directions", 0, 0).standard_normal(
            (rows, min(rows, columns, NUM_DIRECTIONS + OVERSAMPLING))
        )
        basis = torch.linalg.qr(torch.from_numpy(random_matrix))[0]
        for _ in range(POWER_ITERATIONS):
            basis = torch.linalg.qr(matrix.csr @ (matrix.transposed_csr @ basis))[0]
        projected = matrix.transposed_csr @ basis  # [columns, directions]
        eigenvalues, eigenvectors = torch.linalg.eigh(projected.T @ projected)
        mask = (eigenvalues > MIN_EIGENVALUE_RATIO * eigenvalues[-1]) & (
            torch.arange(len(eigenvalues)) >= len(eigenvalues) - NUM_DIRECTIONS
        )
        rotation = eigenvectors[:, mask] / eigenvalues[mask].sqrt()
        components = projected @ rotation
        return cls(matrix.csr @ components, components)

    @property
    def shape(self) -> tuple[int, int]:
        """Texts and directions."""
        return self.projections.shape[0], self.projections.shape[1]

    def matvec(self, weights: Floats) -> Floats:
        """[texts] the matrix times [directions] weights."""
        return (self.projections @ torch.from_numpy(np.ascontiguousarray(weights))).numpy()

    def rmatvec(self, rows: Floats) -> Floats:
        """[directions] the transposed matrix times [texts] values."""
        return (self.projections.T @ torch.from_numpy(np.ascontiguousarray(rows))).numpy()

    def squared_rmatvec(self, rows: Floats) -> Floats:
        """[directions] the same with squared matrix entries."""
        return ((self.projections**2).T @ torch.from_numpy(np.ascontiguousarray(rows))).numpy()

    def to_column_weights(self, weights: Floats) -> Floats:
        """[columns] weights of directions converted to weights of columns."""
        return (self.components @ torch.from_numpy(np.ascontiguousarray(weights))).numpy()
