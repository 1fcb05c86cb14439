"""How rare the words of a text are, whatever stands around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meristem.reinforce.judging import Floats
from meristem.tokenizers.tokenizer import Tokenizer


class Rarity:
    """Nats per token by how often each stands in given texts; one that never does counts as if it had once."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        counts = np.ones(tokenizer.size)
        for ids in tokenizer.ids_many(list(texts)):
            np.add.at(counts, ids, 1)
        self._nats = np.log(counts.sum()) - np.log(counts)

    def of(self, texts: Sequence[str]) -> Floats:
        """The mean over each text's tokens; 0 where there is none."""
        found = self._tokenizer.ids_many(list(texts))
        return np.array([self._nats[ids].mean() if len(ids) else 0.0 for ids in found])
