"""Entailment: whether a sentence follows from a passage, contradicts it, or is left open by it."""

from __future__ import annotations

from dataclasses import replace

from meristem.samples.microworld import Fact
from meristem.samples.microworld.facts import Beat
from meristem.samples.sets.altered import elsewhere
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.clause import Narrator
from meristem.samples.sets.excerpt import excerpt, plain
from meristem.samples.sets.filled import filled
from meristem.samples.sets.tables import groups

LABELS = ("entailment", "neutral", "contradiction")
PLACED = frozenset({"buy", "lose", "find", "put", "hide", "meet", "stock", "cook"})
"""What happens in one place happens in no other."""
JUDGED = frozenset({"judge_what", "judge_where", "judge_whom"})
RETOLD = 0.35
"""How often a sentence tells the fact itself rather than what follows from it."""


def row(ask: Ask) -> Row | None:
    """A fact in a passage and a sentence about it; where that is left open, the passage is about something else."""
    label = ask.wish.pick(LABELS)
    true = label == "entailment" or (label == "neutral" and ask.wish.chance(0.5))
    known = JUDGED | set(groups("inferred", ask.language))
    places = [n for n, beat in enumerate(ask.story.beats) if len(beat) == 1 and beat[0].kind in known]
    if not places:
        return None
    place = ask.dice.pick(places)
    fact = ask.story.beats[place][0]
    others = [n for n, beat in enumerate(ask.story.beats) if n != place and _apart(beat, fact)]
    chosen = ask.dice.some(others, 2 if label == "neutral" else ask.dice.between(0, 1))
    if label == "neutral" and not any(_shared(ask.story.beats[n], fact) for n in chosen):
        return None
    told = sorted(chosen if label == "neutral" else [*chosen, place])
    text = excerpt(ask.story, [plain(ask.story.beats[n]) for n in told], ask.language).text
    return {"text": text, "text_b": _sentence(ask, fact, true), "label": label}


def _sentence(ask: Ask, fact: Fact, true: bool) -> str:
    """What follows from a fact, or what cannot be where it holds."""
    narrator = Narrator(ask.story, ask.language, ask.dice)
    fact = replace(fact, whose=None)  # whose it is may not have been told
    if fact.kind in JUDGED:
        liked = (fact.polarity > 0) == true
        narrator.say(ask.dice.pick(groups("opinions", ask.language)["liked" if liked else "disliked"]), fact)
        return narrator.text
    if fact.kind in PLACED and ask.dice.chance(RETOLD):
        narrator.retell(plain((fact if true else elsewhere(fact, ask.dice),))[0])
        return narrator.text
    sign = "+ " if true else "- "
    fitting = [line for line in groups("inferred", ask.language)[fact.kind] if line.startswith(sign)]
    return filled(ask.dice.pick(fitting).removeprefix(sign), fact, ask.language)


def _apart(beat: Beat, fact: Fact) -> bool:
    """Whether a beat says nothing that bears upon a fact: other kinds, and another thing."""
    moving = {"move", "travel", "is_at", "located", "owned", "held"}
    for other in beat:
        same = other.what is not None and fact.what is not None and other.what.id == fact.what.id
        if same or other.kind == fact.kind or other.kind in moving or other.kind.startswith("judge"):
            return False
    return True


def _shared(beat: Beat, fact: Fact) -> bool:
    """Whether a beat is about the same person."""
    return any(other.who is not None and fact.who is not None and other.who.id == fact.who.id for other in beat)
