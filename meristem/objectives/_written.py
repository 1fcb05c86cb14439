"""Writing a target from what an encoder read: what seq2seq, denoising and captioning share."""

from __future__ import annotations

from typing import Any

import numpy as np

from meristem.batch import Array, Batch, Head, Hidden, Model, Objective, Outcome, Row
from meristem.objectives import _words
from meristem.settings import MeristemError
from meristem.tokenizers.tokenizer import Tokenizer


class Written(Objective):
    """p(y | given) = Π p(y_t | y_<t, given); the decoder reads [start] y_1 … y_n−1 and predicts y_1 … y_n."""

    heads = {"seq2seq": Head("vocabulary")}

    def __init__(self, settings: _words.WordsSettings, tokenizer: Tokenizer) -> None:
        if tokenizer.end is None:
            raise MeristemError(
                f"objective {self.name}: this tokenizer has no end token to say where a target ends; train one"
            )
        self.settings: Any = settings
        self.end = tokenizer.end
        self.start = tokenizer.end if tokenizer.start is None else tokenizer.start
        self.weights = _words.weights(settings, self.name)

    def write(self, row: Row, target: Array, **given: Array) -> Row:
        """A row that reads what is given and predicts every token of the target."""
        tokens = np.concatenate([[self.start], target[:-1]]).astype(np.int64)
        goal = {"at": np.arange(len(target)), "values": target.astype(np.int64)}
        return Row(
            inputs={**given, "tokens": tokens},
            goals={**row.goals, self.name: goal},
            notes=row.notes,
            sample=row.sample,
        )

    def count(self, batch: Batch) -> dict[str, int]:
        """Every token of the target is predicted."""
        return _words.count(self.settings, self.name, batch)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Cross-entropy of the target."""
        return _words.judge(self.settings, self.name, model, hidden, batch, head_name="seq2seq")
