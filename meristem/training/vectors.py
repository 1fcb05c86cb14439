"""Word vectors as initial embeddings: word2vec files, text or binary, and GloVe text files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from meristem.batch import Model
from meristem.randomness import generator
from meristem.settings import MeristemError
from meristem.tokenizers.tokenizer import Tokenizer

LONGEST_WORD = 1000
BATCH = 4096

Vector = NDArray[np.float32]


def from_vectors(model: Model, tokenizer: Tokenizer, path: Path) -> str:
    """Each token takes the mean of the words it is a piece of; what that covered, in words."""
    table = model.backbone.embedding().weight
    sums: Tensor | None = None
    shares = torch.zeros(table.shape[0])
    words, batch = 0, list[tuple[str, Vector]]()
    for word, vector in read_vectors(path):
        if sums is None:
            sums = torch.zeros(table.shape[0], len(vector))
        batch.append((word, vector))
        words += 1
        if len(batch) == BATCH:
            _spread(tokenizer, batch, words, sums, shares)
            batch = []
    if sums is None:
        raise MeristemError(f"from.vectors: {path} holds no word")
    _spread(tokenizer, batch, words, sums, shares)
    met = shares > 0
    if not met.any():
        raise MeristemError(f"from.vectors: none of the {words:,} words in {path} is made of this tokenizer's tokens")
    means = _project(sums[met] / shares[met, None], table.shape[1])
    with torch.no_grad():  # as spread as the fresh embeddings they join
        table[met.to(table.device)] = ((means - means.mean()) / means.std().clamp_min(1e-12) * table.std().cpu()).to(
            table
        )
    return (
        f"word vectors: {words:,} words of {sums.shape[1]} dimensions in {path.name} gave {int(met.sum()):,} of "
        f"{len(met):,} tokens their embedding"
    )


def _project(vectors: Tensor, width: int) -> Tensor:
    """Vectors of another width enter through a fixed random projection, which keeps their distances about."""
    theirs = vectors.shape[1]
    if theirs == width:
        return vectors
    square = torch.from_numpy(generator(0, "vectors", theirs, width).standard_normal((max(theirs, width),) * 2))
    turn: Tensor = torch.linalg.qr(square)[0][:theirs, :width]
    return vectors @ turn.to(vectors.dtype)


def _spread(tokenizer: Tokenizer, batch: list[tuple[str, Vector]], words: int, sums: Tensor, shares: Tensor) -> None:
    """Add each word's vector to its pieces; files list frequent words first, and by Zipf rank r counts 1/r."""
    first = words - len(batch) + 1
    for rank, (ids, (_, vector)) in enumerate(
        zip(tokenizer.ids_many([word for word, _ in batch]), batch, strict=True), first
    ):
        usual = ids[~tokenizer.specials[ids]]
        at = torch.from_numpy(usual.astype(np.int64))
        share = 1.0 / rank / max(1, len(usual))
        sums.index_add_(0, at, torch.from_numpy(vector * np.float32(share)).expand(len(usual), -1))
        shares.index_add_(0, at, torch.full((len(usual),), share))


def read_vectors(path: Path) -> Iterator[tuple[str, Vector]]:
    """Words and vectors of a word2vec file (text or binary) or a GloVe text file."""
    if not path.is_file():
        raise MeristemError(f"from.vectors: no file {path}")
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    header = first.split()
    counted = len(header) == 2 and all(part.isdigit() for part in header)
    if counted and _is_binary(path, len(first)):
        yield from _binary(path, len(first), int(header[0]), int(header[1]))
    else:
        yield from _text(path, skip=counted)


def _is_binary(path: Path, start: int) -> bool:
    with path.open("rb") as file:
        file.seek(start)
        sample = file.read(4096)
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(sample) - 4
    return b"\0" in sample


def _binary(path: Path, start: int, number: int, width: int) -> Iterator[tuple[str, Vector]]:
    size = 4 * width
    with path.open("rb") as file:
        file.seek(start)
        for count in range(number):
            word = bytearray()
            while (byte := file.read(1)) not in (b" ", b""):
                word += byte
                if len(word) > LONGEST_WORD:
                    raise MeristemError(f"{path}: word {count + 1} has no end; is it a word2vec file?")
            raw = file.read(size)
            if len(raw) < size:
                raise MeristemError(f"{path}: ends inside word {count + 1} of {number:,}; the file is cut off")
            vector = np.frombuffer(raw, "<f4").astype(np.float32)
            if not np.isfinite(vector).all():
                raise MeristemError(f"{path}: word {count + 1} of {number:,} has a number that is not finite")
            yield word.decode("utf-8", "replace").lstrip("\n"), vector


def _text(path: Path, *, skip: bool) -> Iterator[tuple[str, Vector]]:
    width = None
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if skip and number == 1:
                continue
            parts = line.rstrip().split(" ")
            width = width or len(parts) - 1
            word, numbers = " ".join(parts[:-width]), parts[-width:]
            try:
                with np.errstate(over="ignore"):  # what overflows is told below
                    vector = np.array(numbers, dtype=np.float32)
            except ValueError:
                raise MeristemError(f"{path}:{number}: expected a word and {width} numbers") from None
            if not word or len(vector) != width:
                raise MeristemError(f"{path}:{number}: expected a word and {width} numbers, found {len(parts) - 1}")
            if not np.isfinite(vector).all():
                raise MeristemError(f"{path}:{number}: {word!r} has a number that is not finite")
            yield word, vector
