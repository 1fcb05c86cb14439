"""Word-level tokenizer with a limited vocabulary, as used by ELMo, Transformer-XL and word vectors."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from meristem.tokenizers.special_tokens import BERT_SPECIALS
from meristem.tokenizers.tokenizer_kind import VocabularyKind
from meristem.tokenizers.word_counts import count_words, most_common


class WordsTokenizer(VocabularyKind):
    """The most frequent words, punctuation marks and ideographs; the others are [UNK]."""

    def build(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer with BERT's pre-tokenizer that looks up every word in the vocabulary."""
        library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        library.normalizer = normalizers.BertNormalizer(lowercase=self.settings.lowercase)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.WordPiece()
        return library

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Count words and keep the most frequent."""
        counts = count_words(self.build({"[UNK]": 0}), texts)
        frequent_words = most_common(counts, self.settings.vocab_size - len(BERT_SPECIALS))
        return self.build_with_specials(frequent_words)
