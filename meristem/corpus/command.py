"""What `meristem corpus` does: a whole pass, told and, where asked, written down."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from meristem import bounded
from meristem.corpus.document import Document
from meristem.corpus.look import Look
from meristem.corpus.pictures import BUILTIN
from meristem.corpus.reading import Progress as Read
from meristem.corpus.reading import Reading
from meristem.corpus.refining import home
from meristem.corpus.report import CorpusReport
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PAIR, PICTURE, sides
from meristem.corpus.tokens import TokenCounter
from meristem.errors import MeristemError, RecipeError
from meristem.overrides import override
from meristem.settings import build

PAGE = "report.html"


def report(
    source: str, overrides: Sequence[str], console: Console, *, out: Path | None = None, page: Path | None = None,
    tokens: TokenCounter | None = None,
) -> CorpusReport:
    """Read everything once; with `out`, one JSON line per kept document in its split's file, and the page beside.

    `tokens` counts what a tokenizer makes of the kept documents.
    """
    plain = override({"corpus": {"source": source}}, overrides)
    if set(plain) != {"corpus"}:
        raise RecipeError(f"corpus takes only corpus.… settings, not {', '.join(sorted(set(plain) - {'corpus'}))}")
    settings = build(CorpusSettings, plain["corpus"], "corpus")
    assert isinstance(settings, CorpusSettings)
    pages = [path for path in (page, out and out / PAGE) if path]
    _refuse_in_the_way(pages, out)
    look = Look(settings)
    with Bar(console, "reading") as bar:
        reading = Reading(settings, progress=bar.show, folder=home(settings))
        documents = look.watched(tokens.watched(reading) if tokens else reading)
        try:
            if out is None:
                for _ in documents:
                    pass
            else:
                _write(documents, out)
        except MeristemError:
            if page and reading.account.read:  # nothing was kept, and the page is what shows why
                _write_pages(_told(reading, look, tokens), [page])
            raise
    told = _told(reading, look, tokens)
    _write_pages(told, pages)
    for warning in reading.account.warnings:
        console.print(f"  {warning}", highlight=False, markup=False, soft_wrap=True)
    return told


def _refuse_in_the_way(pages: Sequence[Path], out: Path | None) -> None:
    """What could not be written after a long pass is refused before it."""
    for path in pages:
        if path.is_dir():
            raise RecipeError(f"--report {path}: is a folder; give a file, such as {path / PAGE}")
    for folder in (*(path.parent for path in pages), *([out] if out else [])):
        there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise RecipeError(f"{folder}: cannot be written to, because of {there}")


def _told(reading: Reading, look: Look, tokens: TokenCounter | None) -> CorpusReport:
    reading.account.passages = look.passages
    found = None if tokens is None else tokens.found
    return CorpusReport(account=reading.account, looked=look.found(), settings=reading.settings, tokens=found)


def _write_pages(told: CorpusReport, paths: Sequence[Path]) -> None:
    from meristem.corpus.report_page import page
    from meristem.drawing.page import written_now

    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(told, date=written_now()), encoding="utf-8")


def _write(documents: Iterable[Document], out: Path) -> None:
    """Files appear under their names only when they are whole."""
    out.mkdir(parents=True, exist_ok=True)
    names = ("train", "validation", "test")
    files = {name: (out / f".{name}.jsonl.partial").open("w", encoding="utf-8") for name in names}
    try:
        for document in documents:
            files[document.split].write(bounded.to_json(columns(document)) + "\n")
    finally:
        for file in files.values():
            file.close()
    for name in names:
        (out / f".{name}.jsonl.partial").replace(out / f"{name}.jsonl")


def columns(document: Document) -> dict[str, str]:
    """A document as it would be read again: a pair with corpus.target=target, a picture with corpus.picture=picture."""
    given, told, mark = sides(document.text)
    if mark == PAIR:
        return {"source": given, "target": told, "place": document.place}
    if mark == PICTURE:
        content, _, place = given.partition(" ")
        picture = content if place == BUILTIN else str(Path(place).resolve())
        return {"picture": picture, "text": told, "place": document.place}
    language = {"language": document.language} if document.language else {}
    return {"text": told, "place": document.place, **language}


class Bar(Progress):
    """A bar over the bytes of a pass; nothing where there is no terminal."""

    def __init__(self, console: Console, what: str) -> None:
        super().__init__(
            TextColumn(f"{what} " + "{task.fields[documents]:,} documents"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.add_task(what, total=None, documents=0)

    def show(self, read: Read) -> None:
        """Move the bar."""
        self.update(self.task, completed=read.bytes, total=read.total or None, documents=read.documents)
