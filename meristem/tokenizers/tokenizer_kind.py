"""Base class of tokenizer kinds: each builds a tokenizer of the `tokenizers` library and trains it on texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import tokenizers

from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.special_tokens import BERT_SPECIALS


class TokenizerKind(ABC):
    """A kind of tokenizer with its settings."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    @abstractmethod
    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """The tokenizer trained on these texts; the same texts always give the same one."""


class VocabularyKind(TokenizerKind):
    """A kind whose tokenizer is a list of tokens after BERT's special tokens."""

    @abstractmethod
    def build(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer with this vocabulary."""

    def build_with_specials(self, tokens: Iterable[str]) -> tokenizers.Tokenizer:
        """The tokenizer with BERT's special tokens and these, numbered in this order, up to the vocabulary size."""
        all_tokens = [*BERT_SPECIALS, *tokens][: self.settings.vocab_size]
        library = self.build({token: number for number, token in enumerate(all_tokens)})
        library.add_special_tokens(list(BERT_SPECIALS))
        return library
