"""Log-probability of a continuation given its context, as multiple-choice evaluation needs it.

Causal: Σ log p(x_t | separator, context, x_<t) over the tokens of the continuation; a context that is too long is
truncated at its beginning. Masked: Σ log p(x_t | context, all other tokens of the continuation), each of its tokens
masked once (Salazar et al. 2020): a pseudo-log-likelihood, comparable only between continuations of one context.
Encoder-decoders: Σ log p(x_t | context as source, x_<t).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meristem.generation.head_selection import lm_kind_for, text_lm_kinds
from meristem.generation.score import score_encoded_pairs
from meristem.generation.target_score import build_target, score_targets
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class ContinuationScore:
    """The log-probability of a continuation, summed over its tokens."""

    logprob: float
    tokens: int
    best: bool
    """Whether greedy decoding would produce it: every token is the most probable at its position."""


def score_continuations(
    model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> list[ContinuationScore]:
    """The score of each (context, continuation) pair; a continuation without tokens has log-probability 0."""
    lm_kind = lm_kind_for(model, "score", source="source" in text_lm_kinds(model))
    if lm_kind == "source":
        token_scores = score_targets(model, [build_target(model, tokenizer, *pair, score_end=False) for pair in pairs])
    else:
        token_scores = [scores for _, scores in score_encoded_pairs(model, tokenizer, pairs, lm_kind)]
    return [
        ContinuationScore(logprob=float(item.logprobs.sum()), tokens=len(item.logprobs), best=bool(item.is_top.all()))
        for item in token_scores
    ]
