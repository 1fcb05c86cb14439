"""Documents become a store: batches to worker processes, packs back in order, shards written as they fill."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from meristem.errors import MeristemError
from meristem.interrupts import unheard
from meristem.store.encode import Pack, separator_of
from meristem.store.ledger import Ledger, Past, sole_builder
from meristem.store.manifest import SPLITS, Manifest, finished_name
from meristem.store.settings import StoreSettings
from meristem.store.shards import dtype_for
from meristem.store.sides import pack_of, weight
from meristem.store.store import Store
from meristem.store.writer import Writer

if TYPE_CHECKING:
    from meristem.corpus.document import Document
    from meristem.tokenizers.tokenizer import Tokenizer

BATCH_CHARACTERS = 250_000
BATCH_DOCUMENTS = 4_096
AHEAD = 3  # batches under way per process: enough to hide the writing, few enough to keep memory flat

Batch = tuple[str, list[str]]
Encode = Callable[[list[str]], Pack]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a build has come."""

    documents: int
    tokens: int
    bytes: int


def build(documents: Iterable[Document], tokenizer: Tokenizer, folder: Path, settings: StoreSettings, *,
          processes: int | None = None, keep_words: bool = False, state: str = "",
          progress: Callable[[Progress], None] | None = None) -> Store:
    """Tokenise documents into shards; what a stopped pass had finished is kept, and new documents add shards."""
    fresh = Manifest(tokenizer=tokenizer.digest, separator=separator_of(tokenizer), dtype=dtype_for(tokenizer.size),
                     words=keep_words, shard_tokens=settings.shard_tokens, splits={split: [] for split in SPLITS})
    with sole_builder(folder) as waited, _single_threaded_tokenizers():
        if waited and (folder / finished_name(state)).is_file():  # made meanwhile, of the same text
            return Store.open(folder, state=state)
        ledger = Ledger(folder, fresh)
        writers = {split: _writer(ledger, split) for split in SPLITS}
        batches = _batches(documents, ledger.past(), settings.picture)
        encode = partial(pack_of, tokenizer=tokenizer, keep_words=keep_words, picture=settings.picture)
        packs = _packs(batches, encode, processes or os.cpu_count() or 1)
        try:
            _write(packs, writers, progress)
        finally:
            packs.close()
            for writer in writers.values():
                writer.abandon()
        if not any(ledger.manifest.splits.values()):
            raise MeristemError(f"{folder}: nothing to store, no document has a single token; check corpus.source")
        ledger.finish(state)
        return Store.open(folder, state=state)


def _writer(ledger: Ledger, split: str) -> Writer:
    manifest = ledger.manifest
    return Writer(ledger.folder / split, number=len(manifest.splits[split]), shard_tokens=manifest.shard_tokens,
                  keep_words=manifest.words, finished=partial(ledger.add, split))


def _write(packs: Iterator[tuple[str, Pack]], writers: dict[str, Writer],
           progress: Callable[[Progress], None] | None) -> None:
    documents = tokens = size = 0
    for split, pack in packs:
        writers[split].add(pack)
        documents, tokens, size = documents + len(pack.spans), tokens + len(pack.tokens), size + int(pack.sizes.sum())
        if progress is not None:
            progress(Progress(documents=documents, tokens=tokens, bytes=size))
    for writer in writers.values():
        writer.close()


def _batches(documents: Iterable[Document], past: dict[str, Past], picture: int) -> Iterator[Batch]:
    """Texts of one split at a time, in the corpus's order, without those that finished shards hold."""
    waiting: dict[str, list[str]] = {split: [] for split in SPLITS}
    characters = dict.fromkeys(SPLITS, 0)
    for document in documents:
        split = document.split
        if past[split].holds(document.text):
            continue
        waiting[split].append(document.text)
        characters[split] += weight(document.text, picture)
        if characters[split] >= BATCH_CHARACTERS or len(waiting[split]) == BATCH_DOCUMENTS:
            yield split, waiting[split]
            waiting[split], characters[split] = [], 0
    for split in SPLITS:
        past[split].check()
        if waiting[split]:
            yield split, waiting[split]


def _packs(batches: Iterator[Batch], encode: Encode, processes: int) -> Generator[tuple[str, Pack]]:
    """Each batch encoded, in order, a bounded number of them under way."""
    if processes == 1:
        for split, texts in batches:
            yield split, encode(texts)
        return
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork"), initializer=_begin_worker,
                               initargs=(encode, os.getpid()))
    under_way: deque[tuple[str, Future[Pack]]] = deque()
    try:
        for split, texts in batches:
            with unheard():  # the first one begins the processes
                under_way.append((split, pool.submit(_work, texts)))
            if len(under_way) >= processes * AHEAD:
                yield _first(under_way)
        while under_way:
            yield _first(under_way)
    except BrokenProcessPool:
        raise MeristemError("a tokenising process died, perhaps for want of memory; run again to go on from the last "
                            "finished shard, with fewer corpus.processes if it happens again") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _first(under_way: deque[tuple[str, Future[Pack]]]) -> tuple[str, Pack]:
    split, future = under_way.popleft()
    return split, future.result()


_encode: Encode  # in a worker process: set once, when it begins


def _begin_worker(encoder: Encode, parent: int) -> None:
    global _encode
    _encode = encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends its workers
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A killed parent cannot say goodbye, and a worker holds both ends of the pipe it waits on: watch for it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _work(texts: list[str]) -> Pack:
    return _encode(texts)


@contextmanager
def _single_threaded_tokenizers() -> Iterator[None]:
    """One thread per process: the library's own threads neither survive a fork nor add speed to full cores."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
