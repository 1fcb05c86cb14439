"""One file per format; each gives the rows of a source with their places. Which one it is, is found out here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from meristem.corpus.file_search import glob_files
from meristem.corpus.sources import HUB_NAME, missing
from meristem.errors import MeristemError
from meristem.labelled.columns import TAGS, TEXT, USUAL, WORDS
from meristem.labelled.found import Notes, Rows
from meristem.labelled.opening import file_of, head
from meristem.labelled.settings import DataSettings

ENDINGS = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "table",
    ".tsv": "table",
    ".tab": "table",
    ".conll": "conll",
    ".conllu": "conll",
    ".iob": "conll",
    ".bio": "conll",
}
TAGGED = {"words", "command"}
WRITTEN = {"written", "turns"}
PROMPTS = {"prompt", "picture_prompt"}
"""Shapes that need nothing right beside them, so that a plain text file is one prompt a line."""
PLAIN = {"", ".txt", ".text"}
"""Endings of files without columns."""


@dataclass(frozen=True)
class Asked:
    """A source, and what is known of what it is for."""

    source: str
    data: DataSettings
    shape: str
    gold: bool = True
    """Whether it must hold what is right; not for files to predict on."""
    target: str | None = None
    """Parallel text: the other side's file."""
    split: str = "train"
    """The split of a hub data set, where the source names none."""

    @property
    def path(self) -> Path:
        """The source as a path."""
        return Path(self.source).expanduser()


def rows(asked: Asked, notes: Notes) -> Iterator[Rows]:
    """The rows of each file that a source stands for."""
    kind, colon, _ = asked.source.partition(":")
    if colon and kind in ("builtin", "hub"):
        yield _read(kind, asked, notes)
    elif asked.path.is_dir():
        yield _read("pictures", asked, notes)
    elif asked.path.exists():
        yield _read(_format(asked), asked, notes)
    elif any(mark in asked.source for mark in "*?["):
        for path in _matches(asked, notes):
            one = replace(asked, source=str(path), target=None)  # one other side cannot belong to several files
            yield _read(_format(one), one, notes)
    elif HUB_NAME.fullmatch(asked.source) and not asked.path.parent.is_dir() and not asked.path.suffix:
        yield _read("hub", asked, notes)
    else:
        raise MeristemError(f"data.{asked.split}: {missing(asked.path)}")


def check_source(asked: Asked) -> None:
    """Refuse a source that is not there, without reading it."""
    kind, colon, _ = asked.source.partition(":")
    if colon and kind == "builtin":
        _read(kind, asked, Notes())  # its rows are made when they are asked for
    elif (colon and kind == "hub") or asked.path.exists():
        return
    elif any(mark in asked.source for mark in "*?["):
        _matches(asked, Notes())
    elif not HUB_NAME.fullmatch(asked.source) or asked.path.parent.is_dir() or asked.path.suffix:
        raise MeristemError(f"data.{asked.split}: {missing(asked.path)}")


def _read(name: str, asked: Asked, notes: Notes) -> Rows:
    found: Rows = import_module(f"meristem.labelled.formats.{name}").read(asked, notes)
    return found


def _matches(asked: Asked, notes: Notes) -> list[Path]:
    root = Path(asked.path.anchor)
    skipped: Counter[str] = Counter()
    found = glob_files(root, str(asked.path.relative_to(root)), skipped)
    for reason, count in skipped.items():
        notes.say(f"{asked.source}: {count:,} skipped {reason}")
    if not found:
        raise MeristemError(f"data.{asked.split}: {asked.source} matches no file")
    return found


def _format(asked: Asked) -> str:
    """The format that the settings name, that the ending tells, or that the first lines look like."""
    ending = file_of(asked.path).ending
    by_ending = ENDINGS.get(ending, "")
    if asked.data.format != "auto":
        written = {"table": by_ending if by_ending in ("parquet", "json", "jsonl") else "table", "squad": "json"}
        return written.get(asked.data.format, asked.data.format)
    if by_ending in ("parquet", "json", "jsonl", "conll"):
        return by_ending
    if asked.shape in WRITTEN and not by_ending and asked.target and Path(asked.target).expanduser().is_file():
        return "parallel"
    begun = head(file_of(asked.path)).split("\n")
    if asked.shape in PROMPTS and ending in PLAIN and not _names_tabbed_columns(begun[0], asked):
        return "lines"
    named = _names_columns(begun[0], asked)
    if asked.shape in TAGGED and not named:
        return "conll"
    if by_ending or "\t" in begun[0] or named:
        return "table"
    if asked.shape in WRITTEN and asked.target is not None:
        return "parallel"  # which says what is wrong with the target
    return _without_columns(asked)


def _names_columns(line: str, asked: Asked) -> bool:
    """Whether a first line holds names that columns usually have; of words with tags it must name both."""
    cells = {cell.strip(' "').lower() for cell in line.replace(",", "\t").split("\t")}
    data = asked.data
    told = {name.lower() for name in (data.text, data.words, data.label, data.intent) if name and not name.isdigit()}
    if asked.shape in TAGGED:
        return bool(cells & {*WORDS, *TEXT, *told}) and (not asked.gold or bool(cells & {*TAGS, *told}))
    return len(cells) > 1 and bool(cells & (USUAL | told))


def _names_tabbed_columns(line: str, asked: Asked) -> bool:
    """Whether a plain text file's first line is a header with tabs; its commas are part of a prompt."""
    return "\t" in line and _names_columns(line.replace(",", " "), asked)


def _without_columns(asked: Asked) -> str:
    """Plain lines: fine to predict on; to learn from they need something right beside them."""
    if not asked.gold:
        return "lines"
    wanted = "data.target=FILE with a line for each of its lines, or " if asked.shape in WRITTEN else ""
    raise MeristemError(
        f"{asked.source}: no columns in this file; give {wanted}a file with columns (tsv, csv, jsonl, parquet), "
        "or say what it is with data.format=table|conll|squad|parallel|pictures"
    )
