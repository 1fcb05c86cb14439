"""CoNLL and CoNLL-U files: one word per line with its columns, blank lines between sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from meristem.config.errors import MeristemError
from meristem.corpus.read.source_kinds import FileSource
from meristem.labelled.formats import SourceSpec
from meristem.labelled.open_file import file_from_path, iter_lines
from meristem.labelled.rows import RawRow, ReadNotes, RowError, RowStream
from meristem.labelled.settings import DataSettings

COLUMNS = ("words", "tags")
COMMENT_PATTERN = re.compile(r"#\s*([\w.-]+)\s*[=:]\s*(.*)")
NUMBERED_WORD_PATTERN = re.compile(r"(.+?)(\d+)", re.DOTALL)
DOCUMENT_MARK = "-DOCSTART-"
CONLLU_WIDTH = 10
"""Columns of CoNLL-U: number, form, lemma, universal tag, …"""


@dataclass
class ConllSentence:
    """The numbered lines of one sentence, split into cells, and its comments."""

    lines: list[tuple[int, list[str]]] = field(default_factory=list)
    comments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConllLayout:
    """The layout of a file: separator, number of columns, tags."""

    tabs: bool
    width: int
    """The most frequent number of cells in a line."""
    tags: frozenset[str]
    """Values of the last column in lines that are certainly not comments."""

    def cells(self, line: str) -> list[str]:
        """A line split at tabs, or at white space."""
        return line.split("\t") if self.tabs else line.split()

    def is_comment(self, line: str) -> bool:
        """Whether a line is a comment: it starts with # and is not the word # with its tag."""
        if not line.startswith("#"):
            return False
        cells = self.cells(line)
        return not (len(cells) == self.width > 1 and (self.tabs or cells[-1] in self.tags))


def read(spec: SourceSpec, notes: ReadNotes) -> RowStream:
    """Words and tags of each sentence, and its comments as columns (`# text = …`, `# intent = …`)."""
    file = file_from_path(spec.path)
    numbered_lines = [(number, line) for number, line in iter_lines(file, notes)]
    layout = _detect_layout([line for _, line in numbered_lines])
    sentences = list(_iter_sentences(numbered_lines, layout))
    if not any(sentence.lines for sentence in sentences):
        raise MeristemError(f"{file.name}: no words in this file")
    comment_keys = sorted({key for sentence in sentences for key in sentence.comments})
    columns_reader = _ConllColumns(spec, file, layout, sentences)
    if columns_reader.words_numbered:
        notes.add_message(f"{file.name}: words end in a number, their position in a longer word; it is removed")
    columns = (*COLUMNS[: 1 + (columns_reader.tag_index is not None)], *comment_keys)
    return RowStream(columns_reader.iter_rows(sentences), file.name, columns, consumed_settings=("words", "label"))


def _detect_layout(all_lines: list[str]) -> ConllLayout:
    data_lines = [line for line in all_lines if line.strip() and not line.startswith(("#", DOCUMENT_MARK))]
    tabs = sum("\t" in line for line in data_lines) * 2 > len(data_lines)
    rows = [line.split("\t") if tabs else line.split() for line in data_lines]
    (width, _), *_ = Counter(map(len, rows)).most_common(1) or [(1, 0)]
    return ConllLayout(tabs, width, frozenset(row[-1] for row in rows if len(row) == width > 1))


def _iter_sentences(numbered_lines: list[tuple[int, str]], layout: ConllLayout) -> Iterator[ConllSentence]:
    sentence = ConllSentence()
    for number, line in numbered_lines:
        if not line.strip():
            if sentence.lines:
                yield sentence
                sentence = ConllSentence()
        elif line.startswith(DOCUMENT_MARK):
            continue
        elif layout.is_comment(line):
            if match := COMMENT_PATTERN.fullmatch(line.strip()):
                sentence.comments[match[1].lower()] = match[2]
        else:
            sentence.lines.append((number, layout.cells(line)))
    if sentence.lines:
        yield sentence


class _ConllColumns:
    """The indices of the word and tag columns, and the rows read from them."""

    def __init__(self, spec: SourceSpec, file: FileSource, layout: ConllLayout, sentences: list[ConllSentence]) -> None:
        self.name, self.width = file.name, layout.width
        first_cells = [cells for sentence in sentences[:100] for _, cells in sentence.lines]
        self.is_conllu = layout.width == CONLLU_WIDTH and all(cells[0][:1].isdigit() for cells in first_cells)
        self.word_index = self._column_index("words", spec.settings, 1 if self.is_conllu else 0)
        last = 3 if self.is_conllu else layout.width - 1
        tag = self._column_index("label", spec.settings, last)
        self.tag_index = None if tag == self.word_index else tag
        if self.tag_index is None and spec.require_gold:
            raise MeristemError(f"{file.name}: only one column; expected a word and its tag on each line")
        self.words_numbered = _words_are_numbered(sentences, self.word_index)

    def _column_index(self, setting: str, settings: DataSettings, default: int) -> int:
        """The index of a column given by its number from 1, or the default."""
        configured_column = getattr(settings, setting)
        if configured_column is None or configured_column in COLUMNS:
            return default
        if not configured_column.isdigit() or not 1 <= int(configured_column) <= self.width:
            raise MeristemError(
                f"{self.name}: data.{setting}: no column {configured_column!r}; columns of a CoNLL file are numbers, "
                f"here 1 to {self.width}"
            )
        return int(configured_column) - 1

    def iter_rows(self, sentences: list[ConllSentence]) -> Iterator[RawRow | RowError]:
        """A row for each sentence, or a RowError for its first line with another number of cells."""
        for sentence in sentences:
            ragged_line = next((line for line in sentence.lines if len(line[1]) != self.width), None)
            if ragged_line is not None:
                number, cells = ragged_line
                yield RowError(
                    f"{self.name}:{number}: {len(cells)} cell{'s' * (len(cells) != 1)} "
                    f"({' '.join(cells)[:40]!r}), but other lines have {self.width}"
                )
                continue
            token_cells = [cells for _, cells in sentence.lines if not self.is_conllu or cells[0].isdigit()]
            words = [cells[self.word_index] for cells in token_cells]
            values: dict[str, Any] = {
                **sentence.comments,
                "words": [_strip_number(word) for word in words] if self.words_numbered else words,
            }
            if self.tag_index is not None:
                values["tags"] = [cells[self.tag_index] for cells in token_cells]
            yield RawRow(values, f"{self.name}:{sentence.lines[0][0]}")


def _words_are_numbered(sentences: list[ConllSentence], column: int) -> bool:
    """Whether each word ends in its position in a longer word: 科0 技1 全0 方1 位2."""
    num_words = num_consecutive = 0
    for sentence in sentences:
        previous = -1
        for _, cells in sentence.lines:
            match = NUMBERED_WORD_PATTERN.fullmatch(cells[column]) if column < len(cells) else None
            if match is None:
                return False
            number = int(match[2])
            num_words, num_consecutive = num_words + 1, num_consecutive + (number in (0, previous + 1))
            previous = number
    return num_words > 1 and num_consecutive > 0.99 * num_words


def _strip_number(word: str) -> str:
    match = NUMBERED_WORD_PATTERN.fullmatch(word)
    return match[1] if match else word
