"""Judge model: a trained run that scores texts by their negative log-likelihood per token; unigram surprisal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe
from meristem.generation.continuation_score import score_continuations
from meristem.generation.head_selection import lm_kinds_for
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

Floats = NDArray[np.float64]


def load_for_inference(run: str, say: Callable[[str], None]) -> LoadedRun:
    """Load a run for inference, on the accelerator if there is one."""
    loaded = load_run(Path(run).expanduser())
    for notice in loaded.notices:
        say(f"{run}: {notice}")
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        loaded.learner.to(accelerator)
    return loaded


@dataclass(frozen=True, kw_only=True)
class JudgeModel:
    """A causal or masked language model that scores texts."""

    model: Model
    tokenizer: Tokenizer
    recipe: Recipe

    @classmethod
    def from_run(cls, run: str, say: Callable[[str], None]) -> JudgeModel:
        """Load from a run; encoder-decoder runs are refused, since they score no text without a source."""
        loaded = load_for_inference(run, say)
        model = loaded.learner.model
        if not lm_kinds_for(model, "score"):
            raise MeristemError(
                f"{run} generates from a source and cannot score a text alone: "
                "use a causal or a masked run as judge (gpt2-mini, bert-mini)"
            )
        return cls(model=model, tokenizer=loaded.tokenizer, recipe=loaded.recipe)

    def nats_per_token(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Negative log-likelihood per token of each text after its context, in nats; infinite for texts without tokens.

        An unknown token costs log(vocabulary size) extra: without that, noise would be the likeliest text of all.
        """
        continuations = score_continuations(self.model, self.tokenizer, pairs)
        log_vocab_size = np.log(self.tokenizer.vocab_size)
        unknown_counts = self._count_unknown([text for _, text in pairs])
        return np.array(
            [
                (log_vocab_size * unknown_count - continuation.logprob) / continuation.tokens
                if continuation.tokens
                else np.inf
                for continuation, unknown_count in zip(continuations, unknown_counts, strict=True)
            ]
        )

    def _count_unknown(self, texts: Sequence[str]) -> list[int]:
        """Number of unknown tokens in each text."""
        if self.tokenizer.unknown is None:
            return [0] * len(texts)
        return [int((encoding.ids == self.tokenizer.unknown).sum()) for encoding in self.tokenizer.encode_batch(texts)]


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
