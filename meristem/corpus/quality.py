"""Quality rules of Gopher (Rae et al. 2021), C4 (Raffel et al. 2020) and FineWeb (Penedo et al. 2024), each by name.

The cheap rules come first; a text is split into words once, for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import filterfalse
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from meristem.corpus.boilerplate import SCRIPT_NOTICE
from meristem.corpus.document import Document, Drop, Step
from meristem.corpus.repetition import Repetition, repeats
from meristem.corpus.words import STOP_WORDS, Words
from meristem.settings import Settings

Share = Annotated[float | None, Field(ge=0.0, le=1.0)]
Amount = Annotated[float | None, Field(ge=0.0)]
Count = Annotated[int | None, Field(ge=0)]

BULLETS = ("•", "‣", "▪", "■", "□", "▫", "◦", "●", "○", "·", "* ", "- ")
ELLIPSES = ("…", "...", ". . .")
ENDS = (*".!?\"'”’…。！？；」』》）»؟۔।॥", ".)", "!)", "?)")
SENTENCE = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？؟।]")
NOTICE = re.compile(SCRIPT_NOTICE)
DENSE_LETTERS = 2.5
"""Letters an ideograph stands for where a rule counts the characters of a line."""
DENSE_PHRASES = 2
"""Ideographs a word stands for in repeated phrases: five words are about ten of them."""


class QualitySettings(Settings):
    """Each rule's limit, as its paper has it; null switches a rule off."""

    shortest_words: Count = 50
    """Fewest words of a document (Gopher)."""
    longest_words: Count = 100_000
    """Most words of a document (Gopher)."""
    shortest_mean: Amount = 3.0
    """Least mean length of its words (Gopher); not for scripts that put no spaces between words."""
    longest_mean: Amount = 10.0
    """Greatest mean length of its words (Gopher); not for such scripts either."""
    hashes: Amount = 0.1
    """Most hash signs a word (Gopher)."""
    ellipses: Amount = 0.1
    """Most ellipses a word (Gopher)."""
    bullet_lines: Share = 0.9
    """Largest share of lines that begin with a bullet (Gopher)."""
    ellipsis_lines: Share = 0.3
    """Largest share of lines that end in an ellipsis (Gopher)."""
    letter_words: Share = 0.8
    """Least share of words with a letter in them (Gopher)."""
    stop_words: Count = 2
    """Fewest different stop words of its language (Gopher); languages without a list pass."""
    repeated_lines: Share = 0.3
    """Largest share of lines that have come before (Gopher)."""
    repeated_paragraphs: Share = 0.3
    """Largest share of paragraphs that have come before (Gopher)."""
    repeated_line_characters: Share = 0.1
    """Largest share of characters in lines that have come before (FineWeb; Gopher: 0.2)."""
    repeated_paragraph_characters: Share = 0.2
    """Largest share of characters in paragraphs that have come before (Gopher)."""
    top_phrases: dict[int, float] | None = {2: 0.20, 3: 0.18, 4: 0.16}
    """Largest share of characters in the most frequent phrase, by its number of words (Gopher)."""
    repeated_phrases: dict[int, float] | None = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
    """Largest share of characters in phrases that have come before, by their number of words (Gopher)."""
    ended_lines: Share = 0.12
    """Least share of lines that end as a sentence does (FineWeb)."""
    short_lines: Share = 0.67
    """Largest share of lines of fewer than 30 characters (FineWeb)."""
    line_breaks: Amount = 0.3
    """Most line breaks a word (FineWeb)."""
    sentences: Count = 3
    """Fewest sentences of a document (C4)."""
    curly_brackets: bool | None = True
    """Whether a curly bracket, which is code more often than prose, drops a document (C4)."""
    lorem_ipsum: bool | None = True
    """Whether the printers' dummy text drops a document (C4)."""
    javascript: bool | None = True
    """Whether a notice that JavaScript is needed drops a document (C4 drops its line, as boilerplate does here)."""


def _switched(value: Any) -> Any:
    """`true` stands for the papers' values, `false` for no rules."""
    return ({} if value else None) if isinstance(value, bool) else value


Quality = Annotated[
    QualitySettings | None, BeforeValidator(_switched, json_schema_input_type=QualitySettings | bool | None)
]


def judging(settings: QualitySettings) -> Step:
    """The step that drops what a rule finds wanting, naming the rule."""

    def keep_quality(document: Document) -> Document | Drop:
        reason = fault(document.text, settings, document.language)
        return Drop(reason) if reason else document

    return keep_quality


def fault(text: str, settings: QualitySettings, language: str = "") -> str:
    """The first rule a text breaks, in words; nothing where it breaks none."""
    reason = _signs(text, settings)
    if reason:
        return reason
    split = Words(text)
    return (
        _sizes(split, settings)
        or _lines(split, settings)
        or _vocabulary(split, settings, language)
        or _repetition(split, settings)
    )


def _over(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit


def _under(value: float, limit: float | None) -> bool:
    return limit is not None and value < limit


def _signs(text: str, settings: QualitySettings) -> str:
    """What a single sign or phrase gives away."""
    if settings.curly_brackets and "{" in text:
        return "curly brackets"
    lowered = text.lower()
    if settings.lorem_ipsum and "lorem ipsum" in lowered:
        return "lorem ipsum"
    if settings.javascript and "javascript" in lowered and NOTICE.search(lowered):
        return "javascript notice"
    return ""


def _sizes(split: Words, settings: QualitySettings) -> str:
    """Numbers of words and sentences, lengths of words, signs a word."""
    text, count = split.text, len(split.words)
    if _under(count, settings.shortest_words):
        return "too few words"
    if _over(count, settings.longest_words):
        return "too many words"
    mean = (len(split.joined) - count + 1) / max(count, 1)
    if not split.is_dense and _under(mean, settings.shortest_mean):
        return "words too short"
    if not split.is_dense and _over(mean, settings.longest_mean):
        return "words too long"
    ellipses = text.count("…") + text.count("...")
    if _over(text.count("#"), _times(settings.hashes, count)) or _over(ellipses, _times(settings.ellipses, count)):
        return "too many symbols"
    if settings.sentences and _sentences(text, settings.sentences) < settings.sentences:
        return "too few sentences"
    return ""


def _times(limit: float | None, count: int) -> float | None:
    return None if limit is None else limit * count


def _sentences(text: str, wanted: int) -> int:
    """Ends of sentences, counted only as far as is wanted."""
    found = 0
    for _ in SENTENCE.finditer(text):
        found += 1
        if found == wanted:
            break
    return found


def _lines(split: Words, settings: QualitySettings) -> str:
    """How lines begin and end, how long they are, whether they come again."""
    lines, count = split.lines, max(len(split.lines), 1)
    if _over(sum(line.startswith(BULLETS) for line in lines) / count, settings.bullet_lines):
        return "too many bullet lines"
    if _over(sum(line.endswith(ELLIPSES) for line in lines) / count, settings.ellipsis_lines):
        return "too many ellipsis lines"
    if lines and _under(sum(line.endswith(ENDS) for line in lines) / count, settings.ended_lines):
        return "too few lines end a sentence"
    short = 30 / (DENSE_LETTERS if split.is_dense else 1)
    if _over(sum(len(line) < short for line in lines) / count, settings.short_lines):
        return "too many short lines"
    if _over(split.text.count("\n"), _times(settings.line_breaks, len(split.words))):
        return "too many line breaks"
    if len(lines) < 2:
        return ""
    again, characters = repeats(lines)
    total = sum(map(len, lines))
    if _over(again / count, settings.repeated_lines) or _over(characters / total, settings.repeated_line_characters):
        return "repeated lines"
    again, characters = repeats(split.paragraphs)
    total = sum(map(len, split.paragraphs))
    shares = (again / max(len(split.paragraphs), 1), characters / max(total, 1))
    if _over(shares[0], settings.repeated_paragraphs) or _over(shares[1], settings.repeated_paragraph_characters):
        return "repeated paragraphs"
    return ""


def _vocabulary(split: Words, settings: QualitySettings, language: str) -> str:
    """Whether words are words, and whether the small ones are among them."""
    if settings.letter_words is not None and split.words:
        odd = sum(not _has_letter(word) for word in filterfalse(str.isalpha, split.words))
        if _under(1 - odd / len(split.words), settings.letter_words):
            return "too few words with letters"
    known = STOP_WORDS.get(language or "en", ())
    wanted = settings.stop_words or 0
    if known and not (_has_some(known, split.joined, wanted) or _has_some(known, split.joined.lower(), wanted)):
        return "too few stop words"
    return ""


def _has_some(known: Collection[str], joined: str, wanted: int) -> bool:
    """Whether so many different ones of these words are there; looking for each is faster than looking each up."""
    padded, found = f" {joined} ", 0
    for word in known:
        if found >= wanted:
            break
        found += f" {word} " in padded
    return found >= wanted


def _has_letter(word: str) -> bool:
    return word[0].isalpha() or any(map(str.isalpha, word))


def _repetition(split: Words, settings: QualitySettings) -> str:
    """Phrases that come again and again."""
    repetition = Repetition(split.joined)
    stretch = DENSE_PHRASES if split.is_dense else 1
    for size, limit in sorted((settings.top_phrases or {}).items()):
        if repetition.top(size * stretch, limit):
            return f"one phrase of {size} words repeated"
    limits = {size * stretch: limit for size, limit in (settings.repeated_phrases or {}).items()}
    size = repetition.again(limits)
    return f"repeated phrases of {size // stretch} words" if size else ""
