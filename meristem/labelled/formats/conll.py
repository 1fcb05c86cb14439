"""CoNLL: a word a line with its columns, blank lines between sentences; one character a line in Chinese files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from meristem.corpus.source_kinds import File
from meristem.errors import MeristemError
from meristem.labelled.formats import Asked
from meristem.labelled.found import Flaw, Found, Notes, Rows
from meristem.labelled.opening import file_of, lines
from meristem.labelled.settings import DataSettings

COLUMNS = ("words", "tags")
COMMENT = re.compile(r"#\s*([\w.-]+)\s*[=:]\s*(.*)")
NUMBERED = re.compile(r"(.+?)(\d+)", re.DOTALL)
DOCUMENT = "-DOCSTART-"
UNIVERSAL = 10
"""Columns of CoNLL-U: number, form, lemma, universal tag, …"""


@dataclass
class Sentence:
    """Lines that belong together, cut into cells, and what comments say of them."""

    lines: list[tuple[int, list[str]]] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """How a file is written."""

    tabs: bool
    width: int
    """Cells in most lines."""
    tags: frozenset[str]
    """What stands in the last column of lines that are certainly no comments."""

    def cells(self, line: str) -> list[str]:
        """A line cut at tabs, or at white space."""
        return line.split("\t") if self.tabs else line.split()

    def is_comment(self, line: str) -> bool:
        """A line that begins with # and is not that character with its tag."""
        if not line.startswith("#"):
            return False
        cells = self.cells(line)
        return not (len(cells) == self.width > 1 and (self.tabs or cells[-1] in self.tags))


def read(asked: Asked, notes: Notes) -> Rows:
    """Words and tags of each sentence; the original text and the intent where comments give them."""
    file = file_of(asked.path)
    numbered = [(number, line) for number, line in lines(file, notes)]
    layout = _layout([line for _, line in numbered])
    sentences = list(_sentences(numbered, layout))
    if not any(sentence.lines for sentence in sentences):
        raise MeristemError(f"{file.name}: no words in this file")
    said = sorted({key for sentence in sentences for key in sentence.said})
    pick = _Pick(asked, file, layout, sentences)
    if pick.counted:
        notes.say(f"{file.name}: words carry a number, their place in a longer word; it is taken off")
    columns = (*COLUMNS[: 1 + (pick.tag is not None)], *said)
    return Rows(pick.found(sentences), file.name, columns, used=("words", "label"))


def _layout(every: list[str]) -> Layout:
    plain = [line for line in every if line.strip() and not line.startswith(("#", DOCUMENT))]
    tabs = sum("\t" in line for line in plain) * 2 > len(plain)
    rows = [line.split("\t") if tabs else line.split() for line in plain]
    (width, _), *_ = Counter(map(len, rows)).most_common(1) or [(1, 0)]
    return Layout(tabs, width, frozenset(row[-1] for row in rows if len(row) == width > 1))


def _sentences(numbered: list[tuple[int, str]], layout: Layout) -> Iterator[Sentence]:
    sentence = Sentence()
    for number, line in numbered:
        if not line.strip():
            if sentence.lines:
                yield sentence
                sentence = Sentence()
        elif line.startswith(DOCUMENT):
            continue
        elif layout.is_comment(line):
            if found := COMMENT.fullmatch(line.strip()):
                sentence.said[found[1].lower()] = found[2]
        else:
            sentence.lines.append((number, layout.cells(line)))
    if sentence.lines:
        yield sentence


class _Pick:
    """Which cells are words and tags, and the rows they make."""

    def __init__(self, asked: Asked, file: File, layout: Layout, sentences: list[Sentence]) -> None:
        self.name, self.width = file.name, layout.width
        first = [cells for sentence in sentences[:100] for _, cells in sentence.lines]
        self.universal = layout.width == UNIVERSAL and all(cells[0][:1].isdigit() for cells in first)
        self.word = self._number("words", asked.data, 1 if self.universal else 0)
        last = 3 if self.universal else layout.width - 1
        tag = self._number("label", asked.data, last)
        self.tag = None if tag == self.word else tag
        if self.tag is None and asked.gold:
            raise MeristemError(f"{file.name}: one column, words without tags; a word and its tag stand in one line")
        self.counted = _counted(sentences, self.word)

    def _number(self, setting: str, data: DataSettings, usual: int) -> int:
        """A column by its number from 1, or the usual one."""
        wanted = getattr(data, setting)
        if wanted is None or wanted in COLUMNS:
            return usual
        if not wanted.isdigit() or not 1 <= int(wanted) <= self.width:
            raise MeristemError(
                f"{self.name}: data.{setting}: no column {wanted!r}; columns of a CoNLL file are numbers, "
                f"here 1 to {self.width}"
            )
        return int(wanted) - 1

    def found(self, sentences: list[Sentence]) -> Iterator[Found | Flaw]:
        """A row for each sentence, or the first line of it that does not fit."""
        for sentence in sentences:
            ragged = next((one for one in sentence.lines if len(one[1]) != self.width), None)
            if ragged is not None:
                number, cells = ragged
                yield Flaw(
                    f"{self.name}:{number}: {len(cells)} cell{'s' * (len(cells) != 1)} "
                    f"({' '.join(cells)[:40]!r}), but other lines have {self.width}"
                )
                continue
            kept = [cells for _, cells in sentence.lines if not self.universal or cells[0].isdigit()]
            words = [cells[self.word] for cells in kept]
            values: dict[str, Any] = {**sentence.said, "words": [_bare(w) for w in words] if self.counted else words}
            if self.tag is not None:
                values["tags"] = [cells[self.tag] for cells in kept]
            yield Found(values, f"{self.name}:{sentence.lines[0][0]}")


def _counted(sentences: list[Sentence], column: int) -> bool:
    """Whether each word ends in its place in a longer word: 科0 技1 全0 方1 位2."""
    words = follow = 0
    for sentence in sentences:
        before = -1
        for _, cells in sentence.lines:
            match = NUMBERED.fullmatch(cells[column]) if column < len(cells) else None
            if match is None:
                return False
            number = int(match[2])
            words, follow = words + 1, follow + (number in (0, before + 1))
            before = number
    return words > 1 and follow > 0.99 * words


def _bare(word: str) -> str:
    match = NUMBERED.fullmatch(word)
    return match[1] if match else word
