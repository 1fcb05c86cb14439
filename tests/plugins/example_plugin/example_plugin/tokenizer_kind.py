"""Byte tokenizer: one token per byte, nothing to learn."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from meristem.tokenizers.special_tokens import BERT_SPECIALS
from meristem.tokenizers.tokenizer_kind import TokenizerKind


class BytesTokenizer(TokenizerKind):
    """256 bytes and the special tokens."""

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """The same tokenizer for all texts."""
        tokens = [*BERT_SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        library = tokenizers.Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        library.add_special_tokens(list(BERT_SPECIALS))
        return library
