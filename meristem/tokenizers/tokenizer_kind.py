"""Base class of tokenizer kinds: an algorithm that learns a vocabulary from texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import tokenizers

from meristem.config.registry import ComponentKind, Registry
from meristem.tokenizers.settings import TokenizerSettings


class TokenizerKind(ABC):
    """Learns the vocabulary of one tokenizer."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    @abstractmethod
    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """A trained tokenizer of at most `vocab_size` tokens, the special ones included; deterministic."""


TOKENIZER_KINDS: Registry[TokenizerKind] = Registry(ComponentKind.TOKENIZER, TokenizerKind)  # type: ignore[type-abstract]
"""Tokenizer kinds by name: `TOKENIZER_KINDS["bpe"]` is the class in tokenizers/kinds/bpe.py."""
