"""Language identification by script, stop words and letters; needs no model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator

from meristem.config.errors import did_you_mean
from meristem.corpus.clean.language_profiles import PROFILES, SCRIPTS
from meristem.corpus.document import CleaningStep, Document, Drop

SAMPLE_CHARS = 1000
"""Characters used from the start of a text, and as many from its middle."""

SHORT_TEXT_CHARS = 500
"""Up to this many characters every word counts, even one followed by a comma."""

MIN_SHARE = 0.51
"""Minimum share of the best language in the evidence for the best two."""

MIN_EVIDENCE, MIN_MARGIN = 1.2, 0.2
"""Minimum evidence for an answer (about two stop words), and the minimum lead over the second best."""

CLEAR_SHARE, CLEAR_EVIDENCE = 0.65, 8.0
"""Share and amount of evidence at which the search stops early."""

WORD_WEIGHT, LETTER_WEIGHT, SEQUENCE_WEIGHT = 1.0, 0.7, 0.35
"""Weights of a stop word, of a letter specific to the language, and of a letter sequence."""

LATIN_LANGUAGES = tuple(
    language for language in PROFILES if not any(language in known for _, known in SCRIPTS.values())
)
KNOWN_LANGUAGES = frozenset(LATIN_LANGUAGES).union(*(languages for _, languages in SCRIPTS.values()))

# Not \w, which excludes the vowel signs of Indic scripts.
WORD_PATTERN = re.compile(r"[^\s\d!-&(-/:-@\[-`{-~…“”„«»।॥،؛؟–—¿¡‘]+")
SCRIPT_PATTERNS = {name: re.compile(f"[{characters}]") for name, (characters, _) in SCRIPTS.items()}
NON_LATIN = re.compile(f"[^{SCRIPTS['latin'][0]}\\W\\d_]")


class LanguageGuess(NamedTuple):
    """A language code and its share of the evidence; "" if unclear."""

    language: str
    share: float


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
    sample = (
        text
        if len(text) <= 2 * SAMPLE_CHARS
        else text[:SAMPLE_CHARS] + " " + text[len(text) // 2 : len(text) // 2 + SAMPLE_CHARS]
    )
    script, share = _main_script(sample)
    if not script:
        return LanguageGuess("", 0.0)
    languages = LATIN_LANGUAGES if script == "latin" else SCRIPTS[script][1]
    if len(languages) == 1:
        return LanguageGuess(languages[0], share)
    return _identify_among(languages, sample.lower())


def _main_script(sample: str) -> tuple[str, float]:
    """The script of most letters; Japanese is recognised by its kana, even among many Chinese characters."""
    if sample.isascii() or not NON_LATIN.search(sample):
        return ("latin", 1.0) if SCRIPT_PATTERNS["latin"].search(sample) else ("", 0.0)
    counts = {name: len(pattern.findall(sample)) for name, pattern in SCRIPT_PATTERNS.items()}
    if counts["kana"] * 8 > counts["ideographs"]:
        counts["kana"] += counts.pop("ideographs")
    total = sum(counts.values())
    # A Chinese character counts as much as a word of three letters.
    best = max(counts, key=lambda name: counts[name] * (3 if name in ("ideographs", "kana", "hangul") else 1))
    share = counts[best] / total if total else 0.0
    return (best, share) if share * (3 if best in ("ideographs", "kana", "hangul") else 1) >= MIN_SHARE else ("", share)


def _word_owners(languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for language in languages:
        for word in PROFILES[language].words:
            owners[word] = (*owners.get(word, ()), language)
    return owners


def _letter_owners(languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for language in languages:
        for letter in PROFILES[language].letters:
            owners[letter] = (*owners.get(letter, ()), language)
    return owners


def _sequence_owners(languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for language in languages:
        for letters in PROFILES[language].sequences:
            spaced = letters.replace("_", " ")
            owners[spaced] = (*owners.get(spaced, ()), language)
    return owners


LANGUAGE_GROUPS = (LATIN_LANGUAGES, *(languages for _, languages in SCRIPTS.values() if len(languages) > 1))
WORD_OWNERS = {languages: _word_owners(languages) for languages in LANGUAGE_GROUPS}
LETTER_OWNERS = {languages: _letter_owners(languages) for languages in LANGUAGE_GROUPS}
SEQUENCE_OWNERS = {languages: _sequence_owners(languages) for languages in LANGUAGE_GROUPS}


def _identify_among(languages: tuple[str, ...], lowered: str) -> LanguageGuess:
    """The most likely of several languages of one script: evidence for it minus evidence against it."""
    word_owners, letter_owners = WORD_OWNERS[languages], LETTER_OWNERS[languages]
    scores = dict.fromkeys(languages, 0.0)
    words = lowered.split() if len(lowered) > SHORT_TEXT_CHARS else WORD_PATTERN.findall(lowered)
    for word, occurrences in Counter(words).items():
        owners = word_owners.get(word, ())
        for language in owners:
            scores[language] += WORD_WEIGHT * occurrences / len(owners) ** 0.5
    for letter, occurrences in Counter(lowered).items() if not lowered.isascii() else ():
        owners = letter_owners.get(letter, ())
        for language in languages if owners else ():
            scores[language] += LETTER_WEIGHT * occurrences * (1 / len(owners) if language in owners else -1)
    guess = _best_language(scores)
    if guess.language and guess.share >= CLEAR_SHARE and scores[guess.language] >= CLEAR_EVIDENCE:
        return guess
    padded = f" {' '.join(words)} "
    for letters, owners in SEQUENCE_OWNERS[languages].items():
        for language in owners if letters in padded else ():
            scores[language] += SEQUENCE_WEIGHT * padded.count(letters) / len(owners)
    return _best_language(scores)


def _best_language(scores: dict[str, float]) -> LanguageGuess:
    """The best language, if it has enough evidence and a clear lead."""
    best, second = sorted(scores, key=lambda language: -scores[language])[:2]
    share = scores[best] / (scores[best] + max(scores[second], 0.0)) if scores[best] > 0 else 0.0
    is_clear = scores[best] >= MIN_EVIDENCE and share >= MIN_SHARE and scores[best] - scores[second] >= MIN_MARGIN
    return LanguageGuess(best if is_clear else "", share)


def language_step(languages: Sequence[str] | None) -> CleaningStep:
    """A step that records each document's language and, if `languages` is given, drops all others."""

    def keep_languages(document: Document) -> Document | Drop:
        language = identify_language(document.text).language
        if languages and language not in languages:
            return Drop(f"another language: {language or 'not clear'}")
        return document if language == document.language else replace(document, language=language)

    return keep_languages
