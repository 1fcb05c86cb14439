"""Unseen words: made-up words between those of a text; where every word has a tag, in place of some."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from meristem.labelled.perturbation import (
    Perturbation,
    TextUnit,
    Units,
    are_tagged,
    draw_indices,
    is_latin_word,
    is_single_ideograph,
    match_case,
    word_set,
)

ONSETS = sorted(word_set("b br d dr f fl g gr k kl l m n p pl r s sk st t tr v vr z"))
VOWELS = ["a", "e", "i", "o", "u", "ai", "oo"]
CODAS = ["", "", "b", "ck", "ft", "g", "lk", "mp", "nt", "rg", "sh", "x", "zz"]
SUFFIX_LETTERS, MIN_REPLACED_LETTERS = 3, 5
FUNCTION_WORDS = word_set(
    "about above after again against although among around because before behind being below between could does down "
    "during each either every from have having here into more most must never none only other should since some such "
    "than that their theirs them then there these they this those though through under until upon very were what when "
    "where whether which while whom whose will with within without would your yours"
)
"""Words of a closed class, which a made-up word cannot stand for; shorter ones are never replaced."""
RARE_IDEOGRAPHS = (0x3400, 0x4DB5)
"""CJK extension A: characters that hardly any text has."""


class UnseenWords(Perturbation):
    """Words that no training text has."""

    summary = "made-up words added; where every word has a tag, open-class words replaced, with their ending and case"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """Made-up words, as many as the share `severity` of the words."""
        if are_tagged(units):
            result = list(units)
            for index in draw_indices([i for i, unit in enumerate(units) if _is_open_class(unit)], severity, rng):
                result[index] = replace(units[index], text=_stand_in(units[index].text, rng))
            return result
        behind = [
            index
            for index, unit in enumerate(units)
            if (is_latin_word(unit.text) or is_single_ideograph(unit.text))
            and not (index + 1 < len(units) and units[index + 1].joined)
        ]
        chosen = set(draw_indices(behind, severity, rng))
        return [
            new for index, unit in enumerate(units) for new in (_with_word(unit, rng) if index in chosen else [unit])
        ]


def made_up_word(rng: Generator) -> str:
    """A word of two or three syllables that reads like one and is none."""
    syllables = int(rng.integers(2, 4))
    return "".join(str(rng.choice(part)) for _ in range(syllables) for part in (ONSETS, VOWELS)) + str(
        rng.choice(CODAS)
    )


def _with_word(unit: TextUnit, rng: Generator) -> list[TextUnit]:
    """The unit and a made-up one behind it."""
    if is_single_ideograph(unit.text):
        return [replace(unit, space=""), TextUnit(text=_rare_ideograph(rng), space=unit.space)]
    return [replace(unit, space=" "), TextUnit(text=made_up_word(rng), space=unit.space)]


def _rare_ideograph(rng: Generator) -> str:
    return chr(int(rng.integers(*RARE_IDEOGRAPHS)))


def _is_open_class(unit: TextUnit) -> bool:
    text = unit.text
    is_long = is_latin_word(text) and len(text) >= MIN_REPLACED_LETTERS
    return is_long and text.lower() not in FUNCTION_WORDS


def _stand_in(word: str, rng: Generator) -> str:
    """A made-up word with the ending and the case of another one."""
    suffix = word[-SUFFIX_LETTERS:].lower() if len(word) > MIN_REPLACED_LETTERS else ""
    return match_case(made_up_word(rng) + suffix, word)
