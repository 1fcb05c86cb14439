"""Byte-level BPE (GPT-2): no unknown tokens, and decoding is exact."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from meristem.tokenizers.special_tokens import ROBERTA_SPECIALS
from meristem.tokenizers.tokenizer_kind import TokenizerKind


class BPETokenizer(TokenizerKind):
    """Bytes and their most frequent merges (Sennrich et al. 2016; on bytes: Radford et al. 2019)."""

    def build(self) -> tokenizers.Tokenizer:
        """An untrained tokenizer that splits text by GPT-2's pattern."""
        library = tokenizers.Tokenizer(models.BPE())
        if self.settings.lowercase:
            library.normalizer = normalizers.Lowercase()
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        return library

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Merge the most frequent pair until the vocabulary is full; it starts with all 256 bytes."""
        library = self.build()
        library.train_from_iterator(
            texts,
            trainers.BpeTrainer(
                vocab_size=self.settings.vocab_size,
                min_frequency=2,
                special_tokens=list(ROBERTA_SPECIALS),
                show_progress=False,
                initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            ),
        )
        return library
