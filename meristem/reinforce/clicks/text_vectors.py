"""Text embeddings for the click model: mean word vectors, mean hidden states of a run, or both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.corpus.word_vector_files import read_vectors
from meristem.generation.head_selection import encoding_lm_kind
from meristem.reinforce.clicks.sparse_matrix import Floats
from meristem.reinforce.clicks.text_features import EmbedFn, tokenize


def text_embedder(vectors: str | None, run: str | None, texts: Sequence[str] = ()) -> EmbedFn | None:
    """The embeddings that the settings name, concatenated; None without any. Some words of `texts` must be known."""
    parts = [
        build(name) for build, name in ((_word_vector_mean, vectors), (_hidden_state_mean, run)) if name is not None
    ]
    if not parts:
        return None
    if vectors is not None and texts and not parts[0](texts).any():
        raise MeristemError(f"{vectors}: contains none of the table's words; are these vectors for another language?")
    return lambda texts: np.hstack([part(texts) for part in parts])


def _word_vector_mean(file: str) -> EmbedFn:
    """The mean of a text's word vectors from a file; zero where none of its words is known."""
    known = dict(read_vectors(Path(file).expanduser()))
    if not known:
        raise MeristemError(f"{file}: no vectors in this file")
    zero_vector = np.zeros_like(next(iter(known.values())))

    def mean(texts: Sequence[str]) -> Floats:
        vector_lists = [[known[word] for word in tokenize(text) if word in known] or [zero_vector] for text in texts]
        return np.stack([np.mean(vectors, axis=0, dtype=np.float64) for vectors in vector_lists])

    return mean


def _hidden_state_mean(run: str) -> EmbedFn:
    """The mean hidden state of a causal or masked run over a text."""
    loaded = load_run(Path(run).expanduser())
    model, tokenizer = loaded.learner.model, loaded.tokenizer
    head_kind = encoding_lm_kind(model)
    if head_kind == "source" or "characters" in model.backbone.capabilities:
        raise MeristemError(f"{run}: cannot embed a text by itself; use a causal or masked run without character input")
    max_length = loaded.recipe.model.max_length
    special_ids = (tokenizer.start, tokenizer.end) if head_kind != "causal" else (None, None)

    @torch.no_grad()
    def mean(texts: Sequence[str]) -> Floats:
        rows = []
        for text in texts:
            ids = [special_ids[0], *tokenizer.encode(text).ids.tolist(), special_ids[1]]
            tokens = [token_id for token_id in ids if token_id is not None][:max_length] or [tokenizer.end or 0]
            options = {"causal": True} if head_kind == "causal" else {}
            states = model.backbone(tokens=torch.tensor([tokens], device=model.device), **options).last_hidden_state[0]
            rows.append(states.mean(0).double().cpu().numpy())
        return np.stack(rows)

    return mean
