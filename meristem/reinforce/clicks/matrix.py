"""Matrices that are mostly zero, and sums by place."""

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
class Sparse:
    """Rows of a matrix as (row, column, value), and how much of each row is unknown."""

    row: Ints
    column: Ints
    value: Floats
    shape: tuple[int, int]
    unknown: Floats
    """[rows] the sum of squares of what no column knows."""

    @classmethod
    def empty(cls, rows: int) -> Sparse:
        """No columns."""
        none = np.zeros(0, np.int64)
        return cls(none, none, np.zeros(0), (rows, 0), np.zeros(rows))

    def times(self, weights: Floats) -> Floats:
        """[rows] the matrix times one weight a column."""
        return _product(self.across, weights)

    def back(self, rows: Floats) -> Floats:
        """[columns] the transposed matrix times one number a row."""
        return _product(self.down, rows)

    def squares(self, rows: Floats) -> Floats:
        """[columns] the same of squared values."""
        return added(self.column, self.value**2 * rows[self.row], self.shape[1])

    @cached_property
    def across(self) -> torch.Tensor:
        """Row by row."""
        return _compressed(self.row, self.column, self.value, self.shape)

    @cached_property
    def down(self) -> torch.Tensor:
        """The transposed matrix."""
        return _compressed(self.column, self.row, self.value, self.shape[::-1])


def added(where: Ints, values: Floats, count: int) -> Floats:
    """[count] the sum of the values at each place."""
    return np.asarray(np.bincount(where, values, count), dtype=np.float64)


def _compressed(row: Ints, column: Ints, value: Floats, shape: tuple[int, ...]) -> torch.Tensor:
    """The matrix row by row, as products want it."""
    order = np.lexsort((column, row))
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=shape[0]))])
    begins, columns, values = (torch.from_numpy(one) for one in (ends, column[order], value[order]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its compressed matrices a beta
        return torch.sparse_csr_tensor(begins, columns, values, size=shape)


def _product(matrix: torch.Tensor, vector: Floats) -> Floats:
    if not matrix.values().numel():
        return np.zeros(matrix.shape[0])
    return (matrix @ torch.from_numpy(np.ascontiguousarray(vector))).numpy()
