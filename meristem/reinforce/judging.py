"""A run of ours that judges texts by how much they surprise it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from meristem.batch import Model
from meristem.checkpoint.revive import Revived, revive
from meristem.errors import MeristemError
from meristem.generation.continued import continued
from meristem.generation.way import ways_for
from meristem.recipe import Recipe
from meristem.tokenizers.tokenizer import Tokenizer

Floats = NDArray[np.float64]


def opened(run: str, say: Callable[[str], None]) -> Revived:
    """A run for use, on the accelerator where there is one."""
    revived = revive(Path(run).expanduser())
    for notice in revived.notices:
        say(f"{run}: {notice}")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is not None:
        revived.learner.to(found)
    return revived


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A causal or masked model that reads."""

    model: Model
    tokenizer: Tokenizer
    recipe: Recipe

    @classmethod
    def of(cls, run: str, say: Callable[[str], None]) -> Judge:
        """From a run; one that writes from sources is no judge of a text alone."""
        revived = opened(run, say)
        model = revived.learner.model
        if not ways_for(model, "score"):
            raise MeristemError(
                f"{run} writes from a source, and a text alone has none: "
                "judge with a causal or a masked run (gpt2-mini, bert-mini)"
            )
        return cls(model=model, tokenizer=revived.tokenizer, recipe=revived.recipe)

    def surprise(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Nats per token of each text behind what is read before it; infinite where a text has no token.

        An unknown word is one of as many as are known: without that, noise would be the likeliest text of all.
        """
        found = continued(self.model, self.tokenizer, pairs)
        size, unknown = np.log(self.tokenizer.size), self._unknown([text for _, text in pairs])
        lost = [size * number - one.logprob for one, number in zip(found, unknown, strict=True)]
        return np.array([each / one.tokens if one.tokens else np.inf for each, one in zip(lost, found, strict=True)])

    def _unknown(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text stand for whatever the tokenizer does not know."""
        if self.tokenizer.unknown is None:
            return [0] * len(texts)
        return [int((one.ids == self.tokenizer.unknown).sum()) for one in self.tokenizer.encode_many(texts)]
