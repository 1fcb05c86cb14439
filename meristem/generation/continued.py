"""How likely a text is after another: as what follows it, as what stands there, or as what it is turned into.

Causal: Σ log p(x_t | separator, context, x_<t) over the tokens of the continuation; a context that is too long loses
its beginning. Masked: Σ log p(x_t | context, all other tokens of the continuation), each of its tokens hidden once
(Salazar et al. 2020): a pseudo-log-likelihood, to be compared between continuations of one context and no further.
Encoder-decoders: Σ log p(x_t | context as source, x_<t).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.given import Given, start_of, together
from meristem.generation.score import TOKENS, Judged, judged, split
from meristem.generation.way import vocabulary_head, way_for
from meristem.store.rows import ended
from meristem.store.store import Ints
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
    if way_for(model, "score", source=True) == "source":
        found = _targets(model, tokenizer, pairs)
    else:
        texts, since = _joined(model, tokenizer, pairs)
        found = judged(model, tokenizer, texts, since)
    return [
        Continued(logprob=float(one.logprobs.sum()), tokens=len(one.logprobs), best=bool(one.best.all()))
        for one in found
    ]


def _joined(model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> tuple[list[Ints], list[int]]:
    """Both cut as one text, and where the continuation begins: with the first token that reaches into it."""
    texts, since = [], []
    whole = tokenizer.encode_many([context + continuation for context, continuation in pairs])
    for (context, _), encoding in zip(pairs, whole, strict=True):
        ids = encoding.ids.astype(np.int64)
        first = int(np.count_nonzero(encoding.offsets[:, 1] <= len(context)))
        over = min(first, max(0, len(ids) - model.backbone.length)) if way_for(model, "score") == "causal" else 0
        texts.append(ids[over:])
        since.append(first - over)
    return texts, since


def _targets(model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[Judged]:
    """Each continuation as the target of its context, read in groups of like length."""
    begin, length = start_of(model, tokenizer), model.backbone.length
    sources = [ended(found.ids.astype(np.int64), tokenizer, length)
               for found in tokenizer.encode_many([context for context, _ in pairs])]  # fmt: skip
    targets = [found.ids.astype(np.int64) for found in tokenizer.encode_many([text for _, text in pairs])]
    longest = max(map(len, targets), default=0)
    if longest + len(begin) - 1 > length:
        raise MeristemError(f"a continuation has {longest} tokens, and this model writes {length + 1 - len(begin)}")
    out = [Judged(np.zeros(len(ids)), np.zeros(len(ids), bool)) for ids in targets]
    order = sorted((n for n in range(len(pairs)) if len(targets[n])), key=lambda n: len(sources[n]) + len(targets[n]))
    group: list[int] = []
    for number in order:
        size = len(sources[number]) + len(targets[number]) + len(begin)
        if group and (len(group) + 1) * size > TOKENS:
            _read(model, begin, [sources[n] for n in group], [targets[n] for n in group], [out[n] for n in group])
            group = []
        group.append(number)
    if group:
        _read(model, begin, [sources[n] for n in group], [targets[n] for n in group], [out[n] for n in group])
    return out


@torch.inference_mode()
def _read(model: Model, begin: list[int], sources: list[Ints], targets: list[Ints], out: list[Judged]) -> None:
    """One pass: every target behind its beginning, each token predicted at the one before it."""
    starts = [Given(prompt=[*begin, *ids[:-1].tolist()], inputs={"source": torch.from_numpy(source)})
              for source, ids in zip(sources, targets, strict=True)]  # fmt: skip
    tokens, _, inputs = together(starts, model.device)
    hidden = model.backbone(tokens=tokens, **inputs)
    at = [row * tokens.shape[1] + len(begin) - 1 + torch.arange(len(ids)) for row, ids in enumerate(targets)]
    wanted = torch.from_numpy(np.concatenate(targets)).to(model.device)
    states, sizes = hidden.at(torch.cat(at).to(model.device)), [len(ids) for ids in targets]
    parts = split(vocabulary_head(model, "source"), states, wanted, sizes)
    for one, (found, best) in zip(out, parts, strict=True):
        one.logprobs[:] = found.cpu().numpy()
        one.best[:] = best.cpu().numpy()
