"""Initializing embeddings from word vectors: word2vec files (text or binary) and GloVe text files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from meristem.config.errors import MeristemError
from meristem.corpus.word_vector_files import Vector, read_vectors
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import generator

BATCH_WORDS = 4096
_WORD_PATTERN = re.compile(r"\w+|[^\w\s]")


def init_from_word_vectors(model: Model, tokenizer: Tokenizer, path: Path, texts: Iterable[str] = ()) -> str:
    """Set each token to the mean vector of the words it is part of, weighted by their frequency in `texts`.

    Initializes a task's own word embeddings if it has them (task.word_embedding_size), else the backbone's. Returns a
    summary for the log.
    """
    embedding_weight = _target_embedding(model).weight
    usage, word_count = WordUsage.from_texts(tokenizer, texts), 0
    sums: _VectorSums | None = None
    vectors = read_vectors(path)
    while batch := list(islice(vectors, BATCH_WORDS)):
        sums = sums or _VectorSums.zeros(len(embedding_weight), len(batch[0][1]))
        sums.add(tokenizer, batch, usage.weights([word for word, _ in batch], word_count + 1))
        word_count += len(batch)
    if sums is None:
        raise MeristemError(f"from.word_vectors: {path} holds no words")
    is_covered, means = sums.means()
    if not is_covered.any():
        raise MeristemError(
            f"from.word_vectors: none of the {word_count:,} words in {path} can be encoded with this tokenizer's tokens"
        )
    means = _project(means[is_covered], embedding_weight.shape[1])
    with torch.no_grad():  # with the standard deviation of the embeddings they replace
        scaled = (means - means.mean()) / means.std().clamp_min(1e-12) * embedding_weight.std().cpu()
        embedding_weight[is_covered.to(embedding_weight.device)] = scaled.to(embedding_weight)
    return (
        f"word vectors: {word_count:,} words of {sums.width} dimensions in {path.name} initialized "
        f"{int(is_covered.sum()):,} of {tokenizer.vocab_size:,} token embeddings{usage.coverage_phrase(is_covered)}"
    )


def _target_embedding(model: Model) -> nn.Embedding:
    """The embedding to initialize; raises for a backbone with a character CNN, which has none."""
    if isinstance(word_embedding := dict(model.heads.items()).get("word_embedding"), nn.Embedding):
        return word_embedding
    if "characters" in model.backbone.capabilities:
        families = [
            name for name, family_class in MODEL_FAMILIES.items() if "characters" not in family_class.capabilities
        ]
        raise MeristemError(
            f"from.word_vectors: {type(model.backbone).__name__} reads words by their characters and has no input "
            f"embedding of words; families with word embeddings: {', '.join(families)}; or give the task embeddings "
            "of its own: task.network=recurrent task.word_embedding_size=100"
        )
    return model.backbone.embedding()


@dataclass(frozen=True, kw_only=True)
class WordUsage:
    """Counts of words and tokens in the training texts; all zero without texts."""

    words: Counter[str]
    tokens: NDArray[np.int64]

    @classmethod
    def from_texts(cls, tokenizer: Tokenizer, texts: Iterable[str]) -> WordUsage:
        """Count them; a capitalized word also counts in lower case, since many vector files have only that."""
        text_list = list(texts)
        words = Counter(word for text in text_list for word in _WORD_PATTERN.findall(text))
        for word, count in list(words.items()):
            if word != word.lower():
                words[word.lower()] += count
        tokens = np.zeros(tokenizer.vocab_size, np.int64)
        for ids in tokenizer.encode_ids(text_list):
            np.add.at(tokens, ids, 1)
        return cls(words=words, tokens=tokens)

    def weights(self, words: Sequence[str], first_rank: int) -> Vector:
        """Weight of each word: its count plus 1/rank, since files list frequent words first (Zipf's law)."""
        ranks = np.arange(first_rank, first_rank + len(words))
        return (np.array([self.words[word] for word in words]) + 1 / ranks).astype(np.float32)

    def coverage_phrase(self, is_covered: Tensor) -> str:
        """Share of tokens in the training text that were initialized, as the end of a sentence."""
        if not self.tokens.any():
            return ""
        share = self.tokens[is_covered.numpy()[: len(self.tokens)]].sum() / self.tokens.sum()
        return f", which are {share:.1%} of the tokens in the training text"


@dataclass(kw_only=True)
class _VectorSums:
    """Weighted sums of vectors for each token: of words as written in the file, and of the same words capitalized."""

    exact: tuple[Tensor, Tensor]
    capitalized: tuple[Tensor, Tensor]
    width: int

    @classmethod
    def zeros(cls, tokens: int, width: int) -> _VectorSums:
        pairs = [(torch.zeros(tokens, width), torch.zeros(tokens)) for _ in range(2)]
        return cls(exact=pairs[0], capitalized=pairs[1], width=width)

    def add(self, tokenizer: Tokenizer, batch: Sequence[tuple[str, Vector]], weights: Vector) -> None:
        """Add each word's vector to its tokens, as encoded at the start of a text and after a space."""
        words = [word for word, _ in batch]
        vectors = torch.from_numpy(np.stack([vector for _, vector in batch]))
        for (sums, weight_sums), forms in (
            (self.exact, words),
            (self.capitalized, [word.capitalize() for word in words]),
        ):
            word_index, token_id = _word_pieces(tokenizer, forms)
            weight = torch.from_numpy(weights)[word_index]
            sums.index_add_(0, token_id, vectors[word_index] * weight[:, None])
            weight_sums.index_add_(0, token_id, weight)

    def means(self) -> tuple[Tensor, Tensor]:
        """Which tokens are covered [tokens], and means [tokens, width]; capitalized forms only as a fallback."""
        (sums, weight_sums), (capital_sums, capital_weights) = self.exact, self.capitalized
        capital_only = (weight_sums == 0) & (capital_weights > 0)
        sums = torch.where(capital_only[:, None], capital_sums, sums)
        weight_sums = torch.where(capital_only, capital_weights, weight_sums)
        return weight_sums > 0, sums / weight_sums.clamp_min(1e-12)[:, None]


def _word_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Index of the word and id of the token of every (word, token) pair, each pair once."""
    encoded = tokenizer.encode_ids([*words, *(f" {word}" for word in words)])
    word_index = np.repeat(np.tile(np.arange(len(words)), 2), [len(ids) for ids in encoded])
    token_id = np.concatenate([np.zeros(0, np.int64), *encoded]).astype(np.int64)
    is_regular = ~tokenizer.special_mask[token_id]
    pairs = np.unique(np.stack([word_index[is_regular], token_id[is_regular]]), axis=1)
    return torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])


def _project(vectors: Tensor, size: int) -> Tensor:
    """Map vectors to width `size` by a fixed random projection, which roughly preserves distances."""
    vector_size = vectors.shape[1]
    if vector_size == size:
        return vectors
    random_matrix = torch.from_numpy(
        generator(0, "vectors", vector_size, size).standard_normal((max(vector_size, size),) * 2)
    )
    projection: Tensor = torch.linalg.qr(random_matrix)[0][:vector_size, :size]
    return vectors @ projection.to(vectors.dtype)
