"""Readers for pretrained word vectors in word2vec (text or binary) and GloVe format."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError

MAX_WORD_BYTES = 1000
MAX_LINE_CHARS = 1 << 20
MAX_DIMENSIONS = 1 << 16

Vector = NDArray[np.float32]


def read_vectors(path: Path) -> Iterator[tuple[str, Vector]]:
    """(word, vector) pairs of a word2vec file (text or binary) or a GloVe text file."""
    if not path.is_file():
        raise MeristemError(f"{path}: no file of word vectors here")
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    header = first.split()
    has_header = len(header) == 2 and all(part.isdigit() for part in header)
    if has_header and _is_binary(path, len(first)):
        yield from _read_binary(path, len(first), int(header[0]), int(header[1]))
    else:
        yield from _read_text(path, skip=has_header)


def _is_binary(path: Path, start: int) -> bool:
    with path.open("rb") as file:
        file.seek(start)
        sample = file.read(4096)
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(sample) - 4
    return b"\0" in sample


def _read_binary(path: Path, start: int, num_words: int, dimensions: int) -> Iterator[tuple[str, Vector]]:
    size = 4 * dimensions
    if not 0 < dimensions <= MAX_DIMENSIONS:
        raise MeristemError(f"{path}: its header gives {dimensions:,} dimensions; expected 1 to {MAX_DIMENSIONS:,}")
    with path.open("rb") as file:
        file.seek(start)
        for count in range(num_words):
            word = bytearray()
            while (byte := file.read(1)) not in (b" ", b""):
                word += byte
                if len(word) > MAX_WORD_BYTES:
                    raise MeristemError(f"{path}: word {count + 1} has no end; is it a word2vec file?")
            raw = file.read(size)
            if len(raw) < size:
                raise MeristemError(f"{path}: ends inside word {count + 1} of {num_words:,}; the file is truncated")
            vector = np.frombuffer(raw, "<f4").astype(np.float32)
            if not np.isfinite(vector).all():
                raise MeristemError(f"{path}: word {count + 1} of {num_words:,} has a number that is not finite")
            yield word.decode("utf-8", "replace").lstrip("\n"), vector


def _read_text(path: Path, *, skip: bool) -> Iterator[tuple[str, Vector]]:
    dimensions = None
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_CHARS), ""), 1):
            if skip and number == 1:
                continue
            if len(line) == MAX_LINE_CHARS:
                raise MeristemError(
                    f"{path}:{number}: more than {MAX_LINE_CHARS:,} characters; are these word vectors?"
                )
            parts = line.rstrip().split(" ")
            dimensions = dimensions or len(parts) - 1
            word, numbers = " ".join(parts[:-dimensions]), parts[-dimensions:]
            try:
                with np.errstate(over="ignore"):  # overflow is reported below
                    vector = np.array(numbers, dtype=np.float32)
            except ValueError:
                raise MeristemError(f"{path}:{number}: expected a word and {dimensions} numbers") from None
            if not word or len(vector) != dimensions:
                raise MeristemError(
                    f"{path}:{number}: expected a word and {dimensions} numbers, found {len(parts) - 1}"
                )
            if not np.isfinite(vector).all():
                raise MeristemError(f"{path}:{number}: {word!r} has a number that is not finite")
            yield word, vector
