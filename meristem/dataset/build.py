"""Tokenizes documents into a dataset: worker processes encode batches, which are written to shards in order."""

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

from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.dataset.build_progress import BuildJournal, FinishedDocuments, exclusive_build
from meristem.dataset.encode_documents import EncodedBatch
from meristem.dataset.manifest import SPLITS, DatasetManifest, manifest_name
from meristem.dataset.paired_documents import batch_cost, encode_batch
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.shard import dtype_for
from meristem.dataset.shard_writer import SplitWriter
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.template import separator_id
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.interrupts import defer_interrupts

BATCH_CHARACTERS = 250_000
BATCH_DOCUMENTS = 4_096
BATCHES_AHEAD = 3  # batches in flight per process: enough to hide the writing, few enough to keep memory flat

TextBatch = tuple[str, list[str]]
EncodeFn = Callable[[list[str]], EncodedBatch]


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
    """Running totals of a build: documents, tokens and UTF-8 bytes of text so far."""

    documents: int
    tokens: int
    bytes: int


def build_dataset(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    folder: Path,
    settings: DatasetSettings,
    *,
    processes: int | None = None,
    keep_words: bool = False,
    state: str = "",
    progress: Callable[[BuildProgress], None] | None = None,
) -> TokenDataset:
    """Tokenize documents into shards; resumes after an interrupted build, and new documents are added as new shards."""
    new_manifest = DatasetManifest(
        tokenizer=tokenizer.digest,
        separator=separator_id(tokenizer),
        dtype=dtype_for(tokenizer.vocab_size),
        words=keep_words,
        shard_tokens=settings.shard_tokens,
        splits={split: [] for split in SPLITS},
    )
    with exclusive_build(folder) as waited, _single_threaded_tokenizers():
        if waited and (folder / manifest_name(state)).is_file():  # another process has just built it from the same text
            return TokenDataset.open(folder, state=state)
        journal = BuildJournal(folder, new_manifest)
        writers = {split: _make_writer(journal, split) for split in SPLITS}
        batches = _iter_batches(documents, journal.finished_documents(), settings.image_size)
        encode = partial(encode_batch, tokenizer=tokenizer, keep_words=keep_words, image_size=settings.image_size)
        encoded_batches = _encode_batches(batches, encode, processes or os.cpu_count() or 1)
        try:
            _write_batches(encoded_batches, writers, progress)
        finally:
            encoded_batches.close()
            for writer in writers.values():
                writer.discard()
        if not any(journal.manifest.splits.values()):
            raise MeristemError(f"{folder}: no document has a single token; check corpus.source")
        journal.finish(state)
        return TokenDataset.open(folder, state=state)


def _make_writer(journal: BuildJournal, split: str) -> SplitWriter:
    manifest = journal.manifest
    return SplitWriter(
        journal.folder / split,
        number=len(manifest.splits[split]),
        shard_tokens=manifest.shard_tokens,
        keep_words=manifest.words,
        on_finished=partial(journal.add_shard, split),
    )


def _write_batches(
    encoded_batches: Iterator[tuple[str, EncodedBatch]],
    writers: dict[str, SplitWriter],
    progress: Callable[[BuildProgress], None] | None,
) -> None:
    documents = tokens = num_bytes = 0
    for split, encoded in encoded_batches:
        writers[split].add(encoded)
        documents += len(encoded.lengths)
        tokens += len(encoded.tokens)
        num_bytes += int(encoded.byte_sizes.sum())
        if progress is not None:
            progress(BuildProgress(documents=documents, tokens=tokens, bytes=num_bytes))
    for writer in writers.values():
        writer.close()


def _iter_batches(
    documents: Iterable[Document], finished: dict[str, FinishedDocuments], image_size: int
) -> Iterator[TextBatch]:
    """Batches of texts, each of one split, in corpus order; documents of finished shards are skipped."""
    waiting: dict[str, list[str]] = {split: [] for split in SPLITS}
    characters = dict.fromkeys(SPLITS, 0)
    for document in documents:
        split = document.split
        if finished[split].contains_next(document.text):
            continue
        waiting[split].append(document.text)
        characters[split] += batch_cost(document.text, image_size)
        if characters[split] >= BATCH_CHARACTERS or len(waiting[split]) == BATCH_DOCUMENTS:
            yield split, waiting[split]
            waiting[split], characters[split] = [], 0
    for split in SPLITS:
        finished[split].check_exhausted()
        if waiting[split]:
            yield split, waiting[split]


def _encode_batches(
    batches: Iterator[TextBatch], encode: EncodeFn, processes: int
) -> Generator[tuple[str, EncodedBatch]]:
    """Each batch encoded, in order, with a bounded number in flight."""
    if processes == 1:
        for split, texts in batches:
            yield split, encode(texts)
        return
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("fork"),
        initializer=_init_worker,
        initargs=(encode, os.getpid()),
    )
    pending: deque[tuple[str, Future[EncodedBatch]]] = deque()
    try:
        for split, texts in batches:
            with defer_interrupts():  # the first submit starts the processes
                pending.append((split, pool.submit(_encode_in_worker, texts)))
            if len(pending) >= processes * BATCHES_AHEAD:
                yield _pop_result(pending)
        while pending:
            yield _pop_result(pending)
    except BrokenProcessPool:
        raise MeristemError(
            "a tokenizer process died, perhaps out of memory; run again to resume from the last "
            "finished shard, with fewer corpus.processes if it happens again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _pop_result(pending: deque[tuple[str, Future[EncodedBatch]]]) -> tuple[str, EncodedBatch]:
    split, future = pending.popleft()
    return split, future.result()


_encode: EncodeFn  # in a worker process: set once, by _init_worker


def _init_worker(encoder: EncodeFn, parent_pid: int) -> None:
    global _encode
    _encode = encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops its workers
    threading.Thread(target=_exit_with_parent, args=(parent_pid,), daemon=True).start()


def _exit_with_parent(parent_pid: int) -> None:
    """Exit when the parent is gone: a worker holds both ends of its pipe, so a killed parent causes no EOF."""
    while os.getppid() == parent_pid:
        time.sleep(0.5)
    os._exit(1)


def _encode_in_worker(texts: list[str]) -> EncodedBatch:
    return _encode(texts)


@contextmanager
def _single_threaded_tokenizers() -> Iterator[None]:
    """One tokenizer thread per process: the library's threads do not survive a fork, nor speed up busy cores."""
    name = "TOKENIZERS_PARALLELISM"
    previous = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[name]
        else:
            os.environ[name] = previous
