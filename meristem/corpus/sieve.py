"""What is new among the documents of a pass: exact and near duplicates go, the limit holds, all is accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import numpy as np

from meristem.corpus.account import Account, moved
from meristem.corpus.batches import Batch
from meristem.corpus.deduplicate import Seen
from meristem.corpus.growing import BLOCK, Growing
from meristem.corpus.near_index import Near
from meristem.corpus.pieces import Piece
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import KINDS, PICTURE, sides
from meristem.corpus.split import Undecided, half, position


class Sieve:
    """The documents met so far, kept in a folder where one is given, so that a later pass can go on with them."""

    def __init__(
        self,
        settings: CorpusSettings,
        folder: Path | None = None,
        *,
        counts: Mapping[str, int] = {},
        kept: int = 0,
        passed: int = 0,
    ) -> None:
        self._settings = settings
        self.account = Account()
        """Of what passed since it was last taken."""
        self.kept, self.passed = kept, passed
        """Documents of the source kept in all; lines of the present file that lie behind."""
        self.held_out: dict[float, str] = {}
        """Documents of validation and test data of their own, by their numbers: their splits."""
        self._piece: Piece | None = None
        self._before = 0
        self._own = TemporaryDirectory(prefix="meristem-") if folder is None and settings.near else None
        place = Path(self._own.name) if self._own else folder
        self.files: dict[str, Growing] = {}
        """What must be kept for going on later, by name."""
        self._seen = Seen() if settings.deduplicate else None
        self._near: Near | None = None
        if place is not None:
            self._open(place, counts, keep=folder is not None)

    def _open(self, place: Path, counts: Mapping[str, int], *, keep: bool) -> None:
        place.mkdir(parents=True, exist_ok=True)
        if self._seen is not None and keep:
            digests = self.files["digests"] = Growing(place / "digests", "S16", count=counts.get("digests", 0))
            for start in range(0, len(digests), BLOCK):
                self._seen.know(digests.rows(slice(start, start + BLOCK))[:, 0])
        if self._settings.near is not None:
            self._near = Near(self._settings.near, place, count=counts.get("signatures", 0))
            self.files["signatures"] = self._near.signatures
            if not self._settings.near.drop:
                self.files["numbers"] = Growing(place / "numbers", "<f8", count=counts.get("numbers", 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self.files.values():
            file.close()
        if self._own is not None:
            self._own.cleanup()

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.kept == self._settings.most_documents

    def know(self, documents: Iterable[Undecided]) -> None:
        """Take in the held-out documents that an earlier pass kept; they come before all others."""
        self.held_out.update((one.number, one.split) for one in takewhile(lambda one: one.split, documents))

    def choose(self, piece: Piece, batch: Batch) -> list[Undecided]:
        """The documents of a batch that are kept; the others are counted as dropped."""
        self._count_lines(piece, batch)
        self.account.add(batch.account)
        chosen = self._first_met(batch, self._apart(batch, list(range(len(batch.texts))), piece.split))
        if self._near is not None:
            chosen = self._apart(batch, self._unlike(batch, chosen), piece.split)  # what is near is kept apart as well
        if not piece.split:
            chosen = self._within(batch, chosen)
            self.kept += len(chosen)
        mark = self._settings.mark
        self.account.keep(piece.source.name, [_characters(batch.texts[at], mark) for at in chosen])
        if mark:
            self.account.kinds[KINDS[mark]] += len(chosen)
        return [
            Undecided(batch.texts[at], batch.places[at], batch.numbers[at], batch.languages[at], piece.split)
            for at in chosen
        ]

    def _apart(self, batch: Batch, chosen: list[int], split: str) -> list[int]:
        """Documents without those that held-out data of their own hold too; those of such data are remembered."""
        met = {at: self.held_out.get(batch.numbers[at], "") for at in chosen} if self.held_out else {}
        for other in sorted({one for one in met.values() if one not in ("", split)}):
            self._drop(f"also in the {other} data", batch, [at for at, one in met.items() if one == other])
        kept = [at for at in chosen if met.get(at, "") in ("", split)]
        if split:
            self.held_out.update((batch.numbers[at], split) for at in kept)
        return kept

    def _within(self, batch: Batch, chosen: list[int]) -> list[int]:
        """Documents of the half, the share and the number that are asked for."""
        settings = self._settings
        if settings.half is not None:
            chosen = self._kept([at for at in chosen if half(batch.numbers[at]) == settings.half], chosen,
                                "in the other half")
        if (share := settings.share_of_documents) is not None:
            chosen = self._kept([at for at in chosen if position(batch.digests[at]) < share], chosen,
                                f"outside of {settings.limit} of the documents")
        if settings.most_documents is not None:
            chosen = self._kept(chosen[: settings.most_documents - self.kept], chosen, "over the limit")
        return chosen

    def _kept(self, kept: list[int], of: list[int], reason: str) -> list[int]:
        self.account.drop(reason, len(of) - len(kept))
        return kept

    def _count_lines(self, piece: Piece, batch: Batch) -> None:
        """Places are counted from the start of a range, lines when it ends: count both from the start of the file."""
        if piece is not self._piece:
            self._before = self.passed if piece.start else 0
            self.passed, self._piece = self._before, piece
        if self._before:
            batch.places = [moved(place, self._before) for place in batch.places]
            batch.account.move(self._before)
        self.passed += batch.account.lines

    def _first_met(self, batch: Batch, every: list[int]) -> list[int]:
        if self._seen is None:
            return every
        new = self._seen.new([batch.digests[at] for at in every])
        chosen = list(compress(every, new))
        self._drop("duplicate", batch, [at for at, first in zip(every, new, strict=True) if not first])
        if "digests" in self.files:
            self.files["digests"].append(np.array([batch.digests[at] for at in chosen], "S16"))
        return chosen

    def _unlike(self, batch: Batch, chosen: list[int]) -> list[int]:
        """Near duplicates dropped, or put where the first of their kind is."""
        assert self._near is not None and batch.signatures is not None
        first = self._near.meet(batch.signatures[chosen])
        new = [at for at, known in zip(chosen, first, strict=True) if known < 0]
        if "numbers" not in self.files:
            self._drop("near duplicate", batch, [at for at, known in zip(chosen, first, strict=True) if known >= 0])
            return new
        numbers = self.files["numbers"]
        numbers.append(np.array([batch.numbers[at] for at in new]))
        for at, known in zip(chosen, first.tolist(), strict=True):
            if known >= 0:
                batch.numbers[at] = float(numbers.rows(known)[0])
        return chosen

    def _drop(self, reason: str, batch: Batch, dropped: Sequence[int]) -> None:
        self.account.drop(reason, len(dropped))
        self.account.show(reason, [(batch.places[at], batch.texts[at]) for at in dropped])


def _characters(text: str, mark: str) -> int:
    """Characters of a document's own text: a mark is none, nor is a picture's name."""
    return len(text) if not mark else len(sides(text).told) if mark == PICTURE else len(text) - 1
