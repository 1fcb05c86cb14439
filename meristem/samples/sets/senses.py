"""Word sense disambiguation: sentences with one ambiguous word, tagged with its sense.

In English these are homographs; in Chinese, characters with several functions: 把 is a measure word or marks the
object, 里 is inside or part of a kilometre.
"""

from __future__ import annotations

from meristem.samples.microworld.facts import Beat, Location, Thing
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.sets.excerpt import Excerpt, realize_excerpt, without_reasons
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_tables import read_groups, read_rows
from meristem.samples.sets.word_spans import split_words, tagged_row

NO_SENSE = "_"
"""The tag of all other words."""
CHARACTER_SENSES = ("把/counts", "把/marks", "上/place", "上/time", "里/place", "里/distance", "给/before", "给/after")
MAX_BEATS = 3
"""Sentences of a story that are searched for a character."""


def row(request: SampleRequest) -> Row | None:
    """A sentence with one tagged word."""
    return _english_row(request) if request.language == "en" else _chinese_row(request)


def _english_row(request: SampleRequest) -> Row | None:
    """A scene of the stories, or a sentence with a cue for one of the senses."""
    table = read_rows("senses")
    word, sense, cues = request.label_rng.choice(table)
    rng = request.rng
    name = rng.choice(load_lexicon().names).term.english
    if rng.chance(0.3):
        scenes = [scene for scene in load_lexicon().scenes if scene.sense == f"{word}/{sense}"]
        text = f"{name} {rng.choice(scenes).english}."
    else:
        text = rng.choice(read_groups("frames", "en")["frame"])
        for slot, content in (("who", name), ("word", word), ("cue", rng.choice(cues.split(", ")))):
            text = text.replace("{" + slot + "}", content)
    words = split_words(text)
    positions = [number for number, (token, *_) in enumerate(words) if token == word]
    if len(positions) != 1:
        return None
    tags = [NO_SENSE] * len(words)
    tags[positions[0]] = f"{word}/{sense}"
    return tagged_row(words, tags, text)


def _chinese_row(request: SampleRequest) -> Row | None:
    """A sentence of a story, with the sense of one of its characters."""
    for sense in request.label_rng.sample(CHARACTER_SENSES, len(CHARACTER_SENSES)):
        beats = [beat for beat in request.story.beats if _may_contain(beat, sense)]
        for beat in request.rng.sample(beats, MAX_BEATS):
            passage = realize_excerpt(request.story, [without_reasons(beat)], "zh")
            positions = [index for index in range(len(passage.text)) if _character_sense(index, passage) == sense]
            if positions:
                position, words = request.rng.choice(positions), split_words(passage.text)
                tags = [sense if start == position else NO_SENSE for _, start, _ in words]
                return tagged_row(words, tags, passage.text)
    return None


def _may_contain(beat: Beat, sense: str) -> bool:
    """Whether a beat may contain the sense, so that it is worth realizing."""
    match sense:
        case "把/counts":
            return any(fact.what is not None and fact.what.noun.measure == "把" for fact in beat)
        case "上/place" | "里/place":
            return any(fact.where is not None and fact.where.noun.locative == sense[0] for fact in beat)
        case "里/distance":
            return any(fact.kind == "distance" for fact in beat)
        case "给/after":
            return any(fact.kind in {"give", "sell", "lend", "return"} for fact in beat)
    return True


def _character_sense(index: int, passage: Excerpt) -> str | None:
    """The sense of the character at an index; None where it belongs to a name or a phrase."""
    text, before = passage.text, passage.text[index - 1 : index]
    entities = [item.entity for item in passage.mentions() if item.start <= index < item.end]
    after_place = any(isinstance(item.entity, Location) and item.end == index for item in passage.mentions())
    is_measure_word = before in {"一", "那"} and any(isinstance(item, Thing) for item in entities)
    match text[index]:
        case "把":
            return "把/counts" if is_measure_word else None if entities else "把/marks"
        case "上":
            return "上/place" if after_place else "上/time" if before in {"早", "晚"} else None
        case "里":
            return "里/place" if after_place else "里/distance" if before == "公" else None
        case "给":
            if before in {"送", "卖", "借", "还"}:
                return "给/after"
            return None if entities or before == "交" else "给/before"
    return None
