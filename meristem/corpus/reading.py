"""The whole pass over a corpus: found, read, cleaned, deduplicated, split, accounted for."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import compress, count

from meristem.corpus.account import Account
from meristem.corpus.batches import Batch, batches
from meristem.corpus.deduplicate import Seen
from meristem.corpus.document import Document
from meristem.corpus.pieces import Piece, plan
from meristem.corpus.pool import Pool
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import KINDS, PICTURE, sides
from meristem.corpus.sources import Aligned, File, survey
from meristem.corpus.split import Undecided, assign
from meristem.settings import MeristemError

WORTH_A_POOL = 8 << 20
"""Bytes below which starting processes costs more than it saves."""


@dataclass(frozen=True)
class Progress:
    """How far a reading is; `total` is 0 where there are no files to measure."""

    bytes: int
    total: int
    documents: int


class Reading:
    """The documents of a corpus in an order that depends on the settings alone; each iteration is a whole pass."""

    def __init__(self, settings: CorpusSettings, *, progress: Callable[[Progress], None] | None = None) -> None:
        self.settings = settings
        self.account = Account()
        """Complete when the pass is."""
        self._progress = progress

    def __iter__(self) -> Iterator[Document]:
        found = survey(self.settings)
        self.account = account = Account(skipped=found.skipped)
        total = sum(source.size for source in found.sources)
        pieces = list(plan(found.sources, self.settings))
        for document in assign(self._kept(pieces, total), self.settings):
            account.splits[document.split] += 1
            yield document
        account.check()
        if not account.kept:
            what = f"nothing to learn from in {', '.join(self.settings.sources)}: {account.summary()}"
            raise MeristemError("\n  ".join([what, *account.warnings]))

    def _kept(self, pieces: list[Piece], total: int) -> Iterator[Undecided]:
        """Documents that are new, up to the limit."""
        account = self.account
        seen = Seen() if self.settings.deduplicate else None
        base = 0
        for piece, batch in self._batches(pieces):
            base = account.lines if piece.start == 0 else base
            passed = account.lines - base  # lines of this file in the ranges before this one
            account.add(batch.account)
            for index in self._chosen(batch, seen, piece.source.name):
                place = batch.places[index]
                yield Undecided(batch.texts[index], _moved(place, passed) if passed else place, batch.numbers[index])
            if self._progress:
                self._progress(Progress(bytes=account.bytes, total=total, documents=account.read))
            if account.kept == self.settings.limit:
                return

    def _chosen(self, batch: Batch, seen: Seen | None, source: str) -> list[int]:
        """Which documents of a batch are kept; the others are counted as dropped."""
        account, limit = self.account, self.settings.limit
        every = range(len(batch.texts))
        new = list(compress(every, seen.new(batch.digests))) if seen else list(every)
        chosen = new if limit is None else new[: limit - account.kept]
        account.drop("duplicate", len(every) - len(new))
        account.drop("over the limit", len(new) - len(chosen))
        mark = self.settings.mark
        account.keep(source, len(chosen), sum(_characters(batch.texts[index], mark) for index in chosen))
        if mark:
            account.kinds[KINDS[mark]] += len(chosen)
        return chosen

    def _batches(self, pieces: list[Piece]) -> Iterator[tuple[Piece, Batch]]:
        """The batches of all pieces in order; files are read in processes where that pays, all else here."""
        files = [piece for piece in pieces if isinstance(piece.source, File | Aligned)]
        processes = _processes(self.settings, files)
        with Pool(files, self.settings, processes) if processes > 1 else nullcontext() as pool:
            numbers = count()
            for piece in pieces:
                pooled = pool is not None and isinstance(piece.source, File | Aligned)
                for batch in pool.batches(next(numbers)) if pool and pooled else batches(piece, self.settings):
                    yield piece, batch


def _processes(settings: CorpusSettings, pieces: Sequence[Piece]) -> int:
    """How many processes are worth starting; one means that this one does the work."""
    size = sum((piece.source.size if piece.stop is None else piece.stop) - piece.start for piece in pieces)
    if size < WORTH_A_POOL or multiprocessing.current_process().daemon:
        return 1
    return min(settings.processes or os.cpu_count() or 1, len(pieces))


def _characters(text: str, mark: str) -> int:
    """Characters of a document's own text: a mark is none, nor is a picture's name."""
    return len(text) if not mark else len(sides(text).told) if mark == PICTURE else len(text) - 1


def _moved(place: str, lines: int) -> str:
    """A place counted from the start of a range, counted from the start of its file."""
    name, _, line = place.rpartition(":")
    return f"{name}:{int(line) + lines}"
