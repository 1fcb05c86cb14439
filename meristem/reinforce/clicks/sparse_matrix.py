"""Sparse matrices (COO and CSR), and sums by index."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix as (row, column, value), with the norm of each row's features that have no column."""

    row: Ints
    column: Ints
    value: Floats
    shape: tuple[int, int]
    unknown_norm_sq: Floats
    """[rows] the sum of squares of features that are in no column."""

    @classmethod
    def empty(cls, rows: int) -> SparseMatrix:
        """A matrix without columns."""
        no_indices = np.zeros(0, np.int64)
        return cls(no_indices, no_indices, np.zeros(0), (rows, 0), np.zeros(rows))

    def matvec(self, weights: Floats) -> Floats:
        """[rows] the matrix times [columns] weights."""
        return _csr_matvec(self.csr, weights)

    def rmatvec(self, rows: Floats) -> Floats:
        """[columns] the transposed matrix times [rows] values."""
        return _csr_matvec(self.transposed_csr, rows)

    def squared_rmatvec(self, rows: Floats) -> Floats:
        """[columns] the same with squared matrix entries."""
        return sum_by_index(self.column, self.value**2 * rows[self.row], self.shape[1])

    @cached_property
    def csr(self) -> torch.Tensor:
        """The matrix in CSR format."""
        return _to_csr(self.row, self.column, self.value, self.shape)

    @cached_property
    def transposed_csr(self) -> torch.Tensor:
        """The transposed matrix in CSR format."""
        return _to_csr(self.column, self.row, self.value, self.shape[::-1])


def sum_by_index(indices: Ints, values: Floats, count: int) -> Floats:
    """[count] the sum of the values at each index."""
    return np.asarray(np.bincount(indices, values, count), dtype=np.float64)


def _to_csr(row: Ints, column: Ints, value: Floats, shape: tuple[int, ...]) -> torch.Tensor:
    """A CSR tensor from coordinates."""
    order = np.lexsort((column, row))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=shape[0]))])
    row_starts, columns, values = (torch.from_numpy(array) for array in (offsets, column[order], value[order]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns that CSR tensors are in beta
        return torch.sparse_csr_tensor(row_starts, columns, values, size=shape)


def _csr_matvec(matrix: torch.Tensor, vector: Floats) -> Floats:
    if not matrix.values().numel():
        return np.zeros(matrix.shape[0])
    return (matrix @ torch.from_numpy(np.ascontiguousarray(vector))).numpy()
