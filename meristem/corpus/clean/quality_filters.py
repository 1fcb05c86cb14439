"""Quality filters of Gopher (Rae et al. 2021), C4 (Raffel et al. 2020) and FineWeb (Penedo et al. 2024).

Cheap rules come first; a text is split into words once, for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import filterfalse
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from meristem.config.settings import Settings, expand_switch
from meristem.corpus.clean.boilerplate import JAVASCRIPT_NOTICE
from meristem.corpus.clean.repetition import PhraseRepetition, count_repeats
from meristem.corpus.clean.word_split import STOP_WORDS, SplitText
from meristem.corpus.document import CleaningStep, Document, Drop

ShareLimit = Annotated[float | None, Field(ge=0.0, le=1.0)]
AmountLimit = Annotated[float | None, Field(ge=0.0)]
CountLimit = Annotated[int | None, Field(ge=0)]

BULLETS = ("•", "‣", "▪", "■", "□", "▫", "◦", "●", "○", "·", "* ", "- ")
ELLIPSES = ("…", "...", ". . .")
SENTENCE_ENDS = (*".!?\"'”’…。！？；」』》）»؟۔।॥", ".)", "!)", "?)")
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？؟।]")
NOTICE_PATTERN = re.compile(JAVASCRIPT_NOTICE)
LETTERS_PER_IDEOGRAPH = 2.5
"""Letters that count as one Chinese character in rules about line lengths."""
IDEOGRAPHS_PER_WORD = 2
"""Chinese characters that count as one word in repeated phrases: five words are about ten characters."""


class QualitySettings(Settings):
    """The limit of each rule, with the papers' values as defaults; null turns a rule off."""

    renamed: ClassVar[dict[str, str]] = {
        "shortest_words": "min_words",
        "longest_words": "max_words",
        "shortest_mean": "min_mean_word_length",
        "longest_mean": "max_mean_word_length",
    }

    min_words: CountLimit = 50
    """Minimum number of words in a document (Gopher)."""
    max_words: CountLimit = 100_000
    """Maximum number of words in a document (Gopher)."""
    min_mean_word_length: AmountLimit = 3.0
    """Minimum mean word length (Gopher); not for scripts without spaces between words."""
    max_mean_word_length: AmountLimit = 10.0
    """Maximum mean word length (Gopher); not for scripts without spaces between words."""
    hashes: AmountLimit = 0.1
    """Maximum number of hash signs per word (Gopher)."""
    ellipses: AmountLimit = 0.1
    """Maximum number of ellipses per word (Gopher)."""
    bullet_lines: ShareLimit = 0.9
    """Maximum share of lines that begin with a bullet (Gopher)."""
    ellipsis_lines: ShareLimit = 0.3
    """Maximum share of lines that end in an ellipsis (Gopher)."""
    letter_words: ShareLimit = 0.8
    """Minimum share of words that contain a letter (Gopher)."""
    stop_words: CountLimit = 2
    """Minimum number of different stop words of its language (Gopher); languages without a list pass."""
    repeated_lines: ShareLimit = 0.3
    """Maximum share of duplicate lines (Gopher)."""
    repeated_paragraphs: ShareLimit = 0.3
    """Maximum share of duplicate paragraphs (Gopher)."""
    repeated_line_characters: ShareLimit = 0.1
    """Maximum share of characters in duplicate lines (FineWeb; Gopher: 0.2)."""
    repeated_paragraph_characters: ShareLimit = 0.2
    """Maximum share of characters in duplicate paragraphs (Gopher)."""
    top_phrases: dict[int, float] | None = {2: 0.20, 3: 0.18, 4: 0.16}
    """Maximum share of characters in the most frequent n-gram, by n (Gopher)."""
    repeated_phrases: dict[int, float] | None = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
    """Maximum share of characters in duplicate n-grams, by n (Gopher)."""
    ended_lines: ShareLimit = 0.12
    """Minimum share of lines that end with sentence punctuation (FineWeb)."""
    short_lines: ShareLimit = 0.67
    """Maximum share of lines with fewer than 30 characters (FineWeb)."""
    line_breaks: AmountLimit = 0.3
    """Maximum number of line breaks per word (FineWeb)."""
    sentences: CountLimit = 3
    """Minimum number of sentences in a document (C4)."""
    curly_brackets: bool | None = True
    """Whether to drop documents with a curly bracket, a sign of code (C4)."""
    lorem_ipsum: bool | None = True
    """Whether to drop documents with "lorem ipsum" placeholder text (C4)."""
    javascript: bool | None = True
    """Whether to drop documents with a notice to enable JavaScript (C4 drops the line, as `boilerplate` does)."""


QualityOption = Annotated[
    QualitySettings | None, BeforeValidator(expand_switch, json_schema_input_type=QualitySettings | bool | None)
]
"""`true` means the papers' values, `false` no rules."""


def quality_step(settings: QualitySettings) -> CleaningStep:
    """A step that drops documents that fail a rule, with the rule as the reason."""

    def keep_quality(document: Document) -> Document | Drop:
        reason = failed_rule(document.text, settings, document.language)
        return Drop(reason) if reason else document

    return keep_quality


def failed_rule(text: str, settings: QualitySettings, language: str = "") -> str:
    """The first rule that a text fails, as a drop reason; "" if it passes all."""
    reason = _check_symbols(text, settings)
    if reason:
        return reason
    split_text = SplitText(text)
    return (
        _check_word_counts(split_text, settings)
        or _check_lines(split_text, settings)
        or _check_vocabulary(split_text, settings, language)
        or _check_repetition(split_text, settings)
    )


def _exceeds(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit


def _is_below(value: float, limit: float | None) -> bool:
    return limit is not None and value < limit


def _check_symbols(text: str, settings: QualitySettings) -> str:
    """Rules about single symbols and phrases."""
    if settings.curly_brackets and "{" in text:
        return "curly brackets"
    lowered = text.lower()
    if settings.lorem_ipsum and "lorem ipsum" in lowered:
        return "lorem ipsum"
    if settings.javascript and "javascript" in lowered and NOTICE_PATTERN.search(lowered):
        return "javascript notice"
    return ""


def _check_word_counts(split_text: SplitText, settings: QualitySettings) -> str:
    """Rules about numbers of words and sentences, word lengths, and symbols per word."""
    text, count = split_text.text, len(split_text.words)
    if _is_below(count, settings.min_words):
        return "too few words"
    if _exceeds(count, settings.max_words):
        return "too many words"
    mean = (len(split_text.joined) - count + 1) / max(count, 1)
    if not split_text.is_unspaced and _is_below(mean, settings.min_mean_word_length):
        return "words too short"
    if not split_text.is_unspaced and _exceeds(mean, settings.max_mean_word_length):
        return "words too long"
    ellipses = text.count("…") + text.count("...")
    if _exceeds(text.count("#"), _scale_limit(settings.hashes, count)) or _exceeds(
        ellipses, _scale_limit(settings.ellipses, count)
    ):
        return "too many symbols"
    if settings.sentences and _count_sentences(text, settings.sentences) < settings.sentences:
        return "too few sentences"
    return ""


def _scale_limit(limit: float | None, count: int) -> float | None:
    return None if limit is None else limit * count


def _count_sentences(text: str, limit: int) -> int:
    """The number of sentence ends, counted up to `limit`."""
    num_sentences = 0
    for _ in SENTENCE_END.finditer(text):
        num_sentences += 1
        if num_sentences == limit:
            break
    return num_sentences


def _check_lines(split_text: SplitText, settings: QualitySettings) -> str:
    """Rules about the beginnings, ends and lengths of lines, and duplicate lines."""
    lines, count = split_text.lines, max(len(split_text.lines), 1)
    if _exceeds(sum(line.startswith(BULLETS) for line in lines) / count, settings.bullet_lines):
        return "too many bullet lines"
    if _exceeds(sum(line.endswith(ELLIPSES) for line in lines) / count, settings.ellipsis_lines):
        return "too many ellipsis lines"
    if lines and _is_below(sum(line.endswith(SENTENCE_ENDS) for line in lines) / count, settings.ended_lines):
        return "too few lines end a sentence"
    short_length = 30 / (LETTERS_PER_IDEOGRAPH if split_text.is_unspaced else 1)
    if _exceeds(sum(len(line) < short_length for line in lines) / count, settings.short_lines):
        return "too many short lines"
    if _exceeds(split_text.text.count("\n"), _scale_limit(settings.line_breaks, len(split_text.words))):
        return "too many line breaks"
    if len(lines) < 2:
        return ""
    num_repeated, characters = count_repeats(lines)
    total = sum(map(len, lines))
    if _exceeds(num_repeated / count, settings.repeated_lines) or _exceeds(
        characters / total, settings.repeated_line_characters
    ):
        return "repeated lines"
    num_repeated, characters = count_repeats(split_text.paragraphs)
    total = sum(map(len, split_text.paragraphs))
    shares = (num_repeated / max(len(split_text.paragraphs), 1), characters / max(total, 1))
    if _exceeds(shares[0], settings.repeated_paragraphs) or _exceeds(shares[1], settings.repeated_paragraph_characters):
        return "repeated paragraphs"
    return ""


def _check_vocabulary(split_text: SplitText, settings: QualitySettings, language: str) -> str:
    """Rules about words with letters and about stop words."""
    if settings.letter_words is not None and split_text.words:
        num_without_letters = sum(not _has_letter(word) for word in filterfalse(str.isalpha, split_text.words))
        if _is_below(1 - num_without_letters / len(split_text.words), settings.letter_words):
            return "too few words with letters"
    known = STOP_WORDS.get(language or "en", ())
    min_stop_words = settings.stop_words or 0
    if known and not (
        _has_words(known, split_text.joined, min_stop_words)
        or _has_words(known, split_text.joined.lower(), min_stop_words)
    ):
        return "too few stop words"
    return ""


def _has_words(known: Collection[str], joined: str, min_count: int) -> bool:
    """Whether `min_count` of the known words occur; searching for each is faster than looking up every word."""
    padded, num_found = f" {joined} ", 0
    for word in known:
        if num_found >= min_count:
            break
        num_found += f" {word} " in padded
    return num_found >= min_count


def _has_letter(word: str) -> bool:
    return word[0].isalpha() or any(map(str.isalpha, word))


def _check_repetition(split_text: SplitText, settings: QualitySettings) -> str:
    """Rules about repeated n-grams."""
    repetition = PhraseRepetition(split_text.joined)
    words_factor = IDEOGRAPHS_PER_WORD if split_text.is_unspaced else 1
    for size, limit in sorted((settings.top_phrases or {}).items()):
        if repetition.top_phrase_exceeds(size * words_factor, limit):
            return f"one phrase of {size} words repeated"
    limits = {size * words_factor: limit for size, limit in (settings.repeated_phrases or {}).items()}
    size = repetition.first_size_exceeding(limits)
    return f"repeated phrases of {size // words_factor} words" if size else ""
