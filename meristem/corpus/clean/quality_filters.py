"""Quality filters of Gopher (Rae et al. 2021), C4 (Raffel et al. 2020) and FineWeb (Penedo et al. 2024).

Cheap rules come first; a text is split into words once, for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import filterfalse, islice
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
    return next((reason for reason, failed in _apply_rules(text, settings, language) if failed), "")


def _apply_rules(text: str, settings: QualitySettings, language: str) -> Iterator[tuple[str, bool]]:
    """(drop reason, whether the text fails) of each rule, cheap ones first."""
    yield from _symbol_rules(text, settings)
    split_text = SplitText(text)
    yield from _word_count_rules(split_text, settings)
    yield from _line_rules(split_text, settings)
    yield from _vocabulary_rules(split_text, settings, language)
    yield from _repetition_rules(split_text, settings)


def _exceeds(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit


def _is_below(value: float, limit: float | None) -> bool:
    return limit is not None and value < limit


def _symbol_rules(text: str, settings: QualitySettings) -> Iterator[tuple[str, bool]]:
    """Rules about single symbols and phrases."""
    yield "curly brackets", bool(settings.curly_brackets) and "{" in text
    lowered = text.lower()
    yield "lorem ipsum", bool(settings.lorem_ipsum) and "lorem ipsum" in lowered
    has_javascript = bool(settings.javascript) and "javascript" in lowered
    yield "javascript notice", has_javascript and NOTICE_PATTERN.search(lowered) is not None


def _word_count_rules(split_text: SplitText, settings: QualitySettings) -> Iterator[tuple[str, bool]]:
    """Rules about numbers of words and sentences, word lengths, and symbols per word."""
    text, count = split_text.text, len(split_text.words)
    yield "too few words", _is_below(count, settings.min_words)
    yield "too many words", _exceeds(count, settings.max_words)
    if not split_text.is_unspaced:
        mean = (len(split_text.joined) - count + 1) / max(count, 1)
        yield "words too short", _is_below(mean, settings.min_mean_word_length)
        yield "words too long", _exceeds(mean, settings.max_mean_word_length)
    yield "too many symbols", _exceeds(text.count("#"), _scale_limit(settings.hashes, count))
    ellipses = text.count("…") + text.count("...")
    yield "too many symbols", _exceeds(ellipses, _scale_limit(settings.ellipses, count))
    if settings.sentences:
        yield "too few sentences", _count_sentences(text, settings.sentences) < settings.sentences


def _scale_limit(limit: float | None, count: int) -> float | None:
    return None if limit is None else limit * count


def _count_sentences(text: str, limit: int) -> int:
    """The number of sentence ends, counted up to `limit`."""
    return sum(1 for _ in islice(SENTENCE_END.finditer(text), limit))


def _line_rules(split_text: SplitText, settings: QualitySettings) -> Iterator[tuple[str, bool]]:
    """Rules about the beginnings, ends and lengths of lines, and duplicate lines."""
    lines, count = split_text.lines, max(len(split_text.lines), 1)
    yield "too many bullet lines", _exceeds(sum(x.startswith(BULLETS) for x in lines) / count, settings.bullet_lines)
    yield "too many ellipsis lines", _exceeds(sum(x.endswith(ELLIPSES) for x in lines) / count, settings.ellipsis_lines)
    if lines:
        num_ended = sum(line.endswith(SENTENCE_ENDS) for line in lines)
        yield "too few lines end a sentence", _is_below(num_ended / count, settings.ended_lines)
    short_length = 30 / (LETTERS_PER_IDEOGRAPH if split_text.is_unspaced else 1)
    num_short = sum(len(line) < short_length for line in lines)
    yield "too many short lines", _exceeds(num_short / count, settings.short_lines)
    max_breaks = _scale_limit(settings.line_breaks, len(split_text.words))
    yield "too many line breaks", _exceeds(split_text.text.count("\n"), max_breaks)
    if len(lines) < 2:
        return
    num_repeated, characters = count_repeats(lines)
    yield "repeated lines", _exceeds(num_repeated / count, settings.repeated_lines)
    yield "repeated lines", _exceeds(characters / sum(map(len, lines)), settings.repeated_line_characters)
    paragraphs = split_text.paragraphs
    num_repeated, characters = count_repeats(paragraphs)
    yield "repeated paragraphs", _exceeds(num_repeated / max(len(paragraphs), 1), settings.repeated_paragraphs)
    share = characters / max(sum(map(len, paragraphs)), 1)
    yield "repeated paragraphs", _exceeds(share, settings.repeated_paragraph_characters)


def _vocabulary_rules(split_text: SplitText, settings: QualitySettings, language: str) -> Iterator[tuple[str, bool]]:
    """Rules about words with letters and about stop words."""
    if settings.letter_words is not None and split_text.words:
        num_without_letters = sum(not _has_letter(word) for word in filterfalse(str.isalpha, split_text.words))
        share = 1 - num_without_letters / len(split_text.words)
        yield "too few words with letters", _is_below(share, settings.letter_words)
    if known := STOP_WORDS.get(language or "en", ()):
        min_stop_words, joined = settings.stop_words or 0, split_text.joined
        has_enough = _has_words(known, joined, min_stop_words) or _has_words(known, joined.lower(), min_stop_words)
        yield "too few stop words", not has_enough


def _has_words(known: Collection[str], joined: str, min_count: int) -> bool:
    """Whether `min_count` of the known words occur; searching for each is faster than looking up every word."""
    padded = f" {joined} "
    matches = (word for word in known if f" {word} " in padded)
    return sum(1 for _ in islice(matches, min_count)) == min_count


def _has_letter(word: str) -> bool:
    return word[0].isalpha() or any(map(str.isalpha, word))


def _repetition_rules(split_text: SplitText, settings: QualitySettings) -> Iterator[tuple[str, bool]]:
    """Rules about repeated n-grams."""
    repetition = PhraseRepetition(split_text.joined)
    words_factor = IDEOGRAPHS_PER_WORD if split_text.is_unspaced else 1
    for size, limit in sorted((settings.top_phrases or {}).items()):
        is_exceeded = repetition.top_phrase_exceeds(size * words_factor, limit)
        yield f"one phrase of {size} words repeated", is_exceeded
    limits = {size * words_factor: limit for size, limit in (settings.repeated_phrases or {}).items()}
    size = repetition.first_size_exceeding(limits)
    yield f"repeated phrases of {size // words_factor} words", size > 0
