"""WordPiece: BERT's. Words are cut into the longest pieces known, those inside a word marked `##`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from meristem.tokenizers.counting import commonest, repeated, words
from meristem.tokenizers.roles import BRACKETED
from meristem.tokenizers.settings import TokenizerSettings


class WordPiece:
    """Characters, and the merges of them that occur most (Schuster & Nakajima 2012; BERT's cutting of text)."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    def empty(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer that cuts as BERT does, every ideograph by itself."""
        out = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        out.normalizer = normalizers.BertNormalizer(lowercase=self.settings.lowercase)
        out.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        out.decoder = decoders.WordPiece()
        return out

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Merge the most frequent pairs; room that is left goes to rarer characters, as Chinese needs."""
        counts = words(self.empty({"[UNK]": 0}), texts)
        characters: Counter[str] = Counter()
        for word, count in counts.items():
            for character in word:
                characters[character] += count
        tokens = [token for token in self._merge(counts, characters) if token not in BRACKETED]
        known = set(tokens)
        rare = [character for character in commonest(characters, self.settings.size) if character not in known]
        kept = [*BRACKETED, *tokens, *rare][:self.settings.size]
        out = self.empty({token: number for number, token in enumerate(kept)})
        out.add_special_tokens(list(BRACKETED))
        return out

    def _merge(self, counts: Counter[str], characters: Counter[str]) -> list[str]:
        """Tokens by the library's trainer, in an order of its own making.

        The trainer numbers `##` characters as it meets words, which it keeps in a hash map seeded by chance, and
        breaks ties by these numbers. Given beforehand, as special tokens, their numbers are always the same.
        """
        common = Counter({character: count for character, count in characters.items() if count > 1}) or characters
        alphabet = sorted(commonest(common, self.settings.characters))
        inside = sorted({character for word in counts for character in word[1:]} & set(alphabet))
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.settings.size, min_frequency=2, show_progress=False, limit_alphabet=len(alphabet),
            initial_alphabet=alphabet, special_tokens=[*BRACKETED, *(f"##{character}" for character in inside)])
        library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # the words are cut already
        library.train_from_iterator(repeated(counts), trainer)
        vocabulary = library.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)
