"""The corpus pipeline: find files, read, clean, deduplicate, split, count."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.canaries.planting import plant_canaries
from meristem.corpus.corpus_parts import iter_documents
from meristem.corpus.corpus_sources import ResolvedSources, find_sources
from meristem.corpus.dedup.document_filter import DocumentFilter
from meristem.corpus.document import Document
from meristem.corpus.document_batches import DocumentBatch, read_batches
from meristem.corpus.document_cache import DocumentCache
from meristem.corpus.processed_corpus import ProcessedCorpus, are_all_files, process_corpus
from meristem.corpus.read_ranges import ReadRange, plan_held_out_ranges, plan_ranges
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.split import UnsplitDocument, assign_splits
from meristem.corpus.worker_pool import ReadWorkerPool
from meristem.data.sources import FileSource, ParallelSource

MIN_POOL_BYTES = 8 << 20
"""Below this many bytes, starting worker processes costs more time than it saves."""


@dataclass(frozen=True)
class ReadProgress:
    """Progress of a pass in bytes; `total` is 0 if there are no files to measure."""

    bytes: int
    total: int
    documents: int


class CorpusReader:
    """The documents of a corpus in an order that depends only on the settings; each iteration is a full pass.

    With a folder, a corpus of files is processed once, stored there in parts, and read from them
    (`processed_corpus.py`). With a cache, the documents of an earlier pass are read from it; `store` puts those of
    this pass into it.
    """

    def __init__(
        self,
        settings: CorpusSettings,
        *,
        progress: Callable[[ReadProgress], None] | None = None,
        folder: Path | None = None,
        cache: DocumentCache | None = None,
        store: bool = False,
    ) -> None:
        self.settings, self.folder, self._cache, self._store = settings, folder, cache, store
        self.account = CorpusAccount()
        """Complete once the pass is."""
        self._progress = progress

    def __iter__(self) -> Iterator[Document]:
        resolved = find_sources(self.settings)
        self.account = account = CorpusAccount(skipped=resolved.skipped)
        if self.folder is not None and are_all_files(resolved.all_sources):
            documents = self._read_parts(self.folder)
        elif self._cache is not None and (cached_counts := self._cache.load()) is not None:
            account.merge(cached_counts)
            documents = self._read_cached(self._cache, cached_counts.kept)
        else:
            documents = self._read_sources(resolved)
            if self._cache is not None and self._store:
                documents = self._cache.store(documents, account)
        split_documents = self._count_splits(assign_splits(documents, self.settings))
        if self.settings.canaries is not None:
            separator = self.settings.side_separator
            split_documents = plant_canaries(split_documents, self.settings.canaries, separator, account)
        yield from split_documents
        account.check_totals()
        self._check_usable("", self.settings.sources, account.kept)
        for split, sources in self.settings.held_out_sources.items():
            self._check_usable(f"corpus.{split}: ", sources, account.splits[split])

    def _count_splits(self, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            self.account.splits[document.split] += 1
            yield document

    def _check_usable(self, setting: str, sources: Sequence[str], documents: int) -> None:
        """Raise if the sources of the corpus or of a split gave no document, with what happened to them."""
        if not documents:
            message = f"{setting}no usable documents in {', '.join(sources)}: {self.account.summary()}"
            raise MeristemError("\n  ".join([message, *self.account.warnings]))

    def process(self, folder: Path, *, verify: bool = True) -> ProcessedCorpus:
        """Create the parts that are missing; existing ones are fully checked only if `verify`."""
        total = sum(source.size for source in find_sources(self.settings).all_sources)
        return process_corpus(
            self.settings,
            folder,
            self._iter_batches,
            verify=verify,
            progress=lambda account: self._report_progress(account.bytes, total, account.read),
        )

    def _read_parts(self, folder: Path) -> Iterator[UnsplitDocument]:
        processed = self.process(folder)
        self.account.merge(processed.account)
        total, bytes_before, num_documents = sum(part.size for part in processed.parts), 0, 0
        for part in processed.parts:
            for number, document in enumerate(iter_documents(processed.folder, [part])):
                if number % 256 == 0:
                    bytes_done = bytes_before + part.size * number // part.kept
                    self._report_progress(bytes_done, total, num_documents + number)
                yield document
            bytes_before, num_documents = bytes_before + part.size, num_documents + part.kept
        self._report_progress(bytes_before, total, num_documents)

    def _read_cached(self, cache: DocumentCache, total: int) -> Iterator[UnsplitDocument]:
        for number, document in enumerate(cache.documents()):
            if number % 256 == 0:
                self._report_progress(number, total, number)
            yield document

    def _read_sources(self, resolved: ResolvedSources) -> Iterator[UnsplitDocument]:
        """New documents, up to corpus.limit."""
        total = sum(source.size for source in resolved.all_sources)
        read_ranges = [
            *plan_held_out_ranges(resolved.held_out, self.settings),
            *plan_ranges(resolved.sources, self.settings),
        ]
        with DocumentFilter(self.settings) as document_filter:
            for read_range, batch in self._iter_batches(read_ranges):
                selected = document_filter.select(read_range, batch)
                self.account.merge(document_filter.account.pop_counts())
                yield from selected
                self._report_progress(self.account.bytes, total, self.account.read)
                if document_filter.is_full:
                    return

    def _report_progress(self, num_bytes: int, total: int, documents: int) -> None:
        if self._progress:
            self._progress(ReadProgress(bytes=num_bytes, total=total, documents=documents))

    def _iter_batches(self, read_ranges: list[ReadRange]) -> Iterator[tuple[ReadRange, DocumentBatch]]:
        """The batches of all ranges in order; large files are read in worker processes, everything else in this one."""
        files = [read_range for read_range in read_ranges if isinstance(read_range.source, FileSource | ParallelSource)]
        processes = _num_processes(self.settings, files)
        with ReadWorkerPool(files, self.settings, processes) if processes > 1 else nullcontext() as pool:
            numbers = count()
            for read_range in read_ranges:
                is_pooled = pool is not None and isinstance(read_range.source, FileSource | ParallelSource)
                for batch in (
                    pool.batches(next(numbers)) if pool and is_pooled else read_batches(read_range, self.settings)
                ):
                    yield read_range, batch


def _num_processes(settings: CorpusSettings, read_ranges: Sequence[ReadRange]) -> int:
    """Number of processes worth starting; 1 means that this process does the work."""
    size = sum(
        (read_range.source.size if read_range.stop is None else read_range.stop) - read_range.start
        for read_range in read_ranges
    )
    if size < MIN_POOL_BYTES or multiprocessing.current_process().daemon:
        return 1
    return min(settings.processes or os.cpu_count() or 1, len(read_ranges))
