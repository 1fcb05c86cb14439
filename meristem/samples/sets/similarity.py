"""Similarity: two passages in different words, and on a scale from 0 to 5 how much of what they tell is the same."""

from __future__ import annotations

from collections.abc import Sequence

from meristem.samples.microworld import Fact, story
from meristem.samples.microworld.facts import Beat
from meristem.samples.sets.altered import altered
from meristem.samples.sets.asking import APART, FURTHER, Ask, Row
from meristem.samples.sets.excerpt import excerpt, plain

ROLES = ("who", "whom", "what", "where", "town", "town_to", "term", "count")
LENGTH = 2
"""Sentences of a passage."""
HIGHEST = 5.0
OPPOSITE = 0.3
"""What is left of the likeness of two opinions when one praises and the other blames."""


def row(ask: Ask) -> Row | None:
    """Two sentences, and two of which both, one or none are the same, or almost; some come from another story."""
    beats = [plain(beat) for beat in ask.story.beats]
    kept = ask.wish.pick((0, 1, 1, 2, 2, 2))
    strange = kept == 0 and ask.wish.chance(0.4)
    if len(beats) < 2 * LENGTH:
        return None
    numbers = ask.dice.some(range(len(beats)), 2 * LENGTH)
    first = sorted(numbers[:LENGTH])
    other = story(ask.seed + APART, ask.number + (ask.tale + 1) * FURTHER) if strange else ask.story
    if strange:
        second = [plain(other.beats[n]) for n in sorted(ask.dice.some(range(len(other.beats)), LENGTH))]
    else:
        same = ask.dice.some(first, kept)
        chosen = sorted([*same, *numbers[LENGTH : 2 * LENGTH - kept]])
        second = [_changed(beats[n], ask) if n in same else beats[n] for n in chosen]
    one = excerpt(ask.story, [beats[n] for n in first], ask.language)
    two = excerpt(other, second, ask.language, variant=1)
    score = alike(one.facts, two.facts, same_world=not strange)
    return {"text": one.text, "text_b": two.text, "label": round(score, 2)}


def _changed(beat: Beat, ask: Ask) -> Beat:
    """A beat that is to be told again: more than half of them with something about it changed."""
    return tuple(altered(fact, ask.dice) for fact in beat) if ask.dice.chance(0.6) else beat


def alike(first: Beat, second: Beat, *, same_world: bool) -> float:
    """0 to 5: for each fact of either side the best match on the other, on the average."""
    each = [_best(fact, second, same_world) for fact in first] + [_best(fact, first, same_world) for fact in second]
    return HIGHEST * sum(each) / len(each)


def _best(fact: Fact, others: Sequence[Fact], same_world: bool) -> float:
    return max(_match(fact, other, same_world) for other in others)


def _match(fact: Fact, other: Fact, same_world: bool) -> float:
    """The share of what either says that both say: the kind, and who, what and where as far as told."""
    roles = [role for role in ROLES if getattr(fact, role) or getattr(other, role)]
    same = sum(_equal(getattr(fact, role), getattr(other, role), same_world) for role in roles)
    share = same / len(roles)
    if fact.kind != other.kind:
        return share / 3
    return share * OPPOSITE if fact.polarity * other.polarity < 0 else share


def _equal(one: object, other: object, same_world: bool) -> bool:
    """In another world there are other people and things, even where they are called the same."""
    return one == other and (same_world or isinstance(one, int))
