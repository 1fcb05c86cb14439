"""CoNLL and CoNLL-U files: one word per line with its columns, blank lines between sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from meristem.config.errors import MeristemError
from meristem.data.byte_stream import UnreadableFileError
from meristem.data.formats.lines import iter_lines
from meristem.data.read_counts import ReadCounts
from meristem.data.records import BadRecord, FileFormat, ReadOptions, Record
from meristem.data.sources import FileSource

COLUMNS = ("words", "tags")
SETTINGS = {"words": "words", "tags": "label"}
"""Column → the setting that gives its number."""
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


class ConllFormat(FileFormat):
    """Words and tags of each sentence, and its comments as columns (`# text = …`, `# intent = …`)."""

    suffixes = (".conll", ".conllu", ".iob", ".bio")
    only_named = True

    def __init__(self, file: FileSource, options: ReadOptions, counts: ReadCounts) -> None:
        super().__init__(file, options, counts)
        numbered_lines = []
        for number, line in iter_lines(file, counts):
            if line is None:
                raise UnreadableFileError("a line of more than 16 million characters; is this the right file?", number)
            numbered_lines.append((number, line))
        layout = _detect_layout([line for _, line in numbered_lines])
        self._width = layout.width
        self._sentences = list(_iter_sentences(numbered_lines, layout))
        if not self._sentences:
            raise UnreadableFileError("no words in this file")
        first_cells = [cells for sentence in self._sentences[:100] for _, cells in sentence.lines]
        self._is_conllu = layout.width == CONLLU_WIDTH and all(cells[0][:1].isdigit() for cells in first_cells)
        self._word_index = self._column_index("words", 1 if self._is_conllu else 0)
        tag = self._column_index("tags", 3 if self._is_conllu else layout.width - 1)
        self._tag_index = None if tag == self._word_index else tag
        if self._tag_index is None and options.require_tags:
            raise UnreadableFileError("only one column; expected a word and its tag on each line")
        self._words_numbered = _words_are_numbered(self._sentences, self._word_index)
        if self._words_numbered:
            counts.warn(f"{self.name}: words end in a number, their position in a longer word; it is removed")
        self.text_columns = tuple(sorted({key for sentence in self._sentences for key in sentence.comments}))
        self.columns = (*COLUMNS[: 1 + (self._tag_index is not None)], *self.text_columns)

    def _column_index(self, column: str, default: int) -> int:
        """The index of a column given by its number from 1, or the default."""
        number = self.options.column_numbers.get(column)
        if number is None or number in COLUMNS:
            return default
        if not number.isdigit() or not 1 <= int(number) <= self._width:
            raise MeristemError(
                f"{self.name}: data.{SETTINGS[column]}: no column {number!r}; columns of a CoNLL file are numbers, "
                f"here 1 to {self._width}"
            )
        return int(number) - 1

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """The sentences; one with a line of another number of cells is a bad record."""
        for sentence in self._sentences:
            ragged_line = next((line for line in sentence.lines if len(line[1]) != self._width), None)
            if ragged_line is not None:
                number, cells = ragged_line
                detail = (
                    f"{len(cells)} cell{'s' * (len(cells) != 1)} ({' '.join(cells)[:40]!r}), "
                    f"but other lines have {self._width}"
                )
                yield BadRecord("broken row", f"{self.name}:{number}", detail)
                continue
            token_cells = [cells for _, cells in sentence.lines if not self._is_conllu or cells[0].isdigit()]
            words = [cells[self._word_index] for cells in token_cells]
            values: dict[str, Any] = {
                **sentence.comments,
                "words": [_strip_number(word) for word in words] if self._words_numbered else words,
            }
            if self._tag_index is not None:
                values["tags"] = [cells[self._tag_index] for cells in token_cells]
            yield Record(values, f"{self.name}:{sentence.lines[0][0]}")


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
