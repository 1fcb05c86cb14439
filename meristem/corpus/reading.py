"""The whole pass over a corpus: found, read, cleaned, deduplicated, split, accounted for."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from meristem.corpus.account import Account
from meristem.corpus.batches import Batch, batches
from meristem.corpus.document import Document
from meristem.corpus.parts import documents
from meristem.corpus.pieces import Piece, plan, plan_held_out
from meristem.corpus.pool import Pool
from meristem.corpus.refining import Refined, of_files, refine
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sieve import Sieve
from meristem.corpus.source_kinds import Aligned, File
from meristem.corpus.sources import Found, survey
from meristem.corpus.split import Undecided, assign
from meristem.errors import MeristemError

WORTH_A_POOL = 8 << 20
"""Bytes below which starting processes costs more than it saves."""


@dataclass(frozen=True)
class Progress:
    """How far a reading is; `total` is 0 where there are no files to measure."""

    bytes: int
    total: int
    documents: int


class Reading:
    """The documents of a corpus in an order that depends on the settings alone; each iteration is a whole pass.

    With a folder, a corpus of files is refined there once, in parts, and read from them (`refining.py`).
    """

    def __init__(self, settings: CorpusSettings, *, progress: Callable[[Progress], None] | None = None,
                 folder: Path | None = None) -> None:
        self.settings, self.folder = settings, folder
        self.account = Account()
        """Complete when the pass is."""
        self._progress = progress

    def __iter__(self) -> Iterator[Document]:
        found = survey(self.settings)
        self.account = account = Account(skipped=found.skipped)
        if self.folder is not None and of_files(found.everything):
            documents = self._from_parts(self.folder)
        else:
            documents = self._kept(found)
        for document in assign(documents, self.settings):
            account.splits[document.split] += 1
            yield document
        account.check()
        if not account.kept:
            what = f"nothing to learn from in {', '.join(self.settings.sources)}: {account.summary()}"
            raise MeristemError("\n  ".join([what, *account.warnings]))
        for split, sources in self.settings.own_splits.items():
            if not account.splits[split]:
                raise MeristemError("\n  ".join([f"corpus.{split}: no document in {', '.join(sources)}: "
                                                 f"{account.summary()}", *account.warnings]))

    def refine(self, folder: Path, *, verify: bool = True) -> Refined:
        """Make the parts that are missing; what is there is looked at closely only where that is asked for."""
        total = sum(source.size for source in survey(self.settings).everything)
        return refine(self.settings, folder, self._batches, verify=verify,
                      progress=lambda account: self._tell(account, total))

    def _from_parts(self, folder: Path) -> Iterator[Undecided]:
        refined = self.refine(folder)
        self.account.add(refined.account)
        total, before, read = sum(part.size for part in refined.parts), 0, 0
        for part in refined.parts:
            for number, document in enumerate(documents(refined.folder, [part])):
                if self._progress and number % 256 == 0:
                    done = before + part.size * number // part.kept
                    self._progress(Progress(bytes=done, total=total, documents=read + number))
                yield document
            before, read = before + part.size, read + part.kept
        if self._progress:
            self._progress(Progress(bytes=before, total=total, documents=read))

    def _kept(self, found: Found) -> Iterator[Undecided]:
        """Documents that are new, up to the limit."""
        total = sum(source.size for source in found.everything)
        pieces = [*plan_held_out(found.held_out, self.settings), *plan(found.sources, self.settings)]
        with Sieve(self.settings) as sieve:
            for piece, batch in self._batches(pieces):
                chosen = sieve.choose(piece, batch)
                self.account.add(sieve.account.take())
                yield from chosen
                self._tell(self.account, total)
                if sieve.full:
                    return

    def _tell(self, account: Account, total: int) -> None:
        if self._progress:
            self._progress(Progress(bytes=account.bytes, total=total, documents=account.read))

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
