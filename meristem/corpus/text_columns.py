"""Which columns contain the text and its target or image, and how a row becomes a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.config.errors import MeristemError, did_you_mean
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.document import Document, Drop, cut_document
from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR, join_pair
from meristem.corpus.settings import CorpusSettings
from meristem.data.images import ImageError, image_reference
from meristem.data.text_units import join_words

TEXT_COLUMN_NAMES = ("text", "content", "body", "sentence", "document")
SOURCE_COLUMN_NAMES = ("source", "src", "input", *TEXT_COLUMN_NAMES)
CAPTION_COLUMN_NAMES = ("caption", *TEXT_COLUMN_NAMES)
HEADER_NAMES = frozenset(
    (*SOURCE_COLUMN_NAMES, *CAPTION_COLUMN_NAMES, "id", "label", "title", "target", "picture", "review", "文本", "内容")
)
"""Column names that identify a table's header."""


@dataclass(frozen=True)
class TextColumns:
    """The text column, and the target or image column if the settings name one."""

    text: str
    target: str | None = None
    image: str | None = None

    @property
    def names(self) -> list[str]:
        """The columns to read, text first."""
        return [name for name in (self.text, self.target, self.image) if name is not None]

    def documents(
        self, values: Sequence[Any], location: str, folder: Path | None, account: CorpusAccount
    ) -> Iterator[Document | Drop]:
        """The documents of a row's values, in the order of `names`; image paths are relative to `folder`.

        A list of words or sentences is joined. Without a folder, images are references to built-in ones.
        """
        text, *others = (_joined(value) for value in values)
        if not isinstance(text, str):
            yield Drop("no text in the column")
        elif not others:
            yield from cut_document(text, location)
        elif not isinstance(others[0], str):
            yield Drop("no target in the column" if self.target else "no image in the column")
        elif self.target:
            yield join_pair(text, others[0], PAIR_SEPARATOR, location)
        else:
            try:
                reference = others[0] if folder is None else image_reference(folder / others[0])
                yield join_pair(reference, text, IMAGE_SEPARATOR, location)
            except ImageError as reason:
                account.warn(f"{location}: {reason}: {folder and folder / others[0]}")
                yield Drop(str(reason))


def _joined(value: Any) -> Any:
    """A list of words or sentences as one text; any other value unchanged."""
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return join_words(value)[0]
    return value


def find_columns(
    location: str, columns: Sequence[str], strings: Sequence[str], settings: CorpusSettings
) -> TextColumns:
    """The columns named in the settings; the text column may be detected."""
    target = settings.target if isinstance(settings.target, str) else None
    for name, requested in (("target", target), ("image", settings.image)):
        if requested is not None and requested not in columns:
            raise MeristemError(f"{location}: corpus.{name}: no column {requested!r}{did_you_mean(requested, columns)}")
    used = (target, settings.image)
    remaining, remaining_strings = ([name for name in names if name not in used] for names in (columns, strings))
    usual_names = SOURCE_COLUMN_NAMES if target else CAPTION_COLUMN_NAMES if settings.image else TEXT_COLUMN_NAMES
    return TextColumns(
        find_text_column(location, remaining, remaining_strings, settings.text, usual_names), target, settings.image
    )


def find_text_column(
    location: str,
    columns: Sequence[str],
    strings: Sequence[str],
    requested: str | None,
    usual_names: Sequence[str] = TEXT_COLUMN_NAMES,
) -> str:
    """The requested column, or one with a usual name, or the only one with strings."""
    if requested is not None:
        if requested not in columns:
            raise MeristemError(f"{location}: corpus.text: no column {requested!r}{did_you_mean(requested, columns)}")
        return requested
    candidates = [name for name in usual_names if name in columns] or (list(strings) if len(strings) == 1 else [])
    if not candidates:
        column_list = ", ".join(columns) or "none"
        raise MeristemError(f"{location}: which column holds the text? Columns: {column_list}. Set corpus.text=COLUMN")
    return candidates[0]
