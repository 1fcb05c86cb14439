"""Words with their vectors, as word2vec (text or binary) and GloVe write them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError

LONGEST_WORD = 1000
LONGEST_LINE = 1 << 20
WIDEST = 1 << 16

Vector = NDArray[np.float32]


def read_vectors(path: Path) -> Iterator[tuple[str, Vector]]:
    """Words and vectors of a word2vec file (text or binary) or a GloVe text file."""
    if not path.is_file():
        raise MeristemError(f"{path}: no file of word vectors is there")
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
    if not 0 < width <= WIDEST:
        raise MeristemError(f"{path}: vectors of {width:,} numbers are none; at most {WIDEST:,} are read")
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
        for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), ""), 1):
            if skip and number == 1:
                continue
            if len(line) == LONGEST_LINE:
                raise MeristemError(f"{path}:{number}: more than {LONGEST_LINE:,} characters; is it the file?")
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
