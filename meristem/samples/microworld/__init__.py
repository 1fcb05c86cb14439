"""A small simulated world told in English and Chinese: `story` says what happens, `tell` says it in a language.

`translation` tells a passage twice, and `scene`, `caption` and `draw` make pictures with what there is to say of them.
"""

from __future__ import annotations

from meristem.randomness import generator
from meristem.samples.microworld.chinese import Chinese
from meristem.samples.microworld.dice import Dice
from meristem.samples.microworld.english import English
from meristem.samples.microworld.facts import (
    Entity,
    Fact,
    Mention,
    Person,
    Place,
    Story,
    Term,
    Thing,
    Told,
    Town,
)
from meristem.samples.microworld.picture import draw
from meristem.samples.microworld.scenes import Scene, caption, named, scene
from meristem.samples.microworld.story import story
from meristem.samples.microworld.telling import Teller
from meristem.samples.microworld.translation import passage

__all__ = [
    "LANGUAGES", "VERSION", "Entity", "Fact", "Mention", "Person", "Place", "Scene", "Story", "Term", "Thing", "Told",
    "Town", "caption", "document", "draw", "named", "scene", "story", "tell", "translation",
]  # fmt: skip

VERSION = 1  # raised whenever a seed would give other text
TELLERS: dict[str, type[Teller]] = {"en": English, "zh": Chinese}
LANGUAGES = tuple(TELLERS)


def tell(told: Story, language: str, variant: int = 0) -> tuple[Told, ...]:
    """A story sentence by sentence; another variant tells the same facts in other words."""
    dice = Dice(generator(told.seed, f"microworld {language}", variant, told.number))
    teller = TELLERS[language](dice, told.weekday)
    return tuple(map(teller.sentence, told.beats, told.pace))


def document(seed: int, number: int, language: str) -> str:
    """The text of one story."""
    return _text(story(seed, number), language)


def translation(seed: int, number: int, source: str, target: str) -> tuple[str, str]:
    """A passage of one story in two languages."""
    told = passage(story(seed, number))
    return _text(told, source), _text(told, target)


def _text(told: Story, language: str) -> str:
    return (" " if language == "en" else "").join(sentence.text for sentence in tell(told, language))
