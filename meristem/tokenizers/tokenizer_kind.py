"""Base class of tokenizer kinds: an algorithm that learns a vocabulary from texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import tokenizers

from meristem.config.registry import ComponentKind, Registry
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.special_tokens import BERT_SPECIALS


class TokenizerKind(ABC):
    """Learns the vocabulary of one tokenizer."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    @abstractmethod
    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """A trained tokenizer of at most `vocab_size` tokens, the special ones included; deterministic."""


class VocabularyKind(TokenizerKind):
    """Learns the vocabulary of a tokenizer that is a list of tokens after BERT's special tokens."""

    @abstractmethod
    def build(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer with this vocabulary."""

    def build_with_specials(self, tokens: Iterable[str]) -> tokenizers.Tokenizer:
        """The tokenizer with BERT's special tokens and these, numbered in this order, up to the vocabulary size."""
        all_tokens = [*BERT_SPECIALS, *tokens][: self.settings.vocab_size]
        library = self.build({token: number for number, token in enumerate(all_tokens)})
        library.add_special_tokens(list(BERT_SPECIALS))
        return library


TOKENIZER_KINDS: Registry[TokenizerKind] = Registry(ComponentKind.TOKENIZER, TokenizerKind)  # type: ignore[type-abstract]
"""Tokenizer kinds by name: `TOKENIZER_KINDS["bpe"]` is the class in tokenizers/kinds/bpe.py."""
