"""Texts as vectors that somebody else learned: the mean of their words' vectors, of a run's states, or both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from meristem.checkpoint.revive import revive
from meristem.corpus.vectors import read_vectors
from meristem.errors import MeristemError
from meristem.generation.way import reading_way
from meristem.reinforce.clicks.features import Dense, words
from meristem.reinforce.clicks.matrix import Floats


def vectors_of(vectors: str | None, embed: str | None, texts: Sequence[str] = ()) -> Dense | None:
    """Whatever the settings name, side by side; nothing where they name none. Some of `texts` must be known words."""
    parts = [make(name) for make, name in ((_words, vectors), (_states, embed)) if name is not None]
    if not parts:
        return None
    if vectors is not None and texts and not parts[0](texts).any():
        raise MeristemError(f"{vectors}: these vectors know none of the table's words; are they of another language?")
    return lambda texts: np.hstack([part(texts) for part in parts])


def _words(file: str) -> Dense:
    """The mean of a text's words in a file of vectors; nothing where it knows none of them."""
    known = dict(read_vectors(Path(file).expanduser()))
    if not known:
        raise MeristemError(f"{file}: no vectors in this file")
    nothing = np.zeros_like(next(iter(known.values())))

    def mean(texts: Sequence[str]) -> Floats:
        found = [[known[word] for word in words(text) if word in known] or [nothing] for text in texts]
        return np.stack([np.mean(some, axis=0, dtype=np.float64) for some in found])

    return mean


def _states(run: str) -> Dense:
    """The mean state of a causal or masked run over a text."""
    revived = revive(Path(run).expanduser())
    model, tokenizer = revived.learner.model, revived.tokenizer
    way = reading_way(model)
    if way == "source" or "characters" in model.backbone.can:
        raise MeristemError(f"{run}: reads no text by itself, or by its letters; embed with a causal or a masked run")
    most = revived.recipe.model.length
    frame = (tokenizer.start, tokenizer.end) if way != "causal" else (None, None)

    @torch.no_grad()
    def mean(texts: Sequence[str]) -> Floats:
        rows = []
        for text in texts:
            ids = [frame[0], *tokenizer.encode(text).ids.tolist(), frame[1]]
            tokens = [one for one in ids if one is not None][:most] or [tokenizer.end or 0]
            reads = {"causal": True} if way == "causal" else {}
            states = model.backbone(tokens=torch.tensor([tokens], device=model.device), **reads).last[0]
            rows.append(states.mean(0).double().cpu().numpy())
        return np.stack(rows)

    return mean
