"""Documents with two sides: what is given, a text or a picture, and what is told of it.

They travel as one text, the sides joined by a mark that cleaning strips from every other text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import wraps
from itertools import chain
from typing import NamedTuple

from meristem.corpus.document import LONGEST, Document, Drop, Step

PAIR = "\x1e"
"""Between a source text and its target."""

PICTURE = "\x1d"
"""Between a picture's reference and its caption."""

KINDS = {"": "plain text", PAIR: "pairs", PICTURE: "pictures"}


class Sides(NamedTuple):
    """A document's sides; plain text has nothing given and no mark."""

    given: str
    told: str
    mark: str


def sides(text: str) -> Sides:
    """A cleaned document taken apart."""
    for mark in (PAIR, PICTURE):
        given, found, told = text.partition(mark)
        if found:
            return Sides(given, told, mark)
    return Sides("", text, "")


def joined(given: str, told: str, mark: str, place: str) -> Document | Drop:
    """Two sides as one document."""
    if len(given) + len(told) >= LONGEST:
        return Drop("too long")
    if mark == PAIR:
        given = given.replace(PAIR, "").replace(PICTURE, "")
    return Document(mark.join((given, told.replace(PAIR, "").replace(PICTURE, ""))), place, mark=mark)


def words(text: str) -> Iterator[str]:
    """What a tokenizer learns from: both sides of a pair, the caption of a picture, the whole of a plain text."""
    given, told, mark = sides(text)
    if mark == PAIR:
        yield given
    yield told


class Identity(NamedTuple):
    """What two documents must share to be the same, and to be held out together."""

    whole: str
    given: str


def identity(document: Document) -> Identity:
    """A picture is known by its content, wherever it lies; all that is told of one thing given is held out together."""
    if not document.mark:
        return Identity(document.text, document.text)
    given, told, mark = sides(document.text)
    given = given.partition(" ")[0] if mark == PICTURE else given
    return Identity(mark.join((given, told)), given)


def on_each_side(step: Step) -> Step:
    """A cleaning step for documents with two sides: each is cleaned by itself, and a picture is left alone."""

    @wraps(step)
    def both(document: Document) -> Document | Drop:
        if not document.mark:
            return step(document)
        given, told, mark = sides(document.text)
        before = [given, told] if mark == PAIR else [told]
        spoken = document.language.split("-")  # en-de, or en where both are
        made: list[Document] = []
        for number, side in enumerate(before):
            after = step(Document(side, document.place, language=spoken[min(number, len(spoken) - 1)]))
            if isinstance(after, Drop):
                return after
            made.append(after)
        texts = [side.text for side in made]
        language = "-".join(dict.fromkeys(side.language for side in made if side.language))
        if texts == before and language == document.language:
            return document
        text = document.text if texts == before else mark.join(texts if mark == PAIR else (given, *texts))
        notes = (*document.notes, *chain.from_iterable(side.notes for side in made))
        return replace(document, text=text, language=language, notes=notes)

    return both
