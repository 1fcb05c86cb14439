"""Unigram surprisal: how rare the tokens of a text are, regardless of context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meristem.reinforce.judge_model import Floats
from meristem.tokenizers.tokenizer import Tokenizer


class UnigramRarity:
    """Negative log unigram probability per token, estimated on given texts with add-one smoothing."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        counts = np.ones(tokenizer.vocab_size)
        for ids in tokenizer.encode_ids(list(texts)):
            np.add.at(counts, ids, 1)
        self._nats = np.log(counts.sum()) - np.log(counts)

    def mean_nats(self, texts: Sequence[str]) -> Floats:
        """The mean over each text's tokens, in nats; 0 where there is none."""
        encodings = self._tokenizer.encode_ids(list(texts))
        return np.array([self._nats[ids].mean() if len(ids) else 0.0 for ids in encodings])
