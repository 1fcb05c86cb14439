"""Microworld: a small simulated world whose stories are generated as facts and realized in English and Chinese.

`generate_story` returns facts and `realize_story` their text; `translated_passage` gives a passage in two languages;
`generate_scene`, `describe_scene` and `draw` make images with captions.
"""

from __future__ import annotations

from meristem.samples.microworld.block_random import BlockRandom
from meristem.samples.microworld.chinese import ChineseRealizer
from meristem.samples.microworld.english import EnglishRealizer
from meristem.samples.microworld.facts import RealizedSentence, Story
from meristem.samples.microworld.scene_image import draw
from meristem.samples.microworld.shape_scenes import ShapeScene, describe_scene, generate_scene, score_caption
from meristem.samples.microworld.story import generate_story
from meristem.samples.microworld.surface_realization import SurfaceRealizer
from meristem.samples.microworld.translation_passages import select_passage
from meristem.utils.randomness import generator

__all__ = [
    "LANGUAGES",
    "VERSION",
    "ShapeScene",
    "describe_scene",
    "draw",
    "generate_scene",
    "generate_story",
    "realize_story",
    "score_caption",
    "story_text",
    "translated_passage",
]

VERSION = 1  # increment whenever a seed would give other text
REALIZERS: dict[str, type[SurfaceRealizer]] = {"en": EnglishRealizer, "zh": ChineseRealizer}
LANGUAGES = tuple(REALIZERS)


def realize_story(story: Story, language: str, variant: int = 0) -> tuple[RealizedSentence, ...]:
    """A story sentence by sentence; another variant expresses the same facts in other words."""
    rng = BlockRandom(generator(story.seed, f"microworld {language}", variant, story.number))
    realizer = REALIZERS[language](rng, story.weekday)
    return tuple(map(realizer.realize, story.beats, story.time_draws))


def story_text(seed: int, number: int, language: str) -> str:
    """The text of one story."""
    return _join_sentences(generate_story(seed, number), language)


def translated_passage(seed: int, number: int, source: str, target: str) -> tuple[str, str]:
    """A passage of one story in two languages."""
    passage = select_passage(generate_story(seed, number))
    return _join_sentences(passage, source), _join_sentences(passage, target)


def _join_sentences(story: Story, language: str) -> str:
    return (" " if language == "en" else "").join(sentence.text for sentence in realize_story(story, language))
