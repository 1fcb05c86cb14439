"""Documents of a finished pass over a corpus, kept until its shards are built: tokenizer and shards need one reading.

A corpus that is processed into parts (`processed_corpus.py`) has them anyway; this is for all others.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from itertools import islice

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.cache_folder import cache_dir
from meristem.corpus.corpus_parts import (
    PartWriter,
    load_sealed_json,
    part_path,
    read_documents_file,
    save_sealed_json,
    try_folder_lock,
)
from meristem.corpus.split import UnsplitDocument
from meristem.utils.durable_files import range_sha256

FREE_SHARE = 4
"""Documents are kept if they take less than this part of the free disk space: a quarter."""
WRITTEN_AT_ONCE = 256


class DocumentCache:
    """The documents of one corpus, by its key; complete or absent."""

    def __init__(self, key: str) -> None:
        self.folder = cache_dir() / "documents" / key
        self._counts_path = self.folder / "account.json"

    def load(self) -> CorpusAccount | None:
        """The counts of the pass, without splits; None if there are no documents, or damaged ones."""
        try:
            body = load_sealed_json(self._counts_path) if self._counts_path.exists() else {}
            documents_path = part_path(self.folder, 0, "jsonl")
            if body and range_sha256(documents_path) == body["sha256"]:
                return CorpusAccount.from_dict(body["account"])
        except (MeristemError, OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def documents(self) -> Iterator[UnsplitDocument]:
        """The documents in order."""
        return read_documents_file(part_path(self.folder, 0, "jsonl"))

    def store(self, documents: Iterable[UnsplitDocument], account: CorpusAccount) -> Iterator[UnsplitDocument]:
        """The documents, which are written on the way; a pass that does not end leaves nothing.

        Nothing is written where another process does so, or where the disk has too little space.
        """
        documents = iter(documents)
        with try_folder_lock(self.folder) as is_locked:
            if is_locked:
                yield from self._store_all(documents, account)
        yield from documents

    def delete(self) -> None:
        """Remove the documents; whoever reads them can go on doing so."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _store_all(self, documents: Iterator[UnsplitDocument], account: CorpusAccount) -> Iterator[UnsplitDocument]:
        max_bytes = shutil.disk_usage(self.folder).free // FREE_SHARE
        part_path(self.folder, 0, "jsonl").parent.mkdir(exist_ok=True)
        writer = PartWriter(self.folder, 0)
        try:
            while batch := list(islice(documents, WRITTEN_AT_ONCE)):
                try:
                    writer.add(batch)
                except OSError:
                    max_bytes = 0  # a full disk is no reason to end a pass that can do without
                yield from batch
                if writer.size > max_bytes:
                    return
            counts = {name: value for name, value in account.to_dict().items() if name not in ("splits", "skipped")}
            save_sealed_json(self._counts_path, {"sha256": writer.finish(), "account": counts})
        finally:
            writer.discard()
