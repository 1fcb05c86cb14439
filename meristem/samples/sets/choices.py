"""Causal choice (as COPA): which of two sentences is the cause of an opinion or the effect of an event."""

from __future__ import annotations

from meristem.samples.microworld.facts import Fact
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.microworld.story import GLADDENING, SADDENING
from meristem.samples.sets.excerpt import beats_of_kinds, format_sentence, without_reasons
from meristem.samples.sets.narrator import Narrator
from meristem.samples.sets.opinion_facts import draw_opinion, opinion_causes
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_tables import read_groups

EMOTIONAL_EVENTS = (GLADDENING | SADDENING) - {"paint", "fetch"}
"""Events that make the person involved happy or sad."""


def row(request: SampleRequest) -> Row | None:
    """A text, whether its cause or its effect is asked for, and two choices."""
    asks_cause = request.label_rng.chance(0.65)
    label = request.label_rng.randint(0, 1)
    polarity = request.label_rng.choice((1, -1))
    result = _opinion_choices(request, polarity) if asks_cause else _feeling_choices(request, polarity)
    if result is None:
        return None
    text, right, wrong = result
    choices = [right, wrong] if label == 0 else [wrong, right]
    return {"text": text, "question": "cause" if asks_cause else "effect", "choices": choices, "label": label}


def _opinion_choices(request: SampleRequest, polarity: int) -> tuple[str, str, str]:
    """An opinion, a cause of it, and a cause of the opposite."""
    fact = draw_opinion(request.story, polarity, request.rng)
    wrong = request.rng.choice(opinion_causes(fact, inverted=True)).term
    assert fact.why is not None
    opinion = request.rng.choice(read_groups("opinions", request.language)["opinion"])
    templates = (opinion, fact.why.text(request.language), wrong.text(request.language))
    text, right_text, wrong_text = (_realize_template(request, fact, template) for template in templates)
    return text, right_text, wrong_text


def _realize_template(request: SampleRequest, fact: Fact, template: str) -> str:
    narrator = Narrator(request.story, request.language, request.rng)
    narrator.add_template(template, fact)
    return narrator.text


def _feeling_choices(request: SampleRequest, polarity: int) -> tuple[str, str, str] | None:
    """An event, and two feelings, one of which fits."""
    kinds = EMOTIONAL_EVENTS & (GLADDENING if polarity > 0 else SADDENING)
    indices = [index for index in beats_of_kinds(request.story, kinds) if len(request.story.beats[index]) == 1]
    if not indices:
        return None
    beat_index = request.rng.choice(indices)
    beat = without_reasons(request.story.beats[beat_index])
    narrator = Narrator(request.story, request.language, request.rng)
    narrator.add_beat(beat, request.story.time_draws[beat_index])
    phrases = load_lexicon().phrases
    feelings = [request.rng.choice(phrases[mood]) for mood in (("happy", "sad") if polarity > 0 else ("sad", "happy"))]
    who = beat[0].who
    assert who is not None
    if request.language == "en":
        right, wrong = (format_sentence(f"{who.pronoun} felt {feeling.english}", "en") for feeling in feelings)
    else:
        right, wrong = (format_sentence(f"{who.name.chinese}感到{feeling.chinese}", "zh") for feeling in feelings)
    return narrator.text, right, wrong
