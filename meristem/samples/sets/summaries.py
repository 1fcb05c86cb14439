"""Summaries: a passage, and what became of the thing that most of it is about, in other words."""

from __future__ import annotations

from collections import Counter

from meristem.samples.microworld import Fact
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.clause import Narrator
from meristem.samples.sets.excerpt import excerpt, plain

SHORTEST, LONGEST = 6, 10
MOST = 3
"""Sentences of a summary."""


def row(ask: Ask) -> Row | None:
    """Six to ten sentences, and the two or three facts that tell a thing's fate."""
    beats = ask.story.beats
    length = min(ask.wish.between(SHORTEST, LONGEST), len(beats))
    start = ask.dice.between(0, len(beats) - length)
    whole = beats[start : start + length]
    main = _fate([fact for beat in whole for fact in beat])
    if main is None:
        return None
    short = Narrator(ask.story, ask.language, ask.dice)
    for fact in main:
        short.teller.known |= {fact.where.id} if fact.where is not None else set()  # its town may not have been told
        short.tell(plain((fact,)), ask.dice.roll())
    return {"source": excerpt(ask.story, whole, ask.language).text, "target": short.text}


def _fate(facts: list[Fact]) -> list[Fact] | None:
    """The facts about the one thing of which there are most: the first, the last and the one before it."""
    events = [fact for fact in facts if fact.what is not None and not fact.kind.startswith("judge")]
    counts = Counter(fact.what.id for fact in events if fact.what is not None).most_common(2)
    if not counts or counts[0][1] < 2 or (len(counts) > 1 and counts[0][1] == counts[1][1]):
        return None
    found = [fact for fact in events if fact.what is not None and fact.what.id == counts[0][0]]
    return found if len(found) <= MOST else [found[0], *found[1 - MOST :]]
