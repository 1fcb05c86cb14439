"""Natural language inference: whether a passage entails a sentence, contradicts it, or neither."""

from __future__ import annotations

from dataclasses import replace

from meristem.samples.microworld.facts import Beat, Fact
from meristem.samples.sets.excerpt import realize_excerpt, without_reasons
from meristem.samples.sets.fact_perturbation import change_place
from meristem.samples.sets.narrator import Narrator
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_filling import fill_template
from meristem.samples.sets.template_tables import read_groups

LABELS = ("entailment", "neutral", "contradiction")
SINGLE_PLACE_KINDS = frozenset({"buy", "lose", "find", "put", "hide", "meet", "stock", "cook"})
"""Events that happen in one place only."""
OPINION_KINDS = frozenset({"judge_what", "judge_where", "judge_whom"})
RETELL_PROBABILITY = 0.35
"""How often a hypothesis restates the fact itself rather than an inference from it."""


def row(request: SampleRequest) -> Row | None:
    """A passage with a fact and a hypothesis about it; for neutral, the passage is about something else."""
    label = request.label_rng.choice(LABELS)
    is_true = label == "entailment" or (label == "neutral" and request.label_rng.chance(0.5))
    usable_kinds = OPINION_KINDS | set(read_groups("inferred", request.language))
    candidates = [
        index for index, beat in enumerate(request.story.beats) if len(beat) == 1 and beat[0].kind in usable_kinds
    ]
    if not candidates:
        return None
    fact_beat = request.rng.choice(candidates)
    fact = request.story.beats[fact_beat][0]
    others = [
        index for index, beat in enumerate(request.story.beats) if index != fact_beat and _is_unrelated(beat, fact)
    ]
    chosen = request.rng.sample(others, 2 if label == "neutral" else request.rng.randint(0, 1))
    if label == "neutral" and not any(_shares_person(request.story.beats[index], fact) for index in chosen):
        return None
    premise_beats = sorted(chosen if label == "neutral" else [*chosen, fact_beat])
    text = realize_excerpt(
        request.story, [without_reasons(request.story.beats[index]) for index in premise_beats], request.language
    ).text
    return {"text": text, "text_b": _hypothesis(request, fact, is_true), "label": label}


def _hypothesis(request: SampleRequest, fact: Fact, is_true: bool) -> str:
    """An inference from a fact, or a sentence that contradicts it."""
    narrator = Narrator(request.story, request.language, request.rng)
    fact = replace(fact, whose=None)  # the passage may not mention the owner
    if fact.kind in OPINION_KINDS:
        liked = (fact.polarity > 0) == is_true
        narrator.add_template(
            request.rng.choice(read_groups("opinions", request.language)["liked" if liked else "disliked"]), fact
        )
        return narrator.text
    if fact.kind in SINGLE_PLACE_KINDS and request.rng.chance(RETELL_PROBABILITY):
        narrator.add_fact(without_reasons((fact if is_true else change_place(fact, request.rng),))[0])
        return narrator.text
    sign = "+ " if is_true else "- "
    templates = [line for line in read_groups("inferred", request.language)[fact.kind] if line.startswith(sign)]
    return fill_template(request.rng.choice(templates).removeprefix(sign), fact, request.language)


def _is_unrelated(beat: Beat, fact: Fact) -> bool:
    """Whether a beat has no bearing on a fact: other kinds, and another thing."""
    location_kinds = {"move", "travel", "is_at", "located", "owned", "held"}
    for other in beat:
        same_thing = other.what is not None and fact.what is not None and other.what.id == fact.what.id
        if same_thing or other.kind == fact.kind or other.kind in location_kinds or other.kind.startswith("judge"):
            return False
    return True


def _shares_person(beat: Beat, fact: Fact) -> bool:
    """Whether a beat is about the same person."""
    return any(other.who is not None and fact.who is not None and other.who.id == fact.who.id for other in beat)
