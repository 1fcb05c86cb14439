"""Which language a text is in, by its script, its small words and its letters; no model is needed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator

from meristem.corpus.document import Document, Drop, Step
from meristem.corpus.profiles import PROFILES, SCRIPTS
from meristem.errors import did_you_mean

SAMPLE = 1000
"""Characters looked at: so many at the start of a text and so many from its middle."""

SHORT = 500
"""Characters up to which every word counts, also one with a comma behind it."""

SURE = 0.51
"""Share of the evidence for the best two that the best must have."""

ENOUGH, AHEAD = 1.2, 0.2
"""Evidence without which nothing is said, about two small words, and how far it must be ahead of the next."""

CLEAR, AMPLE = 0.65, 8.0
"""A share and an amount of evidence that need no closer look."""

WORD, LETTER, SEQUENCE = 1.0, 0.7, 0.35
"""What a small word, a letter of its own and letters that follow one another are worth."""

LATIN = tuple(language for language in PROFILES if not any(language in known for _, known in SCRIPTS.values()))
KNOWN = frozenset(LATIN).union(*(languages for _, languages in SCRIPTS.values()))

# Not \w, which leaves out the vowel signs of Indian scripts.
WORDS = re.compile(r"[^\s\d!-&(-/:-@\[-`{-~…“”„«»।॥،؛؟–—¿¡‘]+")
COUNTED = {name: re.compile(f"[{characters}]") for name, (characters, _) in SCRIPTS.items()}
OTHER = re.compile(f"[^{SCRIPTS['latin'][0]}\\W\\d_]")


class Found(NamedTuple):
    """A language, and the share of the evidence that speaks for it; no name where it is not clear."""

    language: str
    share: float


def _known(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    for code in value or ():
        if code not in KNOWN:
            raise ValueError(f"{code!r} is not a language that is known here{did_you_mean(code, sorted(KNOWN))}")
    return value


def _several(value: Any) -> Any:
    """A word stands for a list of one; YAML takes the code of Norwegian for a switch."""
    if value is False:
        raise ValueError("write null to keep all languages, [no] for Norwegian")
    given = (value,) if isinstance(value, str) else value
    return tuple("no" if code is False else code for code in given) if isinstance(given, list | tuple) else given


Languages = Annotated[
    tuple[str, ...] | None,
    AfterValidator(_known),
    BeforeValidator(_several, json_schema_input_type=tuple[str, ...] | str | None),
]


def identify(text: str) -> Found:
    """The language most of a text is in."""
    sample = text if len(text) <= 2 * SAMPLE else text[:SAMPLE] + " " + text[len(text) // 2 : len(text) // 2 + SAMPLE]
    script, share = _script(sample)
    if not script:
        return Found("", 0.0)
    languages = LATIN if script == "latin" else SCRIPTS[script][1]
    if len(languages) == 1:
        return Found(languages[0], share)
    return _among(languages, sample.lower())


def _script(sample: str) -> tuple[str, float]:
    """The script most letters belong to; Japanese shows by its kana, whatever ideographs stand between them."""
    if sample.isascii() or not OTHER.search(sample):
        return ("latin", 1.0) if COUNTED["latin"].search(sample) else ("", 0.0)
    counts = {name: len(pattern.findall(sample)) for name, pattern in COUNTED.items()}
    if counts["kana"] * 8 > counts["ideographs"]:
        counts["kana"] += counts.pop("ideographs")
    total = sum(counts.values())
    # An ideograph says as much as a word of three letters.
    best = max(counts, key=lambda name: counts[name] * (3 if name in ("ideographs", "kana", "hangul") else 1))
    share = counts[best] / total if total else 0.0
    return (best, share) if share * (3 if best in ("ideographs", "kana", "hangul") else 1) >= SURE else ("", share)


def _table(languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for language in languages:
        for word in PROFILES[language].words:
            table[word] = (*table.get(word, ()), language)
    return table


def _alphabet(languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for language in languages:
        for letter in PROFILES[language].letters:
            owners[letter] = (*owners.get(letter, ()), language)
    return owners


def _sequences(languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for language in languages:
        for letters in PROFILES[language].sequences:
            edged = letters.replace("_", " ")
            found[edged] = (*found.get(edged, ()), language)
    return found


GROUPS = (LATIN, *(languages for _, languages in SCRIPTS.values() if len(languages) > 1))
TABLES = {languages: _table(languages) for languages in GROUPS}
ALPHABETS = {languages: _alphabet(languages) for languages in GROUPS}
FOLLOWING = {languages: _sequences(languages) for languages in GROUPS}


def _among(languages: tuple[str, ...], lowered: str) -> Found:
    """Which of several languages of one script: those whose words and letters are met, less those whose are not."""
    table, alphabet = TABLES[languages], ALPHABETS[languages]
    scores = dict.fromkeys(languages, 0.0)
    words = lowered.split() if len(lowered) > SHORT else WORDS.findall(lowered)
    for word, times in Counter(words).items():
        owners = table.get(word, ())
        for language in owners:
            scores[language] += WORD * times / len(owners) ** 0.5
    for letter, times in Counter(lowered).items() if not lowered.isascii() else ():
        owners = alphabet.get(letter, ())
        for language in languages if owners else ():
            scores[language] += LETTER * times * (1 / len(owners) if language in owners else -1)
    found = _decided(scores)
    if found.language and found.share >= CLEAR and scores[found.language] >= AMPLE:
        return found
    padded = f" {' '.join(words)} "
    for letters, owners in FOLLOWING[languages].items():
        for language in owners if letters in padded else ():
            scores[language] += SEQUENCE * padded.count(letters) / len(owners)
    return _decided(scores)


def _decided(scores: dict[str, float]) -> Found:
    """The best of them, where it has evidence enough and the next has clearly less."""
    best, second = sorted(scores, key=lambda language: -scores[language])[:2]
    share = scores[best] / (scores[best] + max(scores[second], 0.0)) if scores[best] > 0 else 0.0
    is_clear = scores[best] >= ENOUGH and share >= SURE and scores[best] - scores[second] >= AHEAD
    return Found(best if is_clear else "", share)


def speaking(languages: Sequence[str] | None) -> Step:
    """The step that writes down a document's language and, where only some are wanted, drops the others."""

    def keep_languages(document: Document) -> Document | Drop:
        found = identify(document.text).language
        if languages and found not in languages:
            return Drop(f"another language: {found or 'not clear'}")
        return document if found == document.language else replace(document, language=found)

    return keep_languages
