"""Summarization: a passage, and what happened to its main object, in other words."""

from __future__ import annotations

from collections import Counter

from meristem.samples.microworld.facts import Fact
from meristem.samples.sets.excerpt import realize_excerpt, without_reasons
from meristem.samples.sets.narrator import Narrator
from meristem.samples.sets.sample_request import Row, SampleRequest

MIN_SENTENCES, MAX_SENTENCES = 6, 10
MAX_SUMMARY_SENTENCES = 3
"""Maximum length of a summary."""


def row(request: SampleRequest) -> Row | None:
    """Six to ten sentences, and the two or three main facts about one thing."""
    beats = request.story.beats
    length = min(request.label_rng.randint(MIN_SENTENCES, MAX_SENTENCES), len(beats))
    start = request.rng.randint(0, len(beats) - length)
    passage_beats = beats[start : start + length]
    main_facts = _main_facts([fact for beat in passage_beats for fact in beat])
    if main_facts is None:
        return None
    narrator = Narrator(request.story, request.language, request.rng)
    for fact in main_facts:
        if fact.where is not None:  # the passage may not mention its town
            narrator.realizer.known_ids.add(fact.where.id)
        narrator.add_beat(without_reasons((fact,)), request.rng.random())
    return {"source": realize_excerpt(request.story, passage_beats, request.language).text, "target": narrator.text}


def _main_facts(facts: list[Fact]) -> list[Fact] | None:
    """The facts about the most frequent thing: the first, the last and the one before it."""
    events = [fact for fact in facts if fact.what is not None and not fact.kind.startswith("judge")]
    counts = Counter(fact.what.id for fact in events if fact.what is not None).most_common(2)
    if not counts or counts[0][1] < 2 or (len(counts) > 1 and counts[0][1] == counts[1][1]):
        return None
    thing_facts = [fact for fact in events if fact.what is not None and fact.what.id == counts[0][0]]
    if len(thing_facts) <= MAX_SUMMARY_SENTENCES:
        return thing_facts
    return [thing_facts[0], *thing_facts[1 - MAX_SUMMARY_SENTENCES :]]
