"""Documents with two sides: source and target text, or an image and its caption.

They are passed around as one text, joined by a separator character that cleaning strips from all other texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from itertools import chain
from typing import NamedTuple

from meristem.corpus.document import CleaningStep, Document, Drop
from meristem.data.text_units import MAX_TEXT_CHARS

PAIR_SEPARATOR = "\x1e"
"""Between a source text and its target."""

IMAGE_SEPARATOR = "\x1d"
"""Between the reference to an image and its caption."""

SEPARATOR_KINDS = {"": "plain text", PAIR_SEPARATOR: "pairs", IMAGE_SEPARATOR: "pictures"}


class PairedText(NamedTuple):
    """The two sides of a document; plain text has only a target and no separator."""

    source: str
    target: str
    separator: str


def split_pair(text: str) -> PairedText:
    """Split a cleaned document into its sides."""
    for separator in (PAIR_SEPARATOR, IMAGE_SEPARATOR):
        source, matched, target = text.partition(separator)
        if matched:
            return PairedText(source, target, separator)
    return PairedText("", text, "")


def join_pair(source: str, target: str, separator: str, location: str) -> Document | Drop:
    """Join two sides into one document."""
    if len(source) + len(target) >= MAX_TEXT_CHARS:
        return Drop("too long")
    if separator == PAIR_SEPARATOR:
        source = source.replace(PAIR_SEPARATOR, "").replace(IMAGE_SEPARATOR, "")
    return Document(
        separator.join((source, target.replace(PAIR_SEPARATOR, "").replace(IMAGE_SEPARATOR, ""))),
        location,
        side_separator=separator,
    )


def tokenizer_texts(text: str) -> Iterator[str]:
    """The texts a tokenizer reads: both sides of a pair, the caption of an image, all of a plain text."""
    source, target, separator = split_pair(text)
    if separator == PAIR_SEPARATOR:
        yield source
    yield target


class DocumentKeys(NamedTuple):
    """What two documents must share to count as duplicates, and to be in the same split."""

    dedup_text: str
    split_text: str


def document_keys(document: Document) -> DocumentKeys:
    """An image is identified by its content, not its path; all targets or captions of the same source share a split."""
    if not document.side_separator:
        return DocumentKeys(document.text, document.text)
    source, target, separator = split_pair(document.text)
    source = source.partition(" ")[0] if separator == IMAGE_SEPARATOR else source
    return DocumentKeys(separator.join((source, target)), source)


def clean_each_side(step: CleaningStep) -> CleaningStep:
    """Apply a cleaning step to each side of a document separately; image references are not cleaned."""

    @wraps(step)
    def clean_sides(document: Document) -> Document | Drop:
        if not document.side_separator:
            return step(document)
        source, target, separator = split_pair(document.text)
        originals = [source, target] if separator == PAIR_SEPARATOR else [target]
        languages = document.language.split("-")  # en-de, or en if both sides are English
        cleaned: list[Document] = []
        for number, side in enumerate(originals):
            result = step(Document(side, document.location, language=languages[min(number, len(languages) - 1)]))
            if isinstance(result, Drop):
                return result
            cleaned.append(result)
        texts = [side.text for side in cleaned]
        language = "-".join(dict.fromkeys(side.language for side in cleaned if side.language))
        if texts == originals and language == document.language:
            return document
        text = (
            document.text
            if texts == originals
            else separator.join(texts if separator == PAIR_SEPARATOR else (source, *texts))
        )
        notes = (*document.notes, *chain.from_iterable(side.notes for side in cleaned))
        return replace(document, text=text, language=language, notes=notes)

    return clean_sides
