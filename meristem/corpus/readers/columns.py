"""Which columns hold the text and what belongs to it, and the document a row makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.corpus.account import Account
from meristem.corpus.document import Document, Drop, cut
from meristem.corpus.pictures import NoPicture, reference
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import PAIR, PICTURE, joined
from meristem.errors import MeristemError, did_you_mean

USUAL = ("text", "content", "body", "sentence", "document")
BEFORE_A_TARGET = ("source", "src", "input", *USUAL)
CAPTION = ("caption", *USUAL)
KNOWN = frozenset((*BEFORE_A_TARGET, *CAPTION, "id", "label", "title", "target", "picture", "review", "文本", "内容"))
"""Names that tell a table's header from data."""


@dataclass(frozen=True)
class Columns:
    """The column of the text, and that of its target or picture where the settings name one."""

    text: str
    target: str | None = None
    picture: str | None = None

    @property
    def names(self) -> list[str]:
        """The columns to read, the text's first."""
        return [name for name in (self.text, self.target, self.picture) if name is not None]

    def documents(self, values: Sequence[Any], place: str, folder: Path, account: Account) -> Iterator[Document | Drop]:
        """What a row's values, in the order of `names`, make; pictures are looked for from `folder` on."""
        text, *others = values
        if not isinstance(text, str):
            yield Drop("no text in the column")
        elif not others:
            yield from cut(text, place)
        elif not isinstance(others[0], str):
            yield Drop("no target in the column" if self.target else "no picture in the column")
        elif self.target:
            yield joined(text, others[0], PAIR, place)
        else:
            try:
                yield joined(reference(folder / others[0]), text, PICTURE, place)
            except NoPicture as reason:
                account.warn(f"{place}: {reason}: {folder / others[0]}")
                yield Drop(str(reason))


def columns_of(place: str, columns: Sequence[str], strings: Sequence[str], settings: CorpusSettings) -> Columns:
    """The columns the settings ask for; the text's may be found by itself."""
    target = settings.target if isinstance(settings.target, str) else None
    for name, wanted in (("target", target), ("picture", settings.picture)):
        if wanted is not None and wanted not in columns:
            raise MeristemError(f"{place}: corpus.{name}: no column {wanted!r}{did_you_mean(wanted, columns)}")
    taken = (target, settings.picture)
    left, plain = ([name for name in names if name not in taken] for names in (columns, strings))
    usual = BEFORE_A_TARGET if target else CAPTION if settings.picture else USUAL
    return Columns(text_column(place, left, plain, settings.text, usual), target, settings.picture)


def text_column(
    place: str, columns: Sequence[str], strings: Sequence[str], wanted: str | None, usual: Sequence[str] = USUAL
) -> str:
    """The column that was asked for, or one with a usual name, or the only one with strings."""
    if wanted is not None:
        if wanted not in columns:
            raise MeristemError(f"{place}: corpus.text: no column {wanted!r}{did_you_mean(wanted, columns)}")
        return wanted
    found = [name for name in usual if name in columns] or (list(strings) if len(strings) == 1 else [])
    if not found:
        shown = ", ".join(columns) or "none"
        raise MeristemError(f"{place}: which column holds the text? Columns: {shown}. Set corpus.text=COLUMN")
    return found[0]
