"""Checkpoints of other programs in memory: a config.json, a tokenizer and tensors by transformers' names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.interop.weights_folder import FolderWeights
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ForeignCheckpoint:
    """What an import needs, whatever the file it comes from."""

    path: Path
    config: Mapping[str, Any]
    """config.json, with `model_type` and `architectures`."""
    tokenizer: Tokenizer
    tensors: Mapping[str, Tensor]
    notices: tuple[str, ...] = field(default=())
    """What a person should know about this import."""


class MemoryWeights(FolderWeights):
    """Tensors in memory, read like those of a folder; `folder` is the file they come from, for messages."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(path)
        self._tensors = tensors

    def __enter__(self) -> MemoryWeights:
        return self

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]


def read_foreign_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file or folder."""
    if not path.exists():
        raise MeristemError(f"{path}: no such tokenizer; --tokenizer takes tokenizer.json, vocab.txt, or a folder")
    return Tokenizer.load(path)
