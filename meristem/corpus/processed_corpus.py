"""Processed corpus cached on disk in parts: an interrupted pass resumes, and files added later are appended.

The history of added files is saved before they are read, and everything else follows from it: the parts, their limits
and their contents are the same however often the pass was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.cache_folder import cache_dir as cache_dir
from meristem.corpus.corpus_parts import (
    CorpusPart,
    FrozenRecord,
    IndexRange,
    PartWriter,
    discard_parts,
    folder_lock,
    iter_documents,
    load_finished_parts,
    load_sealed_json,
    part_path,
    save_sealed_json,
)
from meristem.corpus.corpus_sources import find_sources, resolve_sources
from meristem.corpus.dedup.document_filter import DocumentFilter
from meristem.corpus.document_batches import DocumentBatch
from meristem.corpus.read_ranges import ReadRange, plan_held_out_ranges, plan_ranges
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.source_keys import fingerprint, held_out_keys, keys
from meristem.data.sources import FileSource, ParallelSource, Source
from meristem.utils.durable_files import range_sha256

PART_BYTES = 64 << 20
"""Bytes of input after which a part ends, at the end of a read range; a larger range is cut at twice as many."""

PROCESSING = "processing this corpus"
"""What another process that holds the lock is doing."""

ReadBatchesFn = Callable[[list[ReadRange]], Iterator[tuple[ReadRange, DocumentBatch]]]
"""Reads and cleans ranges, in worker processes or this one: their batches in order."""

SourceKey = list[str | int | None]


class IngestHistory(FrozenRecord):
    """Which files were added when; each time new files are found is an increment."""

    times: int
    """How often the corpus was reprocessed from scratch, because a file had changed or disappeared."""
    files: list[list[SourceKey]]

    @property
    def origin(self) -> str:
        """Identifies the pass: the same as long as files are only added."""
        return fingerprint(self.times, self.files[0])[:16]

    @property
    def state(self) -> str:
        """How far the corpus has grown: the number of increments, and a digest of their files."""
        return f"{len(self.files)}-{fingerprint(self.files)[:8]}"


@dataclass
class ProcessedCorpus:
    """A complete processed corpus, in parts."""

    folder: Path
    history: IngestHistory
    parts: list[CorpusPart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Messages for the user: files that had changed, parts that were damaged."""

    @property
    def account(self) -> CorpusAccount:
        """Counts of everything that was read, without the splits, which are assigned later."""
        total = CorpusAccount()
        for note in self.notes:
            total.warn(note)
        for part in self.parts:
            total.merge(CorpusAccount.from_dict(part.account))
        return total

    @property
    def num_source_documents(self) -> int:
        """Documents of the source, without separate validation and test data."""
        return sum(part.kept - part.held_out for part in self.parts)


def processed_corpus_dir(settings: CorpusSettings) -> Path | None:
    """Where a processed corpus is cached; None if no setting needs processing, or if it does not come from files."""
    if not settings.needs_processing:
        return None
    resolved = find_sources(settings)
    if not are_all_files(resolved.all_sources):
        return None
    source_paths = [
        [_absolute_path(source), target if target is None or not Path(target).is_file() else _absolute_path(target)]
        for source, target in zip(settings.sources, settings.targets, strict=True)
    ]
    key_fields = settings.cache_key_fields()
    # splits are assigned and canaries planted when parts are read; targets are in the key
    for name in ("validation", "test", "target", "canaries"):
        key_fields.pop(name, None)
    return cache_dir() / "corpora" / fingerprint(key_fields, source_paths, *held_out_keys(resolved))[:20]


def are_all_files(sources: Iterable[Source]) -> bool:
    """Whether all sources are files, which can be read again."""
    return all(isinstance(source, FileSource | ParallelSource) for source in sources)


def _absolute_path(path: str) -> str:
    """An absolute path."""
    return str(Path(path).expanduser().absolute())


def load_history(settings: CorpusSettings, folder: Path) -> tuple[IngestHistory, list[str]]:
    """The history of added files, brought up to date, and messages for the user."""
    with folder_lock(folder, PROCESSING):
        return _update_history(keys(resolve_sources(settings)), folder)


def _update_history(current: list[SourceKey], folder: Path) -> tuple[IngestHistory, list[str]]:
    path = folder / "turns.json"
    try:
        saved = IngestHistory.model_validate(load_sealed_json(path)) if path.exists() else None
        notes = []
    except (MeristemError, ValueError):
        saved, notes = None, [f"{path}: damaged; processing the corpus again"]
    if saved is None:
        return _save_history(IngestHistory(times=0, files=[current]), path), notes
    known = {tuple(file_key): file_key for files in saved.files for file_key in files}
    missing_keys = [known[file_key] for file_key in known.keys() - set(map(tuple, current))]
    if missing_keys:
        missing_keys.sort(key=str)
        others = f" and {len(missing_keys) - 1:,} others" if len(missing_keys) > 1 else ""
        note = (
            f"{missing_keys[0][1]}{others}: changed or deleted since the corpus was processed; "
            "processing all of it again"
        )
        return _save_history(IngestHistory(times=saved.times + 1, files=[current]), path), [note]
    if new_keys := [file_key for file_key in current if tuple(file_key) not in known]:
        saved = _save_history(IngestHistory(times=saved.times, files=[*saved.files, new_keys]), path)
    return saved, []


def _save_history(history: IngestHistory, path: Path) -> IngestHistory:
    save_sealed_json(path, history.model_dump())
    return history


def process_corpus(
    settings: CorpusSettings,
    folder: Path,
    read_batches: ReadBatchesFn,
    *,
    verify: bool = True,
    progress: Callable[[CorpusAccount], None] | None = None,
) -> ProcessedCorpus:
    """Bring a processed corpus up to date: complete parts are kept, everything else is processed now."""
    sources = resolve_sources(settings)
    with folder_lock(folder, PROCESSING):
        history, notes = _update_history(keys(sources), folder)
        processed = ProcessedCorpus(folder, history, notes=notes)
        processed.parts, damage = load_finished_parts(folder, history.origin, verify=verify)
        if not damage and not _is_complete(processed, settings):
            damage = _drop_parts_without_index(processed)
        if damage:
            notes.append(f"{damage}; processing again from there")
        if damage or not _is_complete(processed, settings):
            discard_parts(folder, len(processed.parts))
            _process_remaining(processed, sources, settings, read_batches, progress)
    return processed


def _is_complete(processed: ProcessedCorpus, settings: CorpusSettings) -> bool:
    if not processed.parts:
        return False
    last = processed.parts[-1]
    return last.last and (
        last.turn == len(processed.history.files) - 1 or processed.num_source_documents == settings.max_documents
    )


def _drop_parts_without_index(processed: ProcessedCorpus) -> str:
    """Resuming needs the index as each part left it; parts from the first one without it are dropped, with a note."""
    widths = {"digests": 16, "signatures": 252, "numbers": 8}
    for number, part in enumerate(processed.parts):
        for name, rows in part.index.items():
            path, width = processed.folder / "index" / name, widths[name]
            if not path.is_file() or range_sha256(path, rows.start * width, rows.stop * width) != rows.sha256:
                del processed.parts[number:]
                return f"{path}: damaged at the entries of {part_path(processed.folder, number, 'jsonl')} was written"
    return ""


def _process_remaining(
    processed: ProcessedCorpus,
    sources: Sequence[Source],
    settings: CorpusSettings,
    read_batches: ReadBatchesFn,
    progress: Callable[[CorpusAccount], None] | None,
) -> None:
    last = processed.parts[-1] if processed.parts else None
    counts = {name: rows.stop for name, rows in last.index.items()} if last else {}
    by_key = dict(zip(map(tuple, keys(sources)), sources, strict=True))
    held_out = find_sources(settings).held_out
    with DocumentFilter(
        settings,
        processed.folder / "index",
        counts=counts,
        num_kept=processed.num_source_documents,
        lines_passed=last.passed if last else 0,
    ) as document_filter:
        if held_out:
            document_filter.add_held_out(iter_documents(processed.folder, processed.parts))
        first = 0 if last is None else last.turn + last.last
        for increment in range(first, len(processed.history.files)):
            if document_filter.is_full:
                return
            is_resumed = last is not None and not last.last and last.turn == increment
            start = (last.piece, last.batches) if last and is_resumed else (0, 0)
            files = [by_key[tuple(file_key)] for file_key in processed.history.files[increment]]
            held_out_ranges = [] if increment else list(plan_held_out_ranges(held_out, settings))
            IncrementWriter(
                processed, increment, [*held_out_ranges, *plan_ranges(files, settings)], document_filter, progress
            ).run(read_batches, *start)


class IncrementWriter:
    """Writes the parts of one increment."""

    def __init__(
        self,
        processed: ProcessedCorpus,
        increment: int,
        read_ranges: list[ReadRange],
        document_filter: DocumentFilter,
        progress: Callable[[CorpusAccount], None] | None,
    ) -> None:
        self._processed, self._increment, self._read_ranges = processed, increment, read_ranges
        self._document_filter, self._progress = document_filter, progress
        self._total = processed.account

    def run(self, read_batches: ReadBatchesFn, first_range: int, skip_batches: int) -> None:
        """Write all parts from a read range on, skipping the batches of it that were already written."""
        self._begin_part(first_range)
        range_index, num_taken = first_range, 0
        try:
            for read_range, batch in read_batches(self._read_ranges[first_range:]):
                while self._read_ranges[range_index] is not read_range:
                    range_index, num_taken = range_index + 1, 0
                    if self._document_filter.account.bytes >= PART_BYTES:
                        self._finish_part(range_index, 0)
                        self._begin_part(range_index)
                num_taken += 1
                if range_index == first_range and num_taken <= skip_batches:
                    continue
                selected = self._document_filter.select(read_range, batch)
                self._held_out += len(selected) if read_range.split else 0
                self._part_writer.add(selected)
                self._report_progress()
                if self._document_filter.is_full:
                    break
                if self._document_filter.account.bytes >= 2 * PART_BYTES:
                    self._finish_part(range_index, num_taken)
                    self._begin_part(range_index)
            self._finish_part(len(self._read_ranges), 0, last=True)
        except BaseException:
            self._part_writer.discard()
            raise

    def _begin_part(self, first_range: int) -> None:
        self._first_range, self._held_out = first_range, 0
        self._starts = {name: len(file) for name, file in self._document_filter.files.items()}
        self._part_writer = PartWriter(self._processed.folder, len(self._processed.parts))

    def _finish_part(self, next_range: int, num_batches: int, *, last: bool = False) -> None:
        """Save the index, then the documents, then their metadata, which marks the part as finished."""
        covered = self._read_ranges[self._first_range : next_range + (num_batches > 0)]
        index = {}
        for name, file in self._document_filter.files.items():
            file.flush()
            index[name] = IndexRange(start=self._starts[name], stop=len(file), sha256=file.digest(self._starts[name]))
        account = self._document_filter.account.pop_counts()
        part = CorpusPart(
            origin=self._processed.history.origin,
            number=len(self._processed.parts),
            turn=self._increment,
            covers=[[read_range.source.name, read_range.start, read_range.stop] for read_range in covered],
            files=keys(dict.fromkeys(read_range.source for read_range in covered)),
            piece=next_range,
            batches=num_batches,
            passed=self._document_filter.lines_passed,
            last=last,
            size=self._part_writer.size,
            sha256=self._part_writer.finish(),
            index=index,
            account=account.to_dict(),
            held_out=self._held_out,
        )
        save_sealed_json(part_path(self._processed.folder, part.number, "json"), part.model_dump())
        self._processed.parts.append(part)
        self._total.merge(account)

    def _report_progress(self) -> None:
        if self._progress is not None:
            current = self._document_filter.account
            self._progress(CorpusAccount(bytes=self._total.bytes + current.bytes, read=self._total.read + current.read))
