"""Text embeddings for the click model: mean word vectors, mean hidden states of a run, or both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.corpus.word_vector_files import read_vectors
from meristem.evaluation.text_embeddings import embed, encode_text, reads_text
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
    if not reads_text(model):
        raise MeristemError(f"{run}: cannot embed a text by itself; use a run that was pretrained on text")

    def mean(texts: Sequence[str]) -> Floats:
        encoded = [encode_text(model, tokenizer, text) for text in texts]
        vectors: Floats = embed(model, tokenizer, encoded).double().cpu().numpy()
        return vectors

    return mean
