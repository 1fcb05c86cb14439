"""From a corpus to shards, once: tokenizers and stores are kept in a cache keyed by what they were made from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from rich.console import Console

from meristem.corpus.command import Bar
from meristem.corpus.parts import waiting_lock
from meristem.corpus.reading import Reading
from meristem.corpus.refining import cache as cache
from meristem.corpus.refining import home, turns
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PICTURE
from meristem.corpus.sides import words as both_sides
from meristem.corpus.sources import digest
from meristem.corpus.split import SMALL
from meristem.errors import MeristemError
from meristem.store.build import build
from meristem.store.manifest import finished_name
from meristem.store.settings import StoreSettings
from meristem.store.store import Store
from meristem.store.unknown import token_summary
from meristem.system_errors import naming_file
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train

KEY = re.compile(r"[0-9a-f]{20}(@\d+-[0-9a-f]{8})?")


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:20]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A store, and the key that finds it again: of a store that grows KEY@STATE, one of the states it was in."""

    store: Store
    key: str


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a corpus is known by: a key that stays while files are only added, and how far it has grown."""

    key: str
    state: str = ""
    folder: Path | None = None
    """Where it is refined; nowhere if it is read as it is."""


def _text(corpus: CorpusSettings, console: Console) -> Text:
    folder = home(corpus)
    if folder is None:
        return Text(key=digest(corpus))
    found, notes = turns(corpus, folder)
    _say(notes, console)
    return Text(key=_key(folder.name, found.origin, corpus.validation, corpus.test), state=found.state, folder=folder)


def _say(notes: Sequence[str], console: Console) -> None:
    for note in notes:
        console.print(f"  {note}", highlight=False, markup=False, soft_wrap=True)


def tokenizer_for(settings: TokenizerSettings, corpora: Sequence[CorpusSettings], console: Console) -> Tokenizer:
    """The tokenizer a recipe asks for: loaded from its path, found in the cache, or trained on a sample of the text."""
    if settings.path is not None:
        return Tokenizer.load(Path(settings.path), lowercase=settings.lowercase or None)
    texts = [_text(corpus, console) for corpus in corpora]
    key = _key("tokenizer", settings.model_dump_json(), *(text.key for text in texts))
    file = cache() / "tokenizers" / key / "tokenizer.json"
    states = "\n".join(text.state for text in texts if text.state)
    cached = _cached_tokenizer(file, states, console)
    if cached is not None:
        return cached
    with waiting_lock(file.parent, "training this tokenizer") as waited:
        cached = _cached_tokenizer(file, states, console) if waited else None
        return cached or _trained(settings, corpora, texts, file, console)


def _cached_tokenizer(file: Path, states: str, console: Console) -> Tokenizer | None:
    """The tokenizer of an earlier run; none where there is none, or where it is damaged."""
    if not file.exists():
        return None
    try:
        tokenizer = Tokenizer.load(file)
        trained_on = (file.parent / "states").read_text(encoding="utf-8", errors="replace") if states else ""
    except (MeristemError, OSError):
        console.print(f"{file}: damaged; the tokenizer is trained again", highlight=False, markup=False, soft_wrap=True)
        return None
    if trained_on != states:
        console.print("The tokenizer was trained before new files came, and stays as it is")
    return tokenizer


def _trained(
    settings: TokenizerSettings, corpora: Sequence[CorpusSettings], texts: Sequence[Text], file: Path, console: Console
) -> Tokenizer:
    """A tokenizer trained now, and put into the cache."""
    states = "\n".join(text.state for text in texts if text.state)
    console.print(
        f"Training a {settings.kind} tokenizer of {settings.size:,} tokens on up to {settings.sample_mb:g} MB of text"
    )
    with Bar(console, "reading") as bar:
        readings = (
            Reading(corpus, progress=bar.show, folder=text.folder) for corpus, text in zip(corpora, texts, strict=True)
        )
        words = (
            side
            for document in chain.from_iterable(readings)
            if document.split == "train"
            for side in both_sides(document.text)
        )
        tokenizer = train(settings, words)
    if states:
        with naming_file(file.parent / "states"):
            (file.parent / "states").write_text(states, encoding="utf-8")
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
    begun = _begun(key)
    if begun is not None:
        return begun
    pixels = [settings.picture] if corpus.mark == PICTURE else []
    text = _text(corpus, console)
    with Bar(console, "tokenising") as bar:
        reading = Reading(corpus, progress=bar.show, folder=text.folder)
        known_by = text.key + _moving(reading, text, console)
        made = _key("store", known_by, tokenizer.digest, settings.shard_tokens, words, *pixels)
        named = f"{made}@{text.state}" if text.state else made
        if key is not None and key != named:
            raise MeristemError(
                "the text has changed since this run began, and its shards are no longer in the cache: "
                "going on would not be the same run. Use --out for a new run, or --fresh"
            )
        found = _begun(named)
        if found is not None:
            return found
        folder = cache() / "stores" / made
        store = build(
            reading, tokenizer, folder, settings, processes=corpus.processes, keep_words=words, state=text.state
        )
    summary = f"{reading.account.summary()}; " if reading.account.read else ""  # nothing read: another run made them
    console.print(f"{summary}{token_summary(store, tokenizer)}", highlight=False, markup=False, soft_wrap=True)
    _say(reading.account.warnings, console)
    return Prepared(store=store, key=named)


def _moving(reading: Reading, text: Text, console: Console) -> str:
    """The state of a corpus that cannot just grow: a small one is dealt out by quotas, and what comes moves others."""
    if text.folder is None:
        return ""
    refined = reading.refine(text.folder, verify=False)
    _say(refined.notes, console)
    return text.state if refined.kept <= SMALL else ""


def _begun(key: str | None) -> Prepared | None:
    """The store of a key, in the very state it names, if it is in the cache."""
    if key is None or not KEY.fullmatch(key):
        return None
    made, _, state = key.partition("@")
    folder = cache() / "stores" / made
    if not (folder / finished_name(state)).is_file():
        return None
    return Prepared(store=Store.open(folder, state=state), key=key)
