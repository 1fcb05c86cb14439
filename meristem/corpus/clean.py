"""Cleaning: a list of plain functions, each Document → Document | Drop; an untouched document is returned as it is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from meristem.corpus.boilerplate import remove_boilerplate
from meristem.corpus.document import Document, Drop, Step
from meristem.corpus.languages import speaking
from meristem.corpus.private import replacing
from meristem.corpus.quality import judging
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.sides import on_each_side

NEWLINES = ("\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029")

# Controls, byte order marks inside text, noncharacters, and halves of surrogate pairs, which no encoding can write.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufeff\ufffe\uffff\ud800-\udfff"
CONTROLS = re.compile(f"[{CONTROL}]+")
CLEAN = re.compile(f"[^{CONTROL}]*+")  # matching what is allowed runs twice as fast as searching for what is not
ASCII_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])

# UTF-8 read as Windows-1252: é, ’, 。 and ， become Ã©, â€™, ã€‚ and ï¼Œ, and Cyrillic becomes Ð and Ñ with company.
SIGNS = ("Ã", "Â", "â€", "ã€", "ï¼", "ï»¿", "ï¿½", "Ð", "Ñ")


def steps(settings: CorpusSettings) -> tuple[Step, ...]:
    """The steps every document passes, in order."""

    def drop_short(document: Document) -> Document | Drop:
        return document if len(document.text) >= settings.shortest else Drop("too short")

    line: list[Step] = [repair_mojibake, normalise_newlines, strip_controls, compose, trim_spaces]
    if settings.boilerplate:
        line.append(remove_boilerplate)
    if settings.languages or settings.quality:
        line.append(speaking(settings.languages))
    if settings.quality:
        line.append(judging(settings.quality))
    if settings.private:
        line.append(replacing(settings.private))
    line += [drop_empty, drop_short]
    return tuple(map(on_each_side, line)) if settings.mark else tuple(line)


def repair_mojibake(document: Document) -> Document:
    """Text that was once decoded wrongly (Ã© for é) is mended, where ftfy is installed."""
    if document.text.isascii() or not any(sign in document.text for sign in SIGNS):
        return document
    return _with(document, _fix()(document.text))


def normalise_newlines(document: Document) -> Document:
    """Every kind of line end becomes a newline."""
    text = document.text.replace("\r\n", "\n") if "\r" in document.text else document.text
    for mark in NEWLINES:
        if mark in text:
            text = text.replace(mark, "\n")
    return _with(document, text)


def strip_controls(document: Document) -> Document:
    """Control characters go: they mean nothing, and some cannot be stored."""
    if _is_clean(document.text):
        return document
    return _with(document, CONTROLS.sub("", document.text))


def compose(document: Document) -> Document:
    """Unicode NFC: one spelling for what looks the same."""
    if document.text.isascii() or unicodedata.is_normalized("NFC", document.text):
        return document
    return _with(document, unicodedata.normalize("NFC", document.text))


def trim_spaces(document: Document) -> Document:
    """No space at the end of a line, none around the document."""
    text = document.text.strip()
    if "\n" in text:
        text = "\n".join(map(str.rstrip, text.split("\n")))
    return _with(document, text)


def drop_empty(document: Document) -> Document | Drop:
    """A document in which nothing is left is dropped."""
    return document if document.text else Drop("empty")


def _is_clean(text: str) -> bool:
    if text.isascii():  # four times as fast as the pattern
        raw = text.encode()
        return len(raw.translate(None, ASCII_CONTROLS)) == len(raw)
    return CLEAN.fullmatch(text) is not None


def _with(document: Document, text: str) -> Document:
    return document if text == document.text else replace(document, text=text)


@cache
def _fix() -> Callable[[str], str]:
    try:
        import ftfy
    except ImportError:
        return str
    return ftfy.fix_encoding
