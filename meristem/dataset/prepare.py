"""From a corpus to a tokenized dataset, once: tokenizers and datasets are cached under a key of their inputs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pydantic_core import to_json
from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.config.setting_names import with_hashed_names
from meristem.corpus.corpus_command import ReadProgressBar
from meristem.corpus.corpus_parts import folder_lock
from meristem.corpus.document_cache import DocumentCache
from meristem.corpus.paired_text import IMAGE_SEPARATOR, tokenizer_texts
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.processed_corpus import cache_dir as cache_dir
from meristem.corpus.processed_corpus import load_history, processed_corpus_dir
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import corpus_digest
from meristem.corpus.split import MAX_QUOTA_DOCUMENTS
from meristem.dataset.build import build_dataset
from meristem.dataset.manifest import manifest_name
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.unknown_tokens import token_summary
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer
from meristem.utils.system_errors import name_file_in_errors

CACHE_KEY_PATTERN = re.compile(r"[0-9a-f]{20}(@\d+-[0-9a-f]{8})?")


def _hash_key(*parts: object) -> str:
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True)
class PreparedDataset:
    """A dataset and its cache key; for a growing dataset KEY@STATE, where STATE is one of the states it has had."""

    dataset: TokenDataset
    cache_key: str


@dataclass(frozen=True, kw_only=True)
class CorpusVersion:
    """Identity of a corpus: a key that stays the same while files are only added, and the state it has grown to."""

    key: str
    state: str = ""
    folder: Path | None = None
    """Where the processed corpus is cached; None if it is read without processing."""


def _corpus_version(corpus: CorpusSettings, console: Console) -> CorpusVersion:
    corpus = corpus.without_canaries  # planted after the documents are read
    folder = processed_corpus_dir(corpus)
    if folder is None:
        return CorpusVersion(key=corpus_digest(corpus))
    history, notes = load_history(corpus, folder)
    _print_notes(notes, console)
    return CorpusVersion(
        key=_hash_key(folder.name, history.origin, corpus.validation, corpus.test), state=history.state, folder=folder
    )


def _print_notes(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(f"  {note}", highlight=False, markup=False, soft_wrap=True)


def prepare_tokenizer(
    settings: TokenizerSettings, corpora_settings: Sequence[CorpusSettings], console: Console
) -> Tokenizer:
    """The tokenizer a recipe asks for: loaded from its path, from the cache, or trained on a sample of the text."""
    if settings.path is not None:
        return Tokenizer.load(Path(settings.path), lowercase=settings.lowercase or None)
    versions = [_corpus_version(corpus, console) for corpus in corpora_settings]
    hashed_settings = to_json(with_hashed_names(settings, settings.model_dump())).decode()
    key = _hash_key("tokenizer", hashed_settings, *(version.key for version in versions))
    tokenizer_path = cache_dir() / "tokenizers" / key / "tokenizer.json"
    states = "\n".join(version.state for version in versions if version.state)
    cached = _cached_tokenizer(tokenizer_path, states, console)
    if cached is not None:
        return cached
    with folder_lock(tokenizer_path.parent, "training this tokenizer") as waited:
        cached = _cached_tokenizer(tokenizer_path, states, console) if waited else None
        return cached or _train_tokenizer(settings, corpora_settings, versions, tokenizer_path, console)


def _cached_tokenizer(file: Path, states: str, console: Console) -> Tokenizer | None:
    """The tokenizer of an earlier run; None if there is none or it is damaged."""
    if not file.exists():
        return None
    try:
        tokenizer = Tokenizer.load(file)
        trained_on = (file.parent / "states").read_text(encoding="utf-8", errors="replace") if states else ""
    except (MeristemError, OSError):
        console.print(f"{file}: damaged; training the tokenizer again", highlight=False, markup=False, soft_wrap=True)
        return None
    if trained_on != states:
        console.print("Using the tokenizer that was trained before the new files were added")
    return tokenizer


def _train_tokenizer(
    settings: TokenizerSettings,
    corpora: Sequence[CorpusSettings],
    versions: Sequence[CorpusVersion],
    file: Path,
    console: Console,
) -> Tokenizer:
    """Train a tokenizer and put it into the cache."""
    states = "\n".join(version.state for version in versions if version.state)
    size = f"{settings.vocab_size:,} tokens on up to {settings.sample_mb:g} MB of text"
    console.print(f"Training a {settings.kind} tokenizer of {size}")
    with ReadProgressBar(console, "reading") as bar:
        readings = (
            CorpusReader(  # without canaries, which would become tokens of their own
                corpus.without_canaries,
                progress=bar.show_progress,
                folder=version.folder,
                cache=DocumentCache(version.key),
                store=True,
            )
            for corpus, version in zip(corpora, versions, strict=True)
        )
        texts = (
            side
            for document in chain.from_iterable(readings)
            if document.split == "train"
            for side in tokenizer_texts(document.text)
        )
        tokenizer = train_tokenizer(settings, texts)
    if states:
        with name_file_in_errors(file.parent / "states"):
            (file.parent / "states").write_text(states, encoding="utf-8")
    tokenizer.save(file)
    return tokenizer


def prepare_dataset(
    corpus: CorpusSettings,
    tokenizer: Tokenizer,
    settings: DatasetSettings,
    *,
    keep_words: bool,
    console: Console,
    cache_key: str | None = None,
) -> PreparedDataset:
    """The dataset of a corpus: from the cache (`cache_key` asks for the exact one a run started with), or built now."""
    requested = _load_cached_dataset(cache_key)
    if requested is not None:
        return requested
    image_sizes = [settings.image_size] if corpus.side_separator == IMAGE_SEPARATOR else []
    version = _corpus_version(corpus, console)
    document_cache = DocumentCache(version.key)
    with ReadProgressBar(console, "tokenising") as bar:
        reading = CorpusReader(corpus, progress=bar.show_progress, folder=version.folder, cache=document_cache)
        corpus_key = version.key + _small_corpus_state(reading, version, console)
        canaries = [] if corpus.canaries is None else [corpus.canaries.model_dump_json()]
        dataset_key = _hash_key(
            "store", corpus_key, tokenizer.digest, settings.shard_tokens, keep_words, *image_sizes, *canaries
        )
        versioned_key = f"{dataset_key}@{version.state}" if version.state else dataset_key
        if cache_key is not None and cache_key != versioned_key:
            raise MeristemError(
                "the text has changed since this run started, and its shards are no longer in the cache: "
                "the run cannot be resumed on the same data. Use --out for a new run, or --fresh"
            )
        cached = _load_cached_dataset(versioned_key)
        if cached is not None:
            return cached
        folder = cache_dir() / "stores" / dataset_key
        dataset = build_dataset(
            reading, tokenizer, folder, settings, processes=corpus.processes, keep_words=keep_words, state=version.state
        )
        document_cache.delete()
    # nothing read: another run built the dataset
    summary = f"{reading.account.summary()}; " if reading.account.read else ""
    console.print(f"{summary}{token_summary(dataset, tokenizer)}", highlight=False, markup=False, soft_wrap=True)
    _print_notes(reading.account.warnings, console)
    return PreparedDataset(dataset=dataset, cache_key=versioned_key)


def _small_corpus_state(reading: CorpusReader, version: CorpusVersion, console: Console) -> str:
    """The state of a corpus that cannot simply grow: new documents of a small one move others to another split, and
    canaries to other places."""
    if version.folder is None:
        return ""
    processed = reading.process(version.folder, verify=False)
    _print_notes(processed.notes, console)
    can_grow = processed.num_source_documents > MAX_QUOTA_DOCUMENTS and reading.settings.canaries is None
    return "" if can_grow else version.state


def _load_cached_dataset(cache_key: str | None) -> PreparedDataset | None:
    """The dataset of a key in exactly the state it names, if it is in the cache."""
    if cache_key is None or not CACHE_KEY_PATTERN.fullmatch(cache_key):
        return None
    dataset_key, _, state = cache_key.partition("@")
    folder = cache_dir() / "stores" / dataset_key
    if not (folder / manifest_name(state)).is_file():
        return None
    return PreparedDataset(dataset=TokenDataset.open(folder, state=state), cache_key=cache_key)
