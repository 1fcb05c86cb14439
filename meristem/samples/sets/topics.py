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
OTHER_KINDS = {
    "move",
    "carry",
    "put",
    "fetch",
    "hide",
    "paint",
    "clean",
    "care",
    "meet",
    "wait",
    "show",
    "help",
    "is_at",
}
"""Kinds of facts without a topic."""
USABLE_KINDS = frozenset(OTHER_KINDS.union(*TOPICS.values()))
SOUGHT_TOPICS = ("damage", "gifts", "meals", "feelings", "weather", "lost-and-found", "trade", "travel", "talk")
"""Topics that a passage is selected for, so that none is too rare."""


def row(request: SampleRequest) -> Row | None:
    """Three to five consecutive sentences and all their topics."""
    beats = [beat for beat in request.story.beats if all(fact.kind in USABLE_KINDS for fact in beat)]
    length = request.label_rng.randint(3, 5)
    kinds = {fact.kind for beat in beats for fact in beat}
    topic_sought = next(
        (topic for topic in request.label_rng.sample(SOUGHT_TOPICS, len(SOUGHT_TOPICS)) if TOPICS[topic] & kinds), None
    )
    if topic_sought is None or len(beats) < length:
        return None
    topic_beats = [
        number for number, beat in enumerate(beats) if any(fact.kind in TOPICS[topic_sought] for fact in beat)
    ]
    start = max(0, min(request.rng.choice(topic_beats) - request.rng.randint(0, length - 1), len(beats) - length))
    passage = realize_excerpt(
        request.story, [without_reasons(beat) for beat in beats[start : start + length]], request.language
    )
    passage_kinds = {fact.kind for fact in passage.facts}
    return {
        "text": passage.text,
        "label": [topic for topic, topic_kinds in TOPICS.items() if passage_kinds & topic_kinds],
    }
