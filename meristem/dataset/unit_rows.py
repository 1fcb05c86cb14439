"""Units of protection: views whose samples are whole documents or labelled samples, each with one or more rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from meristem.config.errors import RecipeError
from meristem.dataset.dataset_view import DATASET_VIEWS, DatasetView
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import Row
from meristem.interfaces.objective import ViewSpec
from meristem.utils.randomness import SampleRng, generator

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


@runtime_checkable
class DocumentRows(Protocol):
    """A view whose rows are of one document each, in the order of the documents."""

    def rows_per_document(self) -> IntArray:
        """Number of rows of each document."""

    def __len__(self) -> int: ...

    def row(self, index: int, draw: SampleRng) -> Row:
        """One row."""


class UnitView(DatasetView):
    """Sample n is unit n; a row of it is drawn at random, and the parts of a sample are different rows."""

    shuffled = True

    @abstractmethod
    def num_rows(self, unit: int) -> int:
        """Rows of a unit; 0 where it is too short for one."""

    @abstractmethod
    def unit_row(self, unit: int, number: int, draw: SampleRng) -> Row:
        """Row `number` of a unit."""

    def row(self, index: int, draw: SampleRng) -> Row:
        """A row of a unit, drawn at random; of a unit without one the next that has one."""
        while not self.num_rows(index):  # only for estimates of sizes: sampling leaves such units out
            index = (index + 1) % len(self)
        return self.row_part(index, 0, 1, draw)

    def row_part(self, index: int, part: int, parts: int, draw: SampleRng) -> Row:
        """The row at place `part` of a random order of the unit's rows."""
        order = generator(draw.seed, "rows of a unit", draw.epoch, index).permutation(self.num_rows(index))
        return self.unit_row(index, int(order[part]), draw)


class GroupedRows(UnitView):
    """Units that are consecutive rows of another view: the windows of a document, the pieces of a labelled sample."""

    def __init__(self, view: DatasetView | DocumentRows, rows_per_unit: IntArray) -> None:
        self.rows, self._starts = view, np.concatenate([[0], np.cumsum(rows_per_unit)])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def num_rows(self, unit: int) -> int:
        """Rows of a unit."""
        return int(self._starts[unit + 1] - self._starts[unit])

    def unit_row(self, unit: int, number: int, draw: SampleRng) -> Row:
        """Row `number` of a unit."""
        return self.rows.row(int(self._starts[unit]) + number, draw)


def unit_view(
    spec: ViewSpec, stream: TokenStream, tokenizer: Tokenizer, length: int, *, isolate: bool = False
) -> UnitView:
    """The rows of a view, grouped by the document that they come from; refused where rows have text of several."""
    options = dict(spec.options)
    if spec.kind == "windows":
        spec = replace(spec, kind="document_windows")
    view = DATASET_VIEWS[spec.kind](stream, tokenizer, length, isolate=isolate, **options)
    if isinstance(view, UnitView):
        return view
    if isinstance(view, DocumentRows):
        return GroupedRows(view, view.rows_per_document())
    raise RecipeError(f"train.privacy: rows of {spec.kind.replace('_', ' ')} hold text of several documents")
