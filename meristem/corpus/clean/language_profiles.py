"""Language profiles for language identification: scripts, characteristic letters and stop words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SCRIPTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "latin": ("A-Za-zªºÀ-ÖØ-öø-ɏḀ-ỿ", ()),
    "cyrillic": ("Ѐ-ԯ", ("ru", "uk", "be", "bg", "sr", "mk", "kk", "mn")),
    "arabic": ("\u0620-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc", ("ar", "fa", "ur")),
    "devanagari": ("\u0900-\u097f", ("hi", "mr", "ne")),
    "ideographs": ("\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff", ("zh",)),
    "kana": ("\u3041-\u30ff\u31f0-\u31ff", ("ja",)),
    "hangul": ("\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3", ("ko",)),
    "greek": ("\u0370-\u03ff\u1f00-\u1fff", ("el",)),
    "hebrew": ("\u05d0-\u05ea", ("he",)),
    "thai": ("\u0e01-\u0e4e", ("th",)),
    "lao": ("\u0e80-\u0edf", ("lo",)),
    "burmese": ("\u1000-\u109f", ("my",)),
    "khmer": ("\u1780-\u17d3", ("km",)),
    "georgian": ("\u10a0-\u10ff", ("ka",)),
    "armenian": ("\u0531-\u0587", ("hy",)),
    "ethiopic": ("\u1200-\u137f", ("am",)),
    "bengali": ("\u0980-\u09ff", ("bn",)),
    "gurmukhi": ("\u0a00-\u0a7f", ("pa",)),
    "gujarati": ("\u0a80-\u0aff", ("gu",)),
    "tamil": ("\u0b80-\u0bff", ("ta",)),
    "telugu": ("\u0c00-\u0c7f", ("te",)),
    "kannada": ("\u0c80-\u0cff", ("kn",)),
    "malayalam": ("\u0d00-\u0d7f", ("ml",)),
    "sinhala": ("\u0d80-\u0dff", ("si",)),
}
"""Each script with its character ranges and the languages written in it; Latin ones are those of PROFILES."""


class LanguageProfile(NamedTuple):
    """One line of profiles.tsv."""

    letters: str
    """Letters that not every language of the script has; a letter that a language lacks is evidence against it."""
    sequences: tuple[str, ...]
    """Frequent letter sequences, _ for a word boundary: they decide if the stop words do not."""
    words: tuple[str, ...]
    """Stop words, the most frequent first."""


def _read_profiles() -> Iterator[tuple[str, LanguageProfile]]:
    lines = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    for line in lines[1:]:
        language, letters, sequences, words = line.split("\t")
        yield language, LanguageProfile(letters, tuple(sequences.split()), tuple(words.split()))


PROFILES = dict(_read_profiles())
"""What distinguishes a language from the others of its script; languages with a script of their own need none."""
