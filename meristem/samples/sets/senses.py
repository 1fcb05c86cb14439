"""Senses: one word of a sentence that means one thing beside these words and another beside those.

English has words spelled alike; in Chinese it is signs, of which the tellings are full: 把 counts chairs or marks what
is acted upon, 里 is inside or part of a kilometre.
"""

from __future__ import annotations

from meristem.samples.microworld import Place, Thing
from meristem.samples.microworld.facts import Beat
from meristem.samples.microworld.lexicon import lexicon
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.excerpt import Excerpt, excerpt, plain
from meristem.samples.sets.splitting import split
from meristem.samples.sets.tables import groups, rows

NONE = "_"
"""The tag of words that are not asked about."""
SIGNS = ("把/counts", "把/marks", "上/place", "上/time", "里/place", "里/distance", "给/before", "给/after")
MOST = 3
"""Sentences of a story that are looked at for a sign."""


def row(ask: Ask) -> Row | None:
    """A sentence with one word to be understood."""
    return _english(ask) if ask.language == "en" else _chinese(ask)


def _english(ask: Ask) -> Row | None:
    """A scene of the stories, or the word beside something that goes with one of its senses."""
    table = rows("senses")
    word, sense, with_it = ask.wish.pick(table)
    dice = ask.dice
    name = dice.pick(lexicon().names).term.english
    if dice.chance(0.3):
        scenes = [scene for scene in lexicon().scenes if scene.sense == f"{word}/{sense}"]
        text = f"{name} {dice.pick(scenes).english}."
    else:
        text = dice.pick(groups("frames", "en")["frame"])
        for slot, filled in (("who", name), ("word", word), ("cue", dice.pick(with_it.split(", ")))):
            text = text.replace("{" + slot + "}", filled)
    words = split(text)
    at = [number for number, (part, *_) in enumerate(words) if part == word]
    if len(at) != 1:
        return None
    tags = [NONE] * len(words)
    tags[at[0]] = f"{word}/{sense}"
    return {"words": [part for part, *_ in words], "tags": tags, "text": text}


def _chinese(ask: Ask) -> Row | None:
    """A sentence of a story, and what one of its signs does there."""
    for wanted in ask.wish.some(SIGNS, len(SIGNS)):
        beats = [beat for beat in ask.story.beats if _may_tell(beat, wanted)]
        for beat in ask.dice.some(beats, MOST):
            told = excerpt(ask.story, [plain(beat)], "zh")
            at = [n for n, sign in enumerate(told.text) if sign == wanted[0] and _sense(n, told) == wanted]
            if at:
                chosen, words = ask.dice.pick(at), split(told.text)
                tags = [wanted if start == chosen else NONE for _, start, _ in words]
                return {"words": [part for part, *_ in words], "tags": tags, "text": told.text}
    return None


def _may_tell(beat: Beat, wanted: str) -> bool:
    """Whether it is worth while to tell a beat."""
    match wanted:
        case "把/counts":
            return any(fact.what is not None and fact.what.noun.measure == "把" for fact in beat)
        case "上/place" | "里/place":
            return any(fact.where is not None and fact.where.noun.locative == wanted[0] for fact in beat)
        case "里/distance":
            return any(fact.kind == "distance" for fact in beat)
        case "给/after":
            return any(fact.kind in {"give", "sell", "lend", "return"} for fact in beat)
    return True


def _sense(place: int, told: Excerpt) -> str | None:
    """What the sign at a place does there; nothing where it belongs to a name or a phrase."""
    text, before = told.text, told.text[place - 1 : place]
    inside = [one.entity for one in told.mentions() if one.start <= place < one.end]
    after_place = any(isinstance(one.entity, Place) and one.end == place for one in told.mentions())
    counts = before in {"一", "那"} and any(isinstance(one, Thing) for one in inside)
    match text[place]:
        case "把":
            return "把/counts" if counts else None if inside else "把/marks"
        case "上":
            return "上/place" if after_place else "上/time" if before in {"早", "晚"} else None
        case "里":
            return "里/place" if after_place else "里/distance" if before == "公" else None
        case "给":
            return (
                "给/after" if before in {"送", "卖", "借", "还"} else None if inside or before == "交" else "给/before"
            )
    return None
