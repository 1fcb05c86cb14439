"""One token per character: white space and line breaks too, so that decoding is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from meristem.tokenizers.counting import commonest
from meristem.tokenizers.roles import BRACKETED
from meristem.tokenizers.settings import TokenizerSettings


class Characters:
    """The most frequent characters; the others are [UNK]."""

    def __init__(self, settings: TokenizerSettings) -> None:
        self.settings = settings

    def empty(self, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """A tokenizer that looks every character up."""
        out = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        if self.settings.lowercase:
            out.normalizer = normalizers.Lowercase()
        out.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        out.decoder = decoders.Fuse()
        return out

    def learn(self, texts: Sequence[str]) -> tokenizers.Tokenizer:
        """Count characters and keep the commonest."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(normalizers.Lowercase().normalize_str(text) if self.settings.lowercase else text)
        kept = commonest(counts, self.settings.size - len(BRACKETED))
        out = self.empty({token: number for number, token in enumerate([*BRACKETED, *kept])})
        out.add_special_tokens(list(BRACKETED))
        return out
