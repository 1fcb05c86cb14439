"""Byte-level BPE: GPT-2's. Nothing is unknown to it, and decoding is exact."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from meristem.tokenizers.roles import ANGLED
from meristem.tokenizers.settings import TokenizerSettings


class BPE:
    """Bytes, and the merges of them that occur most (Sennrich et al. 2016; bytes: Radford et al. 2019)."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    def empty(self) -> tokenizers.Tokenizer:
        """A tokenizer that cuts text by GPT-2's pattern and knows no merges yet."""
        out = tokenizers.Tokenizer(models.BPE())
        if self.settings.lowercase:
            out.normalizer = normalizers.Lowercase()
        out.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        out.decoder = decoders.ByteLevel()
        return out

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Merge the most frequent pair until the vocabulary is full; every byte is in it from the start."""
        out = self.empty()
        out.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=self.settings.size, min_frequency=2, special_tokens=list(ANGLED), show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
        return out
