"""Dataset views: base classes of what maps sample numbers to rows, and the registry of those that cut token streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from meristem.config.registry import ComponentKind, Registry
from meristem.dataset.token_dataset import TokenStream
from meristem.inputs.batch import Row
from meristem.utils.randomness import SampleRng

if TYPE_CHECKING:
    from meristem.tokenizers.tokenizer import Tokenizer


class DatasetView(ABC):
    """A view of a dataset: maps sample numbers to rows."""

    shuffled: bool

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def row(self, index: int, draw: SampleRng) -> Row:
        """Sample `index` as a row."""

    def row_part(self, index: int, part: int, parts: int, draw: SampleRng) -> Row:
        """One of the shorter rows that together have the text of a sample; only packed windows can be cut."""
        raise NotImplementedError(f"{type(self).__name__} does not cut its rows")


class TokenView(DatasetView):
    """A view that cuts a token stream into rows of at most `length` tokens."""

    @abstractmethod
    def __init__(self, stream: TokenStream, tokenizer: Tokenizer, length: int, **options: Any) -> None:
        """The options are those of the `ViewSpec` that names the view."""


DATASET_VIEWS: Registry[TokenView] = Registry(ComponentKind.VIEW, TokenView)  # type: ignore[type-abstract]
"""Views by name: `DATASET_VIEWS["windows"]` is the class in dataset/views/windows.py."""
