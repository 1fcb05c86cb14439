"""The corpus pipeline as steps of datatrove (the extra `cluster`), for corpora that outgrow one machine.

    pipeline = [Read(settings), Clean(settings), Write("clean/")]
    LocalPipelineExecutor(pipeline, tasks=64, workers=8).run()      # or SlurmPipelineExecutor, RayPipelineExecutor

Each task reads its share of the corpus and writes a file for each piece of it, so that the folder holds the same lines
in the same order whatever the number of tasks; `meristem pretrain gpt2-mini clean/` takes it from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

from meristem import bounded
from meristem.corpus.account import Account, moved
from meristem.corpus.batches import cleaned
from meristem.corpus.clean import steps
from meristem.corpus.command import columns
from meristem.corpus.deduplicate import Seen, digest
from meristem.corpus.document import Document, Drop, Step
from meristem.corpus.pieces import Piece, plan
from meristem.corpus.readers import read
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import identity, sides
from meristem.corpus.source_kinds import File
from meristem.corpus.sources import survey
from meristem.errors import MeristemError

try:  # steps of datatrove's own kind cannot be told without it, and nothing else here imports this file
    from datatrove.data import Document as Carried
    from datatrove.io import get_datafolder
    from datatrove.pipeline.base import PipelineStep
    from datatrove.pipeline.filters.base_filter import BaseFilter
    from datatrove.pipeline.writers.disk_base import DiskWriter
    from datatrove.utils.logging import logger
    from datatrove.utils.typeshelper import StatHints
except ImportError as error:
    raise MeristemError('running under datatrove needs it: pip install "meristem[cluster]"') from error

CHUNK = 1 << 20


class Read(PipelineStep):  # type: ignore[misc]  # datatrove is untyped
    """The documents of a corpus as they lie in its files: piece i belongs to task i modulo their number."""

    name = "Meristem: read"
    type = "📖 - READER"

    def __init__(self, settings: CorpusSettings) -> None:
        super().__init__()
        if settings.limit is not None:
            raise MeristemError(
                "corpus.limit counts over a whole corpus, which no task sees; give it to the run that "
                "reads the cleaned folder"
            )
        if settings.half is not None:
            raise MeristemError("corpus.half is chosen when text is read for a run; give it to that run")
        if settings.own_splits:
            raise MeristemError("corpus.validation and corpus.test are split off when text is read for a run; give "
                                "their files to that run")
        self.settings = settings

    def run(self, data: Iterable[Carried] | None = None, rank: int = 0, world_size: int = 1) -> Iterator[Carried]:
        """What earlier steps give, then this task's share."""
        yield from data or ()
        passed = Passed()
        for number, piece in enumerate(plan(survey(self.settings).sources, self.settings)):
            if number % world_size == rank:
                yield from self._documents(piece, f"{number:08d}", passed.before(piece))

    def _documents(self, piece: Piece, number: str, lines: int) -> Iterator[Carried]:
        account = Account()
        for item in read(piece, self.settings, account):
            self.stat_update(StatHints.total)
            if isinstance(item, Drop):
                self.stat_update(StatHints.dropped, f"dropped_{item.reason}")
                continue
            place = moved(item.place, lines) if lines else item.place
            document = Carried(text=item.text, id=place, metadata={"place": place, "piece": number})
            self.update_doc_stats(document)
            yield document
        for reason, count in account.rejected.items():
            self.stat_update(f"rejected_{reason}", value=count, unit="file")
        for warning in account.warnings:
            logger.warning(warning)


class Clean(BaseFilter):  # type: ignore[misc]  # datatrove is untyped
    """The cleaning steps of the settings on documents of any reader; what is dropped is counted by its reason."""

    name = "Meristem: clean"

    def __init__(self, settings: CorpusSettings, exclusion_writer: DiskWriter | Write | None = None) -> None:
        super().__init__(exclusion_writer)
        self.settings = settings
        self._line: tuple[Step, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other machines: the settings, from which the steps are made there."""
        return {**self.__dict__, "_line": ()}

    def filter(self, document: Carried) -> bool | tuple[bool, str]:
        """Whether a document stays, or why not; one that stays is changed in place."""
        account, place = Account(), str(document.metadata.get("place", document.id))
        given = Document(document.text, place, mark=self.settings.mark)
        self._line = self._line or steps(self.settings)
        after = cleaned(given, self._line, account)
        if isinstance(after, Drop):
            return False, after.reason
        document.text = after.text
        if after.language:
            document.metadata["language"] = after.language
        for step in account.repaired:
            self.stat_update(f"changed_{step}")
        for what, times in after.notes:
            self.stat_update(f"removed_{what}", value=times)
        return True


class Unique(BaseFilter):  # type: ignore[misc]  # datatrove is untyped
    """Only the first of documents with exactly the same text: a stage of one task, 16 bytes for each document."""

    name = "Meristem: unique"

    def __init__(self, exclusion_writer: DiskWriter | Write | None = None) -> None:
        super().__init__(exclusion_writer)
        self.seen = Seen()

    def run(self, data: Iterable[Carried], rank: int = 0, world_size: int = 1) -> Iterator[Carried]:
        """Refuses to work beside others, who would not know what was seen here."""
        if world_size != 1:
            raise MeristemError(f"exact duplicates are found by one task, not by {world_size}: give this stage tasks=1")
        yield from super().run(data, rank, world_size)

    def filter(self, document: Carried) -> bool | tuple[bool, str]:
        """Whether the text is met for the first time."""
        whole, _ = identity(Document(document.text, document.id, mark=sides(document.text).mark))
        (new,) = self.seen.new([digest(whole)])
        return new or (False, "duplicate")


class Write(PipelineStep):  # type: ignore[misc]  # datatrove is untyped
    """One JSON line per document, a file for each piece of the corpus; a file appears only when it is whole.

    It also serves as a `Clean`'s exclusion writer: then each line tells the reason.
    """

    name = "Meristem: write"
    type = "💽 - WRITER"

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = get_datafolder(folder)
        self._name = ""
        self._file: Any = None

    def run(self, data: Iterable[Carried], rank: int = 0, world_size: int = 1) -> Iterator[Carried]:
        """Documents are given on as they came; those of other readers are written to a file for each task."""
        with self:
            for document in data:
                with self.track_time():
                    self.write(document, rank)
                yield document

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(whole=kind is None)

    def write(self, document: Carried, rank: int = 0) -> None:
        """One more line, in the file of its piece."""
        name = f"{document.metadata.get('piece', f'{rank:08d}')}.jsonl"
        if name != self._name:
            self._end(whole=True)
            self._name, self._file = name, self.folder.open(f".{name}.partial", "wb")
        self._file.write((bounded.to_json(_columns(document)) + "\n").encode())
        self.stat_update(StatHints.total)
        self.update_doc_stats(document)

    def _end(self, *, whole: bool) -> None:
        if self._file is not None:
            self._file.close()
            if whole:
                self.folder.mv(f".{self._name}.partial", self._name)
        self._name, self._file = "", None


class Passed:
    """Lines before the ranges of a large text file, which a task counts without reading them as text."""

    def __init__(self) -> None:
        self._file: File | None = None
        self._at = self._lines = 0

    def before(self, piece: Piece) -> int:
        """Lines of the file in front of a piece; pieces are asked for in order."""
        if not piece.start or not isinstance(piece.source, File):
            return 0
        if piece.source != self._file:
            self._file, self._at, self._lines = piece.source, 0, 0
        with piece.source.path.open("rb") as handle:
            handle.seek(self._at)
            last = b""
            while self._at < piece.start and (chunk := handle.read(min(CHUNK, piece.start - self._at))):
                whole = last + chunk  # a return and its newline, also across two chunks, are one line end
                self._lines += whole.count(b"\n") + chunk.count(b"\r") - whole.count(b"\r\n")
                last = b"\r" if chunk.endswith(b"\r") else b""
                self._at += len(chunk)
        return self._lines


def _columns(document: Carried) -> dict[str, str]:
    """A document as `meristem corpus --out` would write it; one that was dropped with its reason."""
    told = document.metadata
    made = columns(Document(document.text, str(told.get("place", document.id)), language=told.get("language", "")))
    return {**made, "reason": told["filter_reason"]} if "filter_reason" in told else made
