"""Topics: what a passage of a story is about, several at a time."""

from __future__ import annotations

from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.excerpt import excerpt, plain

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
OTHERS = {"move", "carry", "put", "fetch", "hide", "paint", "clean", "care", "meet", "wait", "show", "help", "is_at"}
"""Facts that belong to none of the topics."""
TOLD = frozenset(OTHERS.union(*TOPICS.values()))
RARE = ("damage", "gifts", "meals", "feelings", "weather", "lost-and-found", "trade", "travel", "talk")
"""Topics that a passage is looked for in a story, so that none is too seldom."""


def row(ask: Ask) -> Row | None:
    """Three to five neighbouring sentences and all their topics."""
    beats = [beat for beat in ask.story.beats if all(fact.kind in TOLD for fact in beat)]
    length = ask.wish.between(3, 5)
    kinds = {fact.kind for beat in beats for fact in beat}
    wanted = next((topic for topic in ask.wish.some(RARE, len(RARE)) if TOPICS[topic] & kinds), None)
    if wanted is None or len(beats) < length:
        return None
    holds = [number for number, beat in enumerate(beats) if any(fact.kind in TOPICS[wanted] for fact in beat)]
    start = max(0, min(ask.dice.pick(holds) - ask.dice.between(0, length - 1), len(beats) - length))
    told = excerpt(ask.story, [plain(beat) for beat in beats[start : start + length]], ask.language)
    told_of = {fact.kind for fact in told.facts}
    return {"text": told.text, "label": [topic for topic, of in TOPICS.items() if told_of & of]}
