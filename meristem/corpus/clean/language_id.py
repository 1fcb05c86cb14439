"""Language identification by py3langid, a naive Bayes classifier of byte n-grams, among a list of languages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator

from meristem.config.errors import did_you_mean
from meristem.corpus.document import CleaningStep, Document, Drop
from meristem.utils.optional_packages import require_version

SAMPLE_CHARS = 300
"""Characters used from the start of a text, and as many from its middle."""

MIN_PROBABILITY = 0.5
"""Minimum probability of an answer: more than that of all other languages together."""

_CODES = (
    "af am ar be bg bn ca cs da de el en es et fa fi fr gu he hi hr hu hy id is it ja ka kk km kn ko la lo lt lv "
    "mk ml mn mr my ne nl no pa pl pt ro ru si sk sl sq sr sv sw ta te th tl tr uk ur vi zh"
)
KNOWN_LANGUAGES = frozenset(_CODES.split())
"""The languages an answer is chosen from; py3langid knows 70 more, most of them close relatives of these."""

NO_LANGUAGE = "zxx"
"""Code of text without language: numbers, code, random letters."""

CYRILLIC = re.compile("[\u0400-\u052f]")


class LanguageGuess(NamedTuple):
    """A language code and its probability; "" if unclear."""

    language: str
    probability: float


def _check_languages(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    for code in value or ():
        if code not in KNOWN_LANGUAGES:
            raise ValueError(f"unknown language {code!r}{did_you_mean(code, sorted(KNOWN_LANGUAGES))}")
    return value


def _parse_languages(value: Any) -> Any:
    """A single code as a list; YAML reads `no`, the code of Norwegian, as false."""
    if value is False:
        raise ValueError("write null to keep all languages, [no] for Norwegian")
    codes = (value,) if isinstance(value, str) else value
    return tuple("no" if code is False else code for code in codes) if isinstance(codes, list | tuple) else codes


Languages = Annotated[
    tuple[str, ...] | None,
    AfterValidator(_check_languages),
    BeforeValidator(_parse_languages, json_schema_input_type=tuple[str, ...] | str | None),
]


def identify_language(text: str) -> LanguageGuess:
    """The main language of a text."""
    middle = len(text) // 2
    is_short = len(text) <= 2 * SAMPLE_CHARS
    sample = text if is_short else f"{text[:SAMPLE_CHARS]} {text[middle : middle + SAMPLE_CHARS]}"
    language, probability = _identifier().classify(sample)
    if language == "sr" and not CYRILLIC.search(sample):
        language = "hr"  # Serbian in Latin letters and Croatian cannot be distinguished by a sentence
    is_clear = language != NO_LANGUAGE and probability >= MIN_PROBABILITY
    return LanguageGuess(language if is_clear else "", probability)


def identifier_version() -> str:
    """Name and version of the classifier, for cache keys: another version may give other answers."""
    return require_version("py3langid", "identifying languages (corpus.languages, corpus.quality)", "clean")


@cache
def _identifier() -> Any:
    """The classifier, loaded once per process; not py3langid's own, which is shared with others in this process."""
    identifier_version()
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages([*KNOWN_LANGUAGES, NO_LANGUAGE])
    return identifier


def language_step(languages: Sequence[str] | None) -> CleaningStep:
    """A step that records each document's language and, if `languages` is given, drops all others."""

    def keep_languages(document: Document) -> Document | Drop:
        language = identify_language(document.text).language
        if languages and language not in languages:
            return Drop(f"another language: {language or 'not clear'}")
        return document if language == document.language else replace(document, language=language)

    return keep_languages
