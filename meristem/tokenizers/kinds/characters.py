"""Character tokenizer: one token per character, white space included, so that decoding is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from meristem.tokenizers.special_tokens import BERT_SPECIALS
from meristem.tokenizers.tokenizer_kind import VocabularyKind
from meristem.tokenizers.word_counts import most_common


class CharactersTokenizer(VocabularyKind):
    """The most frequent characters; the others are [UNK]."""

    def build(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer that looks up every character in the vocabulary."""
        library = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        if self.settings.lowercase:
            library.normalizer = normalizers.Lowercase()
        library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        library.decoder = decoders.Fuse()
        return library

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Count characters and keep the most frequent."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(normalizers.Lowercase().normalize_str(text) if self.settings.lowercase else text)
        characters = most_common(counts, self.settings.vocab_size - len(BERT_SPECIALS))
        return self.build_with_specials(characters)
