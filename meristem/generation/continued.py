"""How likely a text is after another: as what follows it, as what stands there, or as what it is turned into.

Causal: Σ log p(x_t | separator, context, x_<t) over the tokens of the continuation; a context that is too long loses
its beginning. Masked: Σ log p(x_t | context, all other tokens of the continuation), each of its tokens hidden once
(Salazar et al. 2020): a pseudo-log-likelihood, to be compared between continuations of one context and no further.
Encoder-decoders: Σ log p(x_t | context as source, x_<t).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meristem.batch import Model
from meristem.generation.score import joined, judged
from meristem.generation.target import target_of, target_scores
from meristem.generation.way import text_ways, way_for
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Continued:
    """A continuation, summed over its tokens."""

    logprob: float
    tokens: int
    best: bool
    """Whether every token was the likeliest at its place."""


def continued(model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[Continued]:
    """How likely each continuation is after its context; one without tokens has 0."""
    way = way_for(model, "score", source="source" in text_ways(model))
    if way == "source":
        found = target_scores(model, [target_of(model, tokenizer, *pair, end=False) for pair in pairs])
    else:
        both = joined(model, tokenizer, pairs, way)
        words = [one.words for one in both]
        found = judged(model, tokenizer, [one.ids for one in both], [one.since for one in both], way=way, words=words)
    return [
        Continued(logprob=float(one.logprobs.sum()), tokens=len(one.logprobs), best=bool(one.best.all()))
        for one in found
    ]
