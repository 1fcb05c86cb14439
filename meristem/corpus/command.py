"""What `meristem corpus` does: a whole pass, told and, where asked, written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from meristem.corpus.account import Account
from meristem.corpus.document import Document
from meristem.corpus.pictures import BUILTIN
from meristem.corpus.reading import Progress as Read
from meristem.corpus.reading import Reading
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PAIR, PICTURE, sides
from meristem.overrides import override
from meristem.settings import RecipeError, build


def report(source: str, overrides: Sequence[str], out: Path | None, console: Console) -> Account:
    """Read everything once; with `out`, one JSON line per kept document in its split's file."""
    plain = override({"corpus": {"source": source}}, overrides)
    if set(plain) != {"corpus"}:
        raise RecipeError(f"corpus takes only corpus.… settings, not {', '.join(sorted(set(plain) - {'corpus'}))}")
    settings = build(CorpusSettings, plain["corpus"], "corpus")
    assert isinstance(settings, CorpusSettings)
    with Bar(console, "reading") as bar:
        reading = Reading(settings, progress=bar.show)
        if out is None:
            for _ in reading:
                pass
        else:
            _write(reading, out)
    for warning in reading.account.warnings:
        console.print(f"  {warning}", highlight=False, markup=False, soft_wrap=True)
    return reading.account


def _write(reading: Reading, out: Path) -> None:
    """Files appear under their names only when they are whole."""
    out.mkdir(parents=True, exist_ok=True)
    names = ("train", "validation", "test")
    files = {name: (out / f".{name}.jsonl.partial").open("w", encoding="utf-8") for name in names}
    try:
        for document in reading:
            files[document.split].write(json.dumps(_columns(document), ensure_ascii=False) + "\n")
    finally:
        for file in files.values():
            file.close()
    for name in names:
        (out / f".{name}.jsonl.partial").replace(out / f"{name}.jsonl")


def _columns(document: Document) -> dict[str, str]:
    """A document as it would be read again: a pair with corpus.target=target, a picture with corpus.picture=picture."""
    given, told, mark = sides(document.text)
    if mark == PAIR:
        return {"source": given, "target": told, "place": document.place}
    if mark == PICTURE:
        content, _, place = given.partition(" ")
        picture = content if place == BUILTIN else str(Path(place).resolve())
        return {"picture": picture, "text": told, "place": document.place}
    return {"text": told, "place": document.place}


class Bar(Progress):
    """A bar over the bytes of a pass; nothing where there is no terminal."""

    def __init__(self, console: Console, what: str) -> None:
        super().__init__(
            TextColumn(f"{what} " + "{task.fields[documents]:,} documents"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.add_task(what, total=None, documents=0)

    def show(self, read: Read) -> None:
        """Move the bar."""
        self.update(self.task, completed=read.bytes, total=read.total or None, documents=read.documents)
