"""Semantic textual similarity (as STS): two passages in different words, and how similar they are, from 0 to 5."""

from __future__ import annotations

from meristem.samples.microworld import generate_story
from meristem.samples.microworld.facts import Beat, Fact
from meristem.samples.sets.excerpt import realize_excerpt, without_reasons
from meristem.samples.sets.fact_perturbation import perturb_fact
from meristem.samples.sets.sample_request import SEED_OFFSET, STORY_STRIDE, Row, SampleRequest

ROLES = ("who", "whom", "what", "where", "town", "town_to", "term", "count")
PASSAGE_LENGTH = 2
"""Sentences per passage."""
MAX_SCORE = 5.0
OPPOSITE_FACTOR = 0.3
"""Factor for the similarity of two opposite opinions."""


def row(request: SampleRequest) -> Row | None:
    """Two passages with two, one or no sentences in common, possibly perturbed; some are from another story."""
    beats = [without_reasons(beat) for beat in request.story.beats]
    num_shared = request.label_rng.choice((0, 1, 1, 2, 2, 2))
    from_other_story = num_shared == 0 and request.label_rng.chance(0.4)
    if len(beats) < 2 * PASSAGE_LENGTH:
        return None
    numbers = request.rng.sample(range(len(beats)), 2 * PASSAGE_LENGTH)
    first = sorted(numbers[:PASSAGE_LENGTH])
    other = request.story
    if from_other_story:
        other_number = request.number + (request.stories_skipped + 1) * STORY_STRIDE
        other = generate_story(request.seed + SEED_OFFSET, other_number)
        chosen = sorted(request.rng.sample(range(len(other.beats)), PASSAGE_LENGTH))
        second = [without_reasons(other.beats[index]) for index in chosen]
    else:
        shared_beats = request.rng.sample(first, num_shared)
        chosen = sorted([*shared_beats, *numbers[PASSAGE_LENGTH : 2 * PASSAGE_LENGTH - num_shared]])
        second = [_maybe_perturb(beats[index], request) if index in shared_beats else beats[index] for index in chosen]
    first_passage = realize_excerpt(request.story, [beats[index] for index in first], request.language)
    second_passage = realize_excerpt(other, second, request.language, variant=1)
    score = similarity_score(first_passage.facts, second_passage.facts, same_world=not from_other_story)
    return {"text": first_passage.text, "text_b": second_passage.text, "label": round(score, 2)}


def _maybe_perturb(beat: Beat, request: SampleRequest) -> Beat:
    """A beat to be repeated: in 60 % of the cases with a detail changed."""
    return tuple(perturb_fact(fact, request.rng) for fact in beat) if request.rng.chance(0.6) else beat


def similarity_score(first: Beat, second: Beat, *, same_world: bool) -> float:
    """0 to 5: the mean of the best match of every fact on either side."""
    match_scores = [
        max(_fact_similarity(fact, other, same_world) for other in others)
        for facts, others in ((first, second), (second, first))
        for fact in facts
    ]
    return MAX_SCORE * sum(match_scores) / len(match_scores)


def _fact_similarity(fact: Fact, other: Fact, same_world: bool) -> float:
    """The share of equal roles among those that either fact has; a third of it for different kinds."""
    roles = [role for role in ROLES if getattr(fact, role) or getattr(other, role)]
    num_equal = sum(_equal(getattr(fact, role), getattr(other, role), same_world) for role in roles)
    share = num_equal / len(roles)
    if fact.kind != other.kind:
        return share / 3
    return share * OPPOSITE_FACTOR if fact.polarity * other.polarity < 0 else share


def _equal(value: object, other: object, same_world: bool) -> bool:
    """Equality of roles; entities of different worlds differ even if they have the same name."""
    return value == other and (same_world or isinstance(value, int))
