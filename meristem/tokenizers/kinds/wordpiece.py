"""WordPiece (BERT): greedy longest-match segmentation of words, with `##` before pieces inside a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from meristem.tokenizers.special_tokens import BERT_SPECIALS
from meristem.tokenizers.tokenizer_kind import VocabularyKind
from meristem.tokenizers.word_counts import count_characters, count_words, most_common, repeat_words


class WordPieceTokenizer(VocabularyKind):
    """Characters and their most frequent merges (Schuster & Nakajima 2012), with BERT's pre-tokenization."""

    def build(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer with BERT's normalizer and pre-tokenizer; every ideograph is a word."""
        library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        library.normalizer = normalizers.BertNormalizer(lowercase=self.settings.lowercase)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.WordPiece()
        return library

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Merge the most frequent pairs; the rest of the vocabulary goes to rare characters, as Chinese needs."""
        counts = count_words(self.build({"[UNK]": 0}), texts)
        characters = count_characters(counts)
        tokens = [token for token in self._train_merges(counts, characters) if token not in BERT_SPECIALS]
        known_tokens, by_frequency = set(tokens), most_common(characters, self.settings.vocab_size)
        rare = [character for character in by_frequency if character not in known_tokens]
        return self.build_with_specials([*tokens, *rare])

    def _train_merges(self, counts: Counter[str], characters: Counter[str]) -> list[str]:
        """The tokens that the library's trainer finds, in its order.

        The trainer numbers `##` characters in the order of a randomly seeded hash map of words, and breaks ties by
        these numbers. Passed as special tokens, they always have the same numbers.
        """
        common = Counter({character: count for character, count in characters.items() if count > 1}) or characters
        alphabet = sorted(most_common(common, self.settings.alphabet_limit))
        inside = sorted({character for word in counts for character in word[1:]} & set(alphabet))
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.settings.vocab_size,
            min_frequency=2,
            show_progress=False,
            limit_alphabet=len(alphabet),
            initial_alphabet=alphabet,
            special_tokens=[*BERT_SPECIALS, *(f"##{character}" for character in inside)],
        )
        library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # the words are already split
        library.train_from_iterator(repeat_words(counts), trainer)
        vocabulary = library.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)
