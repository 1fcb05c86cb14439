"""Word vectors learned from a corpus with gensim: the same text and settings always give the same vectors."""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from meristem import bounded
from meristem.checkpoint import disk
from meristem.corpus.reading import Reading
from meristem.corpus.refining import home
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import sides
from meristem.corpus.sources import digest
from meristem.errors import MeristemError
from meristem.reinforce.vectors import Matrix, Vectors
from meristem.reinforce.words import words
from meristem.settings import Settings

NO_GENSIM = 'learning word vectors needs gensim: pip install "meristem[vectors]"'
FEWEST = 10
"""Different words without which there is nothing to learn."""
SENTENCE = 10_000
"""Words that gensim reads at once at the most."""


class LearningSettings(Settings):
    """How word vectors are learned (skip-gram with negative samples, Mikolov et al. 2013)."""

    width: int = Field(100, ge=2, le=2000)
    """Numbers of a vector."""
    window: int = Field(5, ge=1, le=100)
    """Words on either side that a word is learned from."""
    epochs: int = Field(5, ge=1)
    """Passes over the text."""
    rarest: int = Field(2, ge=1)
    """How often a word must stand there to have a vector."""
    most: int = Field(5_000_000, ge=1)
    """Words of text that are read."""
    seed: int = Field(0, ge=0)
    """Of all that is drawn."""


def learned(
    corpus: CorpusSettings, settings: LearningSettings, folder: Path, say: Callable[[str], None], *, alike: bool
) -> Vectors:
    """The vectors of a corpus's training text: found in the folder, or learned now and kept there."""
    whole = json.dumps([settings.model_dump(), digest(corpus)], sort_keys=True)
    path = folder / "vectors" / f"{hashlib.sha256(whole.encode()).hexdigest()[:20]}.safetensors"
    found = _kept(path)
    if found is None:
        say(f"meaning: learning vectors of {settings.width} numbers from {corpus.source}")
        found = _learn(corpus, settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        names, vectors, counts = found
        words = bounded.to_json(names, ascii_only=True)
        disk.replace(path, [save({"vectors": vectors, "counts": counts}, {"words": words})])
    names, vectors, counts = found
    return Vectors(names, vectors, counts / counts.sum(), alike=alike)


Found = tuple[list[str], Matrix, NDArray[np.int64]]
"""Words, their vectors, and how often each stood there."""


def _kept(path: Path) -> Found | None:
    """What was learned before; nothing where it is not there or no longer whole."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            names = json.loads(file.metadata()["words"])
            return names, file.get_tensor("vectors"), file.get_tensor("counts")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None


def check_corpus(corpus: CorpusSettings, settings: LearningSettings) -> None:
    """Refuse a corpus with too few words to learn vectors from, as soon as enough of it is read to know."""
    if find_spec("gensim") is None:
        raise MeristemError(NO_GENSIM)
    counts: Counter[str] = Counter()
    enough: set[str] = set()
    for document in Reading(corpus, folder=home(corpus)):
        if document.split != "train":
            continue
        for word in words(sides(document.text).told):
            counts[word] += 1
            if counts[word] >= settings.rarest:
                enough.add(word)
        if len(enough) >= FEWEST:
            return
    raise _too_few(corpus, settings, len(enough))


def _too_few(corpus: CorpusSettings, settings: LearningSettings, number: int) -> MeristemError:
    return MeristemError(
        f"meaning: {corpus.source} has {number} words that stand there {settings.rarest} times, too few to "
        "learn vectors from; give more text, or a file of vectors: vectors=glove.txt"
    )


def _learn(corpus: CorpusSettings, settings: LearningSettings) -> Found:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise MeristemError(NO_GENSIM) from None
    text = _texts(corpus, settings.most)
    model: Any = Word2Vec(
        vector_size=settings.width, window=settings.window, min_count=settings.rarest, seed=settings.seed + 1,
        sg=1, negative=5, workers=1, hashfxn=_number, epochs=settings.epochs,
    )  # fmt: skip
    model.build_vocab(text)
    if len(model.wv) < FEWEST:
        raise _too_few(corpus, settings, len(model.wv))
    model.train(text, total_examples=model.corpus_count, epochs=settings.epochs)
    names = list(model.wv.index_to_key)
    counts = np.array([model.wv.get_vecattr(name, "count") for name in names], np.int64)
    return names, np.ascontiguousarray(model.wv.vectors, np.float32), counts


def _texts(corpus: CorpusSettings, most: int) -> list[list[str]]:
    """The words of every training document, until there are enough."""
    out: list[list[str]] = []
    read = 0
    for document in Reading(corpus, folder=home(corpus)):
        if document.split != "train":
            continue
        text = [sys.intern(word) for word in words(sides(document.text).told)]
        out += [text[at : at + SENTENCE] for at in range(0, len(text), SENTENCE)]
        read += len(text)
        if read >= most:
            break
    return out


def _number(word: str) -> int:
    """A hash that every process has alike, which Python's own is not."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))
