"""Homophones: Chinese characters by common ones with the same pinyin, English words by words that sound the same."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from numpy.random import Generator

from meristem.labelled.perturbation import (
    Perturbation,
    TextUnit,
    Units,
    draw_indices,
    draw_item,
    is_single_ideograph,
    match_case,
)
from meristem.utils.optional_packages import require_module

ENGLISH_GROUPS = (
    "their/there to/too/two your/youre its/its' then/than hear/here know/no new/knew write/right see/sea "
    "son/sun week/weak peace/piece great/grate made/maid would/wood which/witch whole/hole hour/our one/won "
    "four/for by/buy/bye wait/weight meet/meat plain/plane tale/tail role/roll scene/seen break/brake "
    "waste/waist steal/steel bored/board heart/hart real/reel sight/site/cite way/weigh past/passed "
    "course/coarse principal/principle main/mane night/knight not/knot be/bee so/sew sow/sew wear/where "
    "through/threw four/fore weather/whether dear/deer fair/fare feel/feal blue/blew allowed/aloud pair/pear "
    "rain/reign road/rode sell/cell scent/sent tide/tied war/wore week/weak yoke/yolk"
)
LEVEL_1 = (0xB0A1, 0xD7F9)
"""GB2312 level 1: the 3,755 most common characters."""


def _english() -> dict[str, tuple[str, ...]]:
    """Word → words that sound the same."""
    sounds: dict[str, tuple[str, ...]] = {}
    for group in ENGLISH_GROUPS.split():
        words = group.split("/")
        for word in words:
            others = tuple(other for other in words if other != word)
            sounds[word] = tuple(dict.fromkeys((*sounds.get(word, ()), *others)))
    return sounds


ENGLISH = _english()


class Homophones(Perturbation):
    """Chosen words replaced by others that sound the same."""

    summary = "an ideograph with the same pinyin, as an input method offers; in English there for their"

    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The share `severity` of the words that have homophones, replaced."""
        result = list(units)
        candidates = [index for index, unit in enumerate(units) if homophones(unit.text)]
        for index in draw_indices(candidates, severity, rng):
            text = units[index].text
            result[index] = replace(units[index], text=match_case(draw_item(homophones(text), rng), text))
        return result


def homophones(text: str) -> tuple[str, ...]:
    """Words or common characters that sound the same; none for most words."""
    if not is_single_ideograph(text):
        return ENGLISH.get(text.lower(), ())
    by_character, by_sound = _pinyin_tables()
    sound = by_character.get(text)
    return () if sound is None else tuple(other for other in by_sound[sound] if other != text)


@cache
def _pinyin_tables() -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Common character → its first reading without tone, and reading → characters."""
    pypinyin = require_module("pypinyin", "homophones of Chinese characters", "robustness")
    low, high = LEVEL_1
    codes = (code for code in range(low, high + 1) if code & 0xFF >= 0xA1 and code & 0xFF <= 0xFE)
    characters = [code.to_bytes(2, "big").decode("gb2312") for code in codes]
    by_character = {character: str(pypinyin.lazy_pinyin(character)[0]) for character in characters}
    by_sound: dict[str, list[str]] = {}
    for character, sound in by_character.items():
        by_sound.setdefault(sound, []).append(character)
    return by_character, {sound: tuple(same) for sound, same in by_sound.items()}
