"""Text cleaning steps (mojibake, newlines, control characters, NFC, spaces): functions Document → Document | Drop."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from meristem.corpus.clean.boilerplate import remove_boilerplate
from meristem.corpus.clean.language_id import language_step
from meristem.corpus.clean.quality_filters import quality_step
from meristem.corpus.document import CleaningStep, Document, Drop
from meristem.corpus.paired_text import clean_each_side
from meristem.corpus.privacy.pii import pii_step
from meristem.corpus.settings import CorpusSettings

LINE_BREAKS = ("\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029")

# Control characters, byte order marks inside text, noncharacters, and lone surrogates, which cannot be encoded.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufeff\ufffe\uffff\ud800-\udfff"
CONTROLS = re.compile(f"[{CONTROL}]+")
NO_CONTROLS = re.compile(f"[^{CONTROL}]*+")  # matching allowed characters is twice as fast as searching others
ASCII_CONTROLS = bytes([*range(0x09), *range(0x0B, 0x20), 0x7F])

# UTF-8 read as Windows-1252: é, ’, 。 and ， become Ã©, â€™, ã€‚ and ï¼Œ, and Cyrillic becomes Ð… and Ñ….
MOJIBAKE_SIGNS = ("Ã", "Â", "â€", "ã€", "ï¼", "ï»¿", "ï¿½", "Ð", "Ñ")


def cleaning_steps(settings: CorpusSettings) -> tuple[CleaningStep, ...]:
    """The steps applied to every document, in order."""

    def drop_short(document: Document) -> Document | Drop:
        return document if len(document.text) >= settings.min_characters else Drop("too short")

    steps: list[CleaningStep] = [repair_mojibake, normalise_newlines, strip_controls, compose, trim_spaces]
    if settings.boilerplate:
        steps.append(remove_boilerplate)
    if settings.languages or settings.quality:
        steps.append(language_step(settings.languages))
    if settings.quality:
        steps.append(quality_step(settings.quality))
    if settings.pii:
        steps.append(pii_step(settings.pii))
    steps += [drop_empty, drop_short]
    return tuple(map(clean_each_side, steps)) if settings.side_separator else tuple(steps)


def repair_mojibake(document: Document) -> Document:
    """Repair text that was decoded wrongly (Ã© for é), if ftfy is installed."""
    if document.text.isascii() or not any(sign in document.text for sign in MOJIBAKE_SIGNS):
        return document
    return _replace_text(document, _load_ftfy()(document.text))


def normalise_newlines(document: Document) -> Document:
    """Convert every kind of line break to a newline."""
    text = document.text.replace("\r\n", "\n") if "\r" in document.text else document.text
    for line_break in LINE_BREAKS:
        if line_break in text:
            text = text.replace(line_break, "\n")
    return _replace_text(document, text)


def strip_controls(document: Document) -> Document:
    """Remove control characters: they carry no meaning, and some cannot be stored."""
    if _is_clean(document.text):
        return document
    return _replace_text(document, CONTROLS.sub("", document.text))


def compose(document: Document) -> Document:
    """Unicode NFC: one code point sequence for what looks the same."""
    if document.text.isascii() or unicodedata.is_normalized("NFC", document.text):
        return document
    return _replace_text(document, unicodedata.normalize("NFC", document.text))


def trim_spaces(document: Document) -> Document:
    """Remove spaces at the end of lines and around the document."""
    text = document.text.strip()
    if "\n" in text:
        text = "\n".join(map(str.rstrip, text.split("\n")))
    return _replace_text(document, text)


def drop_empty(document: Document) -> Document | Drop:
    """Drop a document that is empty."""
    return document if document.text else Drop("empty")


def _is_clean(text: str) -> bool:
    if text.isascii():  # four times as fast as the pattern
        raw = text.encode()
        return len(raw.translate(None, ASCII_CONTROLS)) == len(raw)
    return NO_CONTROLS.fullmatch(text) is not None


def _replace_text(document: Document, text: str) -> Document:
    return document if text == document.text else replace(document, text=text)


@cache
def _load_ftfy() -> Callable[[str], str]:
    try:
        import ftfy
    except ImportError:
        return str
    return ftfy.fix_encoding
