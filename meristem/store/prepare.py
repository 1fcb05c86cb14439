"""From a corpus to shards, once: tokenizers and stores are kept in a cache keyed by what they were made from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from rich.console import Console

from meristem.corpus.command import Bar
from meristem.corpus.reading import Reading
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PICTURE
from meristem.corpus.sides import words as both_sides
from meristem.corpus.sources import digest
from meristem.settings import MeristemError
from meristem.store.build import build
from meristem.store.manifest import FINISHED
from meristem.store.settings import StoreSettings
from meristem.store.store import Store
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train


def cache() -> Path:
    """Where shards and tokenizers live: $MERISTEM_CACHE, or the user's cache folder."""
    given = os.environ.get("MERISTEM_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else home / "meristem"


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A store, and the key that finds it again."""

    store: Store
    key: str


def tokenizer_for(settings: TokenizerSettings, corpora: Sequence[CorpusSettings], console: Console) -> Tokenizer:
    """The tokenizer a recipe asks for: loaded from its path, found in the cache, or trained on a sample of the text."""
    if settings.path is not None:
        return Tokenizer.load(Path(settings.path), lowercase=settings.lowercase or None)
    key = _key("tokenizer", settings.model_dump_json(), *(digest(corpus) for corpus in corpora))
    file = cache() / "tokenizers" / key / "tokenizer.json"
    if file.is_file():
        return Tokenizer.load(file)
    console.print(
        f"Training a {settings.kind} tokenizer of {settings.size:,} tokens on up to {settings.sample_mb:g} MB of text"
    )
    with Bar(console, "reading") as bar:
        texts = (
            text
            for document in chain.from_iterable(Reading(corpus, progress=bar.show) for corpus in corpora)
            if document.split == "train"
            for text in both_sides(document.text)
        )
        tokenizer = train(settings, texts)
    file.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(file)
    return tokenizer


def store_for(
    corpus: CorpusSettings,
    tokenizer: Tokenizer,
    settings: StoreSettings,
    *,
    words: bool,
    console: Console,
    key: str | None = None,
) -> Prepared:
    """The shards of a corpus: found in the cache (a run asks for the very ones it began with), or made now."""
    folder = cache() / "stores"
    if key is not None and (folder / key / FINISHED).is_file():
        return Prepared(store=Store.open(folder / key), key=key)
    pixels = [settings.picture] if corpus.mark == PICTURE else []
    made = _key("store", digest(corpus), tokenizer.digest, settings.shard_tokens, words, *pixels)
    if key is not None and key != made:
        raise MeristemError(
            "the text has changed since this run began, and its shards are no longer in the cache: "
            "going on would not be the same run. Use --out for a new run, or --fresh"
        )
    if not (folder / made / FINISHED).is_file():
        with Bar(console, "tokenising") as bar:
            reading = Reading(corpus, progress=bar.show)
            store = build(reading, tokenizer, folder / made, settings, processes=corpus.processes, keep_words=words)
        console.print(reading.account.summary(), highlight=False, soft_wrap=True)
        for warning in reading.account.warnings:
            console.print(f"  {warning}", highlight=False, soft_wrap=True)
        return Prepared(store=store, key=made)
    return Prepared(store=Store.open(folder / made), key=made)
