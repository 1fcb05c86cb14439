"""Word vectors as initial embeddings: word2vec files, text or binary, and GloVe text files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from meristem.batch import Model
from meristem.corpus.vectors import Vector, read_vectors
from meristem.errors import MeristemError
from meristem.randomness import generator
from meristem.settings import find, names
from meristem.tokenizers.tokenizer import Tokenizer

BATCH = 4096
_WORD = re.compile(r"\w+|[^\w\s]")


def from_vectors(model: Model, tokenizer: Tokenizer, path: Path, passages: Iterable[str] = ()) -> str:
    """Each token takes the mean of the words it is a piece of, weighed by their use in passages; what that covered.

    They begin a task's own embeddings where it has such (task.word_embedding_size), else the backbone's.
    """
    table = _table(model).weight
    usage, words = Usage.of(tokenizer, passages), 0
    found: _Sums | None = None
    for batch in _batches(read_vectors(path)):
        found = found or _Sums.of(len(table), len(batch[0][1]))
        found.add(tokenizer, batch, usage.weights([word for word, _ in batch], words + 1))
        words += len(batch)
    if found is None:
        raise MeristemError(f"from.vectors: {path} holds no word")
    met, means = found.means()
    if not met.any():
        raise MeristemError(f"from.vectors: none of the {words:,} words in {path} is made of this tokenizer's tokens")
    means = _project(means[met], table.shape[1])
    with torch.no_grad():  # as spread as the fresh embeddings they join
        spread = (means - means.mean()) / means.std().clamp_min(1e-12) * table.std().cpu()
        table[met.to(table.device)] = spread.to(table)
    return (
        f"word vectors: {words:,} words of {found.width} dimensions in {path.name} gave {int(met.sum()):,} of "
        f"{tokenizer.size:,} tokens their embedding{usage.covered(met)}"
    )


def _table(model: Model) -> nn.Embedding:
    """The embedding that vectors are put into; a backbone that reads words by their letters has none."""
    if isinstance(own := dict(model.heads.items()).get("word_embedding"), nn.Embedding):
        return own
    if "characters" in model.backbone.can:
        others = [name for name in names("models") if "characters" not in find("models", name).can]
        raise MeristemError(
            f"from.vectors: {type(model.backbone).__name__} reads words letter by letter, and its table of words is "
            f"only what it predicts with; families that look words up: {', '.join(others)}; or give a task embeddings "
            "of its own: task.network=recurrent task.word_embedding_size=100"
        )
    return model.backbone.embedding()


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How often words and tokens stand in training texts; nothing where no text is at hand."""

    words: Counter[str]
    tokens: NDArray[np.int64]

    @classmethod
    def of(cls, tokenizer: Tokenizer, passages: Iterable[str]) -> Usage:
        """Counted; a word in capitals is one in small letters too, since many files have only these."""
        texts = list(passages)
        words = Counter(word for text in texts for word in _WORD.findall(text))
        for word, count in list(words.items()):
            if word != word.lower():
                words[word.lower()] += count
        tokens = np.zeros(tokenizer.size, np.int64)
        for ids in tokenizer.ids_many(texts):
            np.add.at(tokens, ids, 1)
        return cls(words=words, tokens=tokens)

    def weights(self, words: Sequence[str], first: int) -> Vector:
        """Their counts, and beside these 1/rank: files list frequent words first, and so Zipf would have it."""
        ranks = np.arange(first, first + len(words))
        return (np.array([self.words[word] for word in words]) + 1 / ranks).astype(np.float32)

    def covered(self, met: Tensor) -> str:
        """The share of the running text whose tokens were met, as the end of a sentence."""
        if not self.tokens.any():
            return ""
        share = self.tokens[met.numpy()[: len(self.tokens)]].sum() / self.tokens.sum()
        return f", which are {share:.1%} of the tokens in the training text"


@dataclass(kw_only=True)
class _Sums:
    """Weighed sums of vectors for each token: of words as a file writes them, and of the same with a capital."""

    written: tuple[Tensor, Tensor]
    capital: tuple[Tensor, Tensor]
    width: int

    @classmethod
    def of(cls, tokens: int, width: int) -> _Sums:
        both = [(torch.zeros(tokens, width), torch.zeros(tokens)) for _ in range(2)]
        return cls(written=both[0], capital=both[1], width=width)

    def add(self, tokenizer: Tokenizer, batch: Sequence[tuple[str, Vector]], weights: Vector) -> None:
        """Every word's vector to its pieces, at the start of a text and after a space."""
        words = [word for word, _ in batch]
        vectors = torch.from_numpy(np.stack([vector for _, vector in batch]))
        for (sums, shares), forms in (self.written, words), (self.capital, [word.capitalize() for word in words]):
            owner, piece = _pieces(tokenizer, forms)
            share = torch.from_numpy(weights)[owner]
            sums.index_add_(0, piece, vectors[owner] * share[:, None])
            shares.index_add_(0, piece, share)

    def means(self) -> tuple[Tensor, Tensor]:
        """Which tokens were met [tokens], and their means [tokens, width]; capitals where nothing else is known."""
        (sums, shares), (others, theirs) = self.written, self.capital
        alone = (shares == 0) & (theirs > 0)
        sums, shares = torch.where(alone[:, None], others, sums), torch.where(alone, theirs, shares)
        return shares > 0, sums / shares.clamp_min(1e-12)[:, None]


def _pieces(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Which word has which piece, each pair once."""
    encoded = tokenizer.ids_many([*words, *(f" {word}" for word in words)])
    owner = np.repeat(np.tile(np.arange(len(words)), 2), [len(ids) for ids in encoded])
    piece = np.concatenate([np.zeros(0, np.int64), *encoded]).astype(np.int64)
    usual = ~tokenizer.specials[piece]
    pairs = np.unique(np.stack([owner[usual], piece[usual]]), axis=1)
    return torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])


def _batches(found: Iterator[tuple[str, Vector]]) -> Iterator[list[tuple[str, Vector]]]:
    batch: list[tuple[str, Vector]] = []
    for pair in found:
        batch.append(pair)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _project(vectors: Tensor, width: int) -> Tensor:
    """Vectors of another width enter through a fixed random projection, which keeps their distances about."""
    theirs = vectors.shape[1]
    if theirs == width:
        return vectors
    square = torch.from_numpy(generator(0, "vectors", theirs, width).standard_normal((max(theirs, width),) * 2))
    turn: Tensor = torch.linalg.qr(square)[0][:theirs, :width]
    return vectors @ turn.to(vectors.dtype)
