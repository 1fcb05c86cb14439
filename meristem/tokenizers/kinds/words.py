"""Whole words with a limit, as ELMo, Transformer-XL and word vectors use them."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from meristem.tokenizers.counting import commonest, words
from meristem.tokenizers.roles import BRACKETED
from meristem.tokenizers.settings import TokenizerSettings


class Words:
    """The most frequent words, punctuation marks and ideographs; the others are [UNK]."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    def empty(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer that cuts as BERT does and looks every word up."""
        out = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        out.normalizer = normalizers.BertNormalizer(lowercase=self.settings.lowercase)
        out.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        out.decoder = decoders.WordPiece()
        return out

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Count words and keep the commonest."""
        counts = words(self.empty({"[UNK]": 0}), texts)
        kept = commonest(counts, self.settings.size - len(BRACKETED))
        out = self.empty({token: number for number, token in enumerate([*BRACKETED, *kept])})
        out.add_special_tokens(list(BRACKETED))
        return out
