"""Deduplication of a corpus pass: drops exact and near duplicates, applies the limits, and counts everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np

from meristem.corpus.accounting import CorpusAccount, shift_line_number
from meristem.corpus.dedup.append_only_array import BLOCK_ROWS, AppendOnlyArray
from meristem.corpus.dedup.exact import DigestSet
from meristem.corpus.dedup.lsh_index import LSHIndex
from meristem.corpus.document_batches import DocumentBatch
from meristem.corpus.paired_text import IMAGE_SEPARATOR, SEPARATOR_KINDS, split_pair
from meristem.corpus.read_ranges import ReadRange
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.split import UnsplitDocument, document_half, share_position


class DocumentFilter:
    """The documents seen so far; with a folder, saved there so that a later pass can continue from them."""

    def __init__(
        self,
        settings: CorpusSettings,
        folder: Path | None = None,
        *,
        counts: Mapping[str, int] = {},
        num_kept: int = 0,
        lines_passed: int = 0,
    ) -> None:
        self._settings = settings
        self.account = CorpusAccount()
        """Counts since they were last taken."""
        self.num_kept, self.lines_passed = num_kept, lines_passed
        """Documents of the source kept in total; lines already read of the current file."""
        self.held_out: dict[float, str] = {}
        """Splits of documents from separate validation and test data, by their number."""
        self._read_range: ReadRange | None = None
        self._lines_before = 0
        self._temp_dir = TemporaryDirectory(prefix="meristem-") if folder is None and settings.near_dedup else None
        index_folder = Path(self._temp_dir.name) if self._temp_dir else folder
        self.files: dict[str, AppendOnlyArray] = {}
        """Files needed to resume later, by name."""
        self._digests = DigestSet() if settings.deduplicate else None
        self._lsh_index: LSHIndex | None = None
        if index_folder is not None:
            self._open_index(index_folder, counts, keep=folder is not None)

    def _open_index(self, index_folder: Path, counts: Mapping[str, int], *, keep: bool) -> None:
        index_folder.mkdir(parents=True, exist_ok=True)
        if self._digests is not None and keep:
            digests = AppendOnlyArray(index_folder / "digests", "S16", count=counts.get("digests", 0))
            self.files["digests"] = digests
            for first_row in range(0, len(digests), BLOCK_ROWS):
                self._digests.add_known(digests.rows(slice(first_row, first_row + BLOCK_ROWS))[:, 0])
        if self._settings.near_dedup is not None:
            self._lsh_index = LSHIndex(self._settings.near_dedup, index_folder, count=counts.get("signatures", 0))
            self.files["signatures"] = self._lsh_index.signatures
            if not self._settings.near_dedup.drop:
                self.files["numbers"] = AppendOnlyArray(index_folder / "numbers", "<f8", count=counts.get("numbers", 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self.files.values():
            file.close()
        if self._temp_dir is not None:
            self._temp_dir.cleanup()

    @property
    def is_full(self) -> bool:
        """Whether corpus.limit is reached."""
        return self.num_kept == self._settings.max_documents

    def add_held_out(self, held_out_documents: Iterable[UnsplitDocument]) -> None:
        """Add the held-out documents that an earlier pass kept; they come before all others."""
        self.held_out.update(
            (document.number, document.split)
            for document in takewhile(lambda document: document.split, held_out_documents)
        )

    def select(self, read_range: ReadRange, batch: DocumentBatch) -> list[UnsplitDocument]:
        """The documents of a batch that are kept; the others are counted as dropped."""
        self._count_lines(read_range, batch)
        self.account.merge(batch.account)
        selected = self._drop_held_out(batch, list(range(len(batch.texts))), read_range.split)
        selected = self._drop_exact_duplicates(batch, selected)
        if self._lsh_index is not None:
            selected = self._drop_near_duplicates(batch, selected)
            selected = self._drop_held_out(batch, selected, read_range.split)  # near duplicates of it as well
        if not read_range.split:
            selected = self._apply_limits(batch, selected)
            self.num_kept += len(selected)
        separator = self._settings.side_separator
        self.account.keep(read_range.source.name, [_characters(batch.texts[index], separator) for index in selected])
        if separator:
            self.account.kinds[SEPARATOR_KINDS[separator]] += len(selected)
        return [
            UnsplitDocument(
                batch.texts[index],
                batch.locations[index],
                batch.split_numbers[index],
                batch.languages[index],
                read_range.split,
            )
            for index in selected
        ]

    def _drop_held_out(self, batch: DocumentBatch, candidates: list[int], split: str) -> list[int]:
        """Candidates that are not in the separate held-out data; documents of such data are recorded."""
        known_splits = {index: self.held_out.get(batch.split_numbers[index], "") for index in candidates}
        for other in sorted(set(known_splits.values()) - {"", split}):
            dropped = [index for index, known_split in known_splits.items() if known_split == other]
            self._drop_documents(f"also in the {other} data", batch, dropped)
        selected = [index for index in candidates if known_splits[index] in ("", split)]
        if split:
            self.held_out.update((batch.split_numbers[index], split) for index in selected)
        return selected

    def _apply_limits(self, batch: DocumentBatch, candidates: list[int]) -> list[int]:
        """Candidates within the half, share and number of documents that the settings allow."""
        settings = self._settings
        if settings.half is not None:
            in_half = [index for index in candidates if document_half(batch.split_numbers[index]) == settings.half]
            candidates = self._drop_rest(in_half, candidates, "in the other half")
        if (share := settings.document_share) is not None:
            in_share = [index for index in candidates if share_position(batch.digests[index]) < share]
            candidates = self._drop_rest(in_share, candidates, f"outside of {settings.limit} of the documents")
        if settings.max_documents is not None:
            within_limit = candidates[: settings.max_documents - self.num_kept]
            candidates = self._drop_rest(within_limit, candidates, "over the limit")
        return candidates

    def _drop_rest(self, selected: list[int], candidates: list[int], reason: str) -> list[int]:
        self.account.drop(reason, len(candidates) - len(selected))
        return selected

    def _count_lines(self, read_range: ReadRange, batch: DocumentBatch) -> None:
        """Convert locations from lines of a range to lines of the file, and add up the lines at the end of a range."""
        if read_range is not self._read_range:
            self._lines_before = self.lines_passed if read_range.start else 0
            self.lines_passed, self._read_range = self._lines_before, read_range
        if self._lines_before:
            batch.locations = [shift_line_number(location, self._lines_before) for location in batch.locations]
            batch.account.shift_line_numbers(self._lines_before)
        self.lines_passed += batch.account.lines

    def _drop_exact_duplicates(self, batch: DocumentBatch, candidates: list[int]) -> list[int]:
        if self._digests is None:
            return candidates
        new_flags = self._digests.add_new([batch.digests[index] for index in candidates])
        selected = list(compress(candidates, new_flags))
        self._drop_documents("duplicate", batch, list(compress(candidates, (not is_new for is_new in new_flags))))
        if "digests" in self.files:
            self.files["digests"].append(np.array([batch.digests[index] for index in selected], "S16"))
        return selected

    def _drop_near_duplicates(self, batch: DocumentBatch, candidates: list[int]) -> list[int]:
        """Candidates without near duplicates; or all, each near duplicate in the split of its original."""
        assert self._lsh_index is not None and batch.signatures is not None
        first = self._lsh_index.query_and_add(batch.signatures[candidates])
        new_indices = list(compress(candidates, first < 0))
        if "numbers" not in self.files:
            self._drop_documents("near duplicate", batch, list(compress(candidates, first >= 0)))
            return new_indices
        numbers = self.files["numbers"]
        numbers.append(np.array([batch.split_numbers[index] for index in new_indices]))
        for index, match in zip(candidates, first.tolist(), strict=True):
            if match >= 0:
                batch.split_numbers[index] = float(numbers.rows(match)[0])
        return candidates

    def _drop_documents(self, reason: str, batch: DocumentBatch, dropped: Sequence[int]) -> None:
        self.account.drop(reason, len(dropped))
        self.account.add_examples(reason, [(batch.locations[index], batch.texts[index]) for index in dropped])


def _characters(text: str, separator: str) -> int:
    """Characters of a document's text, without the separator and the reference to an image."""
    if separator == IMAGE_SEPARATOR:
        return len(split_pair(text).target)
    return len(text) - len(separator)
