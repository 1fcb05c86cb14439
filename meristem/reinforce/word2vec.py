"""word2vec vectors trained on a corpus with gensim; the same text and settings always give the same vectors."""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from meristem.checkpoint import disk
from meristem.config.errors import MeristemError
from meristem.config.setting_names import with_hashed_names
from meristem.config.settings import Settings
from meristem.corpus.paired_text import split_pair
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.processed_corpus import processed_corpus_dir
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import corpus_digest
from meristem.reinforce.reward_base import RewardContext
from meristem.reinforce.word_ngrams import normalized_words
from meristem.reinforce.word_vectors import Matrix, WordVectors
from meristem.utils import untrusted_files

NO_GENSIM = 'learning word vectors needs gensim: pip install "meristem-lm[vectors]"'
MIN_VOCAB_SIZE = 10
"""Fewest distinct words for training."""
MAX_SENTENCE_WORDS = 10_000
"""Longest sentence that gensim accepts, in words."""


class Word2VecSettings(Settings):
    """How word vectors are trained (skip-gram with negative sampling, Mikolov et al. 2013)."""

    renamed: ClassVar[dict[str, str]] = {"most": "max_words", "rarest": "min_count", "width": "vector_size"}

    vector_size: int = Field(100, ge=2, le=2000)
    """Dimensions of a vector."""
    window: int = Field(5, ge=1, le=100)
    """Context words on either side."""
    epochs: int = Field(5, ge=1)
    """Passes over the text."""
    min_count: int = Field(2, ge=1)
    """Minimum count of a word to get a vector."""
    max_words: int = Field(5_000_000, ge=1)
    """Words of the corpus that are read, at most."""
    seed: int = Field(0, ge=0)
    """Random seed."""


def load_or_train_vectors(
    corpus: CorpusSettings, settings: Word2VecSettings, context: RewardContext, *, prefix_fallback: bool
) -> WordVectors:
    """The vectors of a corpus's training text, from the cache in the context's folder or trained now."""
    cache_key = json.dumps([with_hashed_names(settings, settings.model_dump()), corpus_digest(corpus)], sort_keys=True)
    path = context.folder / "vectors" / f"{hashlib.sha256(cache_key.encode()).hexdigest()[:20]}.safetensors"
    trained = _read_cached(path)
    if trained is None:
        context.say(f"meaning: training vectors of {settings.vector_size} dimensions on {corpus.source}")
        trained = _train(corpus, settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        vocabulary, vectors, counts = trained
        words = untrusted_files.to_json(vocabulary, ascii_only=True)
        disk.atomic_write(path, [save({"vectors": vectors, "counts": counts}, {"words": words})])
    vocabulary, vectors, counts = trained
    return WordVectors(vocabulary, vectors, counts / counts.sum(), prefix_fallback=prefix_fallback)


TrainedVectors = tuple[list[str], Matrix, NDArray[np.int64]]
"""Words, their vectors, and their counts."""


def _read_cached(path: Path) -> TrainedVectors | None:
    """Cached vectors; None where the file is missing or damaged."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            vocabulary = json.loads(file.metadata()["words"])
            return vocabulary, file.get_tensor("vectors"), file.get_tensor("counts")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None


def check_corpus(corpus: CorpusSettings, settings: Word2VecSettings) -> None:
    """Refuse a corpus with too few words for training; reads only as much of it as needed."""
    if find_spec("gensim") is None:
        raise MeristemError(NO_GENSIM)
    counts: Counter[str] = Counter()
    frequent_words: set[str] = set()
    for document in CorpusReader(corpus, folder=processed_corpus_dir(corpus)):
        if document.split != "train":
            continue
        for word in normalized_words(split_pair(document.text).target):
            counts[word] += 1
            if counts[word] >= settings.min_count:
                frequent_words.add(word)
        if len(frequent_words) >= MIN_VOCAB_SIZE:
            return
    raise _too_few_words(corpus, settings, len(frequent_words))


def _too_few_words(corpus: CorpusSettings, settings: Word2VecSettings, vocab_size: int) -> MeristemError:
    return MeristemError(
        f"meaning: {corpus.source} has {vocab_size} words that occur at least {settings.min_count} times, too few to "
        "train vectors on; give more text, or a file of vectors: vectors=glove.txt"
    )


def _train(corpus: CorpusSettings, settings: Word2VecSettings) -> TrainedVectors:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise MeristemError(NO_GENSIM) from None
    sentences = _training_sentences(corpus, settings.max_words)
    model: Any = Word2Vec(
        vector_size=settings.vector_size, window=settings.window, min_count=settings.min_count, seed=settings.seed + 1,
        sg=1, negative=5, workers=1, hashfxn=_stable_hash, epochs=settings.epochs,
    )  # fmt: skip
    model.build_vocab(sentences)
    if len(model.wv) < MIN_VOCAB_SIZE:
        raise _too_few_words(corpus, settings, len(model.wv))
    model.train(sentences, total_examples=model.corpus_count, epochs=settings.epochs)
    vocabulary = list(model.wv.index_to_key)
    counts = np.array([model.wv.get_vecattr(name, "count") for name in vocabulary], np.int64)
    return vocabulary, np.ascontiguousarray(model.wv.vectors, np.float32), counts


def _training_sentences(corpus: CorpusSettings, max_words: int) -> list[list[str]]:
    """The words of the training documents, up to `max_words`."""
    sentences: list[list[str]] = []
    num_words = 0
    for document in CorpusReader(corpus, folder=processed_corpus_dir(corpus)):
        if document.split != "train":
            continue
        document_words = [sys.intern(word) for word in normalized_words(split_pair(document.text).target)]
        sentences += [
            document_words[start : start + MAX_SENTENCE_WORDS]
            for start in range(0, len(document_words), MAX_SENTENCE_WORDS)
        ]
        num_words += len(document_words)
        if num_words >= max_words:
            break
    return sentences


def _stable_hash(word: str) -> int:
    """A hash that is the same in every process, unlike Python's own."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))
