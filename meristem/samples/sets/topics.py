"""Topic classification, multi-label: what a passage of a story is about."""

from __future__ import annotations

from meristem.samples.sets.excerpt import realize_excerpt, without_reasons
from meristem.samples.sets.sample_request import Row, SampleRequest

TOPICS = {
    "trade": {"buy", "sell", "stock"},
    "travel": {"travel", "distance"},
    "meals": {"cook", "eat", "judge_dish"},
    "talk": {"talk", "argue", "call", "write", "tell"},
    "weather": {"weather"},
    "lost-and-found": {"lose", "search", "find"},
    "damage": {"break", "repair"},
    "gifts": {"give", "lend", "return"},
    "opinions": {"judge_what", "judge_where", "judge_whom", "judge_dish"},
    "feelings": {"happy", "sad"},
}
_OTHER_KINDS = "move carry put fetch hide paint clean care meet wait show help is_at"
OTHER_KINDS = frozenset(_OTHER_KINDS.split())
"""Kinds of facts without a topic."""
USABLE_KINDS = frozenset(OTHER_KINDS.union(*TOPICS.values()))
SOUGHT_TOPICS = ("damage", "gifts", "meals", "feelings", "weather", "lost-and-found", "trade", "travel", "talk")
"""Topics that a passage is selected for, so that none is too rare."""


def row(request: SampleRequest) -> Row | None:
    """Three to five consecutive sentences and all their topics."""
    beats = [beat for beat in request.story.beats if all(fact.kind in USABLE_KINDS for fact in beat)]
    length = request.label_rng.randint(3, 5)
    kinds = {fact.kind for beat in beats for fact in beat}
    shuffled_topics = request.label_rng.sample(SOUGHT_TOPICS, len(SOUGHT_TOPICS))
    sought_kinds = next((TOPICS[topic] for topic in shuffled_topics if TOPICS[topic] & kinds), None)
    if sought_kinds is None or len(beats) < length:
        return None
    topic_beats = [number for number, beat in enumerate(beats) if any(fact.kind in sought_kinds for fact in beat)]
    start = max(0, min(request.rng.choice(topic_beats) - request.rng.randint(0, length - 1), len(beats) - length))
    chosen = [without_reasons(beat) for beat in beats[start : start + length]]
    passage = realize_excerpt(request.story, chosen, request.language)
    passage_kinds = {fact.kind for fact in passage.facts}
    labels = [topic for topic, topic_kinds in TOPICS.items() if passage_kinds & topic_kinds]
    return {"text": passage.text, "label": labels}
