"""The corpus pipeline as datatrove steps (the extra `cluster`), for corpora that outgrow one machine.

    pipeline = [DatatroveReader(settings), CleaningFilter(settings), DatatroveWriter("clean/")]
    LocalPipelineExecutor(pipeline, tasks=64, workers=8).run()      # or SlurmPipelineExecutor, RayPipelineExecutor

Each task reads its share of the corpus and writes one file per piece of it, so that the folder has the same lines in
the same order whatever the number of tasks; `meristem pretrain gpt2-mini clean/` trains on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount, shift_line_number
from meristem.corpus.clean.cleaning import cleaning_steps
from meristem.corpus.corpus_command import document_columns
from meristem.corpus.corpus_sources import find_sources
from meristem.corpus.dedup.exact import DigestSet, text_digest
from meristem.corpus.document import CleaningStep, Document, Drop
from meristem.corpus.document_batches import apply_steps
from meristem.corpus.paired_text import document_keys, split_pair
from meristem.corpus.read_documents import read_documents
from meristem.corpus.read_ranges import ReadRange, plan_ranges
from meristem.corpus.settings import CorpusSettings
from meristem.data.sources import FileSource
from meristem.utils import untrusted_files

try:  # subclasses of datatrove's steps need it, and nothing else here imports this file
    from datatrove.data import Document as DatatroveDocument
    from datatrove.io import get_datafolder
    from datatrove.pipeline.base import PipelineStep
    from datatrove.pipeline.filters.base_filter import BaseFilter
    from datatrove.pipeline.writers.disk_base import DiskWriter
    from datatrove.utils.logging import logger
    from datatrove.utils.typeshelper import StatHints
except ImportError as error:
    raise MeristemError('datatrove steps need datatrove: pip install "meristem-lm[cluster]"') from error

CHUNK = 1 << 20


class DatatroveReader(PipelineStep):  # type: ignore[misc]  # datatrove is untyped
    """Reads the documents of a corpus: piece i belongs to task i modulo the number of tasks."""

    name = "Meristem: read"
    type = "📖 - READER"

    def __init__(self, settings: CorpusSettings) -> None:
        super().__init__()
        if settings.limit is not None:
            raise MeristemError(
                "corpus.limit counts over the whole corpus, which no task sees; set it in the run that "
                "reads the cleaned folder"
            )
        if settings.half is not None:
            raise MeristemError("corpus.half applies when a run reads text; set it in that run")
        if settings.held_out_sources:
            raise MeristemError("corpus.validation and corpus.test apply when a run reads text; set them in that run")
        self.settings = settings

    def run(
        self, data: Iterable[DatatroveDocument] | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[DatatroveDocument]:
        """The documents of earlier steps, then this task's share."""
        yield from data or ()
        line_counter = LineCounter()
        for number, piece in enumerate(plan_ranges(find_sources(self.settings).sources, self.settings)):
            if number % world_size == rank:
                yield from self._iter_documents(piece, f"{number:08d}", line_counter.lines_before(piece))

    def _iter_documents(self, piece: ReadRange, piece_id: str, lines_before: int) -> Iterator[DatatroveDocument]:
        account = CorpusAccount()
        for item in read_documents(piece, self.settings, account):
            self.stat_update(StatHints.total)
            if isinstance(item, Drop):
                self.stat_update(StatHints.dropped, f"dropped_{item.reason}")
                continue
            location = shift_line_number(item.location, lines_before) if lines_before else item.location
            document = DatatroveDocument(text=item.text, id=location, metadata={"place": location, "piece": piece_id})
            self.update_doc_stats(document)
            yield document
        for reason, count in account.rejected.items():
            self.stat_update(f"rejected_{reason}", value=count, unit="file")
        for warning in account.warnings:
            logger.warning(warning)


class CleaningFilter(BaseFilter):  # type: ignore[misc]  # datatrove is untyped
    """The cleaning steps of the settings, for documents of any reader; dropped documents are counted by reason."""

    name = "Meristem: clean"

    def __init__(self, settings: CorpusSettings, exclusion_writer: DiskWriter | DatatroveWriter | None = None) -> None:
        super().__init__(exclusion_writer)
        self.settings = settings
        self._line: tuple[CleaningStep, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the settings only; the steps are rebuilt from them on other machines."""
        return {**self.__dict__, "_line": ()}

    def filter(self, document: DatatroveDocument) -> bool | tuple[bool, str]:
        """Whether a document is kept, or the reason why not; a kept one is changed in place."""
        account, location = CorpusAccount(), str(document.metadata.get("place", document.id))
        corpus_document = Document(document.text, location, side_separator=self.settings.side_separator)
        self._line = self._line or cleaning_steps(self.settings)
        result = apply_steps(corpus_document, self._line, account)
        if isinstance(result, Drop):
            return False, result.reason
        document.text = result.text
        if result.language:
            document.metadata["language"] = result.language
        for step in account.repaired:
            self.stat_update(f"changed_{step}")
        for name, count in result.notes:
            self.stat_update(f"removed_{name}", value=count)
        return True


class ExactDedupFilter(BaseFilter):  # type: ignore[misc]  # datatrove is untyped
    """Keeps the first of documents with exactly the same text: one task, 16 bytes of memory per document."""

    name = "Meristem: unique"

    def __init__(self, exclusion_writer: DiskWriter | DatatroveWriter | None = None) -> None:
        super().__init__(exclusion_writer)
        self.seen = DigestSet()

    def run(self, data: Iterable[DatatroveDocument], rank: int = 0, world_size: int = 1) -> Iterator[DatatroveDocument]:
        """Raises an error with several tasks, which would not see each other's documents."""
        if world_size != 1:
            raise MeristemError(f"exact deduplication runs in one task, not in {world_size}: give this stage tasks=1")
        yield from super().run(data, rank, world_size)

    def filter(self, document: DatatroveDocument) -> bool | tuple[bool, str]:
        """Whether the text is seen for the first time."""
        identity_text, _ = document_keys(
            Document(document.text, document.id, side_separator=split_pair(document.text).separator)
        )
        (is_new,) = self.seen.add_new([text_digest(identity_text)])
        return is_new or (False, "duplicate")


class DatatroveWriter(PipelineStep):  # type: ignore[misc]  # datatrove is untyped
    """One JSON line per document, one file per piece of the corpus; a file appears only when it is complete.

    Also serves as a `CleaningFilter`'s exclusion writer: then each line has the reason.
    """

    name = "Meristem: write"
    type = "💽 - WRITER"

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = get_datafolder(folder)
        self._name = ""
        self._file: Any = None

    def run(self, data: Iterable[DatatroveDocument], rank: int = 0, world_size: int = 1) -> Iterator[DatatroveDocument]:
        """Passes the documents on; those of other readers are written to one file per task."""
        with self:
            for document in data:
                with self.track_time():
                    self.write(document, rank)
                yield document

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close_file(complete=kind is None)

    def write(self, document: DatatroveDocument, rank: int = 0) -> None:
        """Write a document to the file of its piece."""
        name = f"{document.metadata.get('piece', f'{rank:08d}')}.jsonl"
        if name != self._name:
            self._close_file(complete=True)
            self._name, self._file = name, self.folder.open(f".{name}.partial", "wb")
        self._file.write((untrusted_files.to_json(_output_columns(document)) + "\n").encode())
        self.stat_update(StatHints.total)
        self.update_doc_stats(document)

    def _close_file(self, *, complete: bool) -> None:
        if self._file is not None:
            self._file.close()
            if complete:
                self.folder.mv(f".{self._name}.partial", self._name)
        self._name, self._file = "", None


class LineCounter:
    """Counts the lines before each range of a large text file, without decoding them."""

    def __init__(self) -> None:
        self._file: FileSource | None = None
        self._offset = self._lines = 0

    def lines_before(self, piece: ReadRange) -> int:
        """Lines of the file before a piece; call it for pieces in order."""
        if not piece.start or not isinstance(piece.source, FileSource):
            return 0
        if piece.source != self._file:
            self._file, self._offset, self._lines = piece.source, 0, 0
        with piece.source.path.open("rb") as handle:
            handle.seek(self._offset)
            last = b""
            while self._offset < piece.start and (chunk := handle.read(min(CHUNK, piece.start - self._offset))):
                window = last + chunk  # "\r\n" is one line end, also across two chunks
                self._lines += window.count(b"\n") + chunk.count(b"\r") - window.count(b"\r\n")
                last = b"\r" if chunk.endswith(b"\r") else b""
                self._offset += len(chunk)
        return self._lines


def _output_columns(document: DatatroveDocument) -> dict[str, str]:
    """A document as `meristem corpus --out` writes it; a dropped one with its reason."""
    metadata = document.metadata
    row = document_columns(
        Document(document.text, str(metadata.get("place", document.id)), language=metadata.get("language", ""))
    )
    return {**row, "reason": metadata["filter_reason"]} if "filter_reason" in metadata else row
