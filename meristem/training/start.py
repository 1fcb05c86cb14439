"""Where a run's weights begin: another run's, or only its embeddings (SPEC B11)."""

from __future__ import annotations

import torch

from meristem.batch import Model
from meristem.checkpoint import transfer
from meristem.checkpoint.revive import Revived
from meristem.settings import MeristemError
from meristem.tokenizers.tokenizer import Tokenizer


def from_run(model: Model, tokenizer: Tokenizer, other: Revived, *, embeddings_only: bool) -> str:
    """Take another run's weights, rows of the vocabulary following their tokens; what was taken, in words."""
    place = other.run.path
    if tokenizer.digest == other.tokenizer.digest and not embeddings_only:
        return f"from {place}: {transfer.into(model, other.learner.model.state_dict()).summary()}"
    known = _copy_shared(model, tokenizer, other)
    shared = f"embeddings of {known:,} of {tokenizer.size:,} tokens, known to both, were copied"
    if embeddings_only:
        return f"from {place}: {shared}; everything else is fresh"
    words = _rows_are_tokens(model, tokenizer.size)
    taken = transfer.into(model, other.learner.model.state_dict(), only=lambda name: name not in words)
    return f"from {place}: {taken.summary()}\n{shared}"


def _rows_are_tokens(model: Model, size: int) -> set[str]:
    """Names of the tensors with a row for each token: the embedding, the ties to it, and biases over the vocabulary."""
    embedding = model.backbone.embedding().weight
    named = model.state_dict(keep_vars=True).items()
    return {
        name
        for name, tensor in named
        if tensor is embedding or (name.startswith("heads.") and tensor.shape[:1] == (size,))
    }


def _copy_shared(model: Model, tokenizer: Tokenizer, other: Revived) -> int:
    mine, theirs = model.backbone.embedding().weight, other.learner.model.backbone.embedding().weight
    if mine.shape[1] != theirs.shape[1]:
        raise MeristemError(
            f"from: embeddings are {theirs.shape[1]} wide in {other.run.path} and {mine.shape[1]} here; "
            f"set model.width={theirs.shape[1]}"
        )
    pairs = [
        (number, found)
        for number in range(tokenizer.size)
        if (found := other.tokenizer.id(tokenizer.token(number))) is not None
    ]
    if not pairs:
        raise MeristemError(f"from: {other.run.path} shares no token with this tokenizer")
    here, there = torch.tensor(pairs).unbind(1)
    with torch.no_grad():
        mine[here] = theirs[there].to(mine.dtype)
    return len(pairs)
