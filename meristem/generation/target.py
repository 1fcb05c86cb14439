"""Log-probability of a target given its source, for encoder-decoders: Σ log p(y_t | y_<t, source), the end included.

The source is a text or, for captioners, an image. A denoising model (BART, T5) also scores a text alone: as what it
writes in place of a single mask or sentinel that stands for the whole text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from meristem.batch import Model
from meristem.errors import MeristemError
from meristem.generation.framed import mask_of
from meristem.generation.given import Given, Prompt, source_inputs, start_of, together
from meristem.generation.token_scores import TokenScores, length_batches, token_scores
from meristem.generation.way import DENOISING, vocabulary_head
from meristem.store.encode import separator_of
from meristem.store.rows import ended
from meristem.store.store import Ints
from meristem.tokenizers.roles import MASK
from meristem.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Target:
    """A target, and what its decoder and encoder are given."""

    start: Given
    ids: Ints
    """The tokens that are predicted."""


def target_of(model: Model, tokenizer: Tokenizer, source: Prompt, text: str, *, end: bool = True) -> Target:
    """A source and its target as training has them; without `end` only the target's own tokens are predicted."""
    read = source_inputs(model, tokenizer, source, empty=True)
    ids, begin = tokenizer.encode(text).ids.astype(np.int64), start_of(model, tokenizer)
    before, after = _frame(model, tokenizer, begin)
    if "sentinels" in model.source_kinds and isinstance(source, str) and source.count(MASK) == 1:
        begin = [*begin, tokenizer.sentinels[0]]  # what is written stands in place of the one gap
    room = model.backbone.length + 1 - len(begin) - len(before) - (len(after) if end else 0)
    if len(ids) > room:
        raise MeristemError(f"a target has {len(ids)} tokens, and this model writes {room}")
    if not end:
        return Target(Given(prompt=[*begin, *before], inputs=read), ids)
    return Target(Given(prompt=begin, inputs=read), np.concatenate([before, ids, after]).astype(np.int64))


def infilling_of(model: Model, tokenizer: Tokenizer, ids: Ints, since: int = 0) -> Target:
    """A text as what a denoising model writes in place of one gap that begins at `since` and reaches to its end.

    BART's decoder writes the tokens before the gap again, so it is given them; T5's begins with the gap's sentinel.
    """
    begin, sentinels = start_of(model, tokenizer), "sentinels" in model.source_kinds
    given = [tokenizer.sentinels[0]] if sentinels else ids[:since].tolist()
    room = model.backbone.length + 1 - len(begin) - len(given)
    if len(ids) - since > room:
        raise MeristemError(f"a text has {len(ids)} tokens, and this model writes {room + since} at once; cut it")
    gap = tokenizer.sentinels[0] if sentinels else mask_of(tokenizer)
    source = ended(np.append(ids[:since], gap), tokenizer, model.backbone.length)
    return Target(Given(prompt=[*begin, *given], inputs={"source": torch.from_numpy(source)}), ids[since:])


def _frame(model: Model, tokenizer: Tokenizer, begin: list[int]) -> tuple[list[int], list[int]]:
    """What a target has before and after it: the tokenizer's frame without what it begins after, or its end alone."""
    if tokenizer.frame is None or model.source_kinds & DENOISING:
        return [], [separator_of(tokenizer)]
    before, after = (part.tolist() for part in tokenizer.frame)
    return [] if before and begin[-len(before) :] == before else before, after


def target_scores(model: Model, targets: Sequence[Target]) -> list[TokenScores]:
    """What the model says of each target's tokens, rows of like length read together."""
    out = [TokenScores.zeros(len(one.ids)) for one in targets]
    sizes = [one.start.size + len(one.ids) if len(one.ids) else 0 for one in targets]
    for batch in length_batches(sizes):
        _read(model, [targets[place] for place in batch], [out[place] for place in batch])
    return out


@torch.inference_mode()
def _read(model: Model, targets: Sequence[Target], out: Sequence[TokenScores]) -> None:
    """One pass: every target behind its beginning, each token predicted at the one before it."""
    starts = [
        Given(prompt=[*one.start.prompt, *one.ids[:-1].tolist()], inputs=one.start.inputs) for one in targets
    ]
    tokens, _, inputs = together(starts, model.device)
    hidden = model.backbone(tokens=tokens, **inputs)
    sizes = [len(one.ids) for one in targets]
    at = [
        row * tokens.shape[1] + len(one.start.prompt) - 1 + torch.arange(len(one.ids))
        for row, one in enumerate(targets)
    ]
    wanted = torch.from_numpy(np.concatenate([one.ids for one in targets])).to(model.device)
    states = hidden.at(torch.cat(at).to(model.device))
    scores = token_scores(vocabulary_head(model, "source"), states, wanted, sizes)
    for one, (logprobs, best) in zip(out, scores, strict=True):
        one.put(0, logprobs, best)
