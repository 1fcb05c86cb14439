"""Sentiment classification: texts with a positive or negative opinion, cause, feeling or event, or neutral ones."""

from __future__ import annotations

from dataclasses import replace

from meristem.samples.microworld.facts import Beat
from meristem.samples.microworld.lexicon import load_lexicon
from meristem.samples.sets.excerpt import beats_of_kinds, realize_excerpt, without_reasons
from meristem.samples.sets.narrator import Narrator
from meristem.samples.sets.opinion_facts import draw_opinion, draw_opposite
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_tables import read_groups

LABELS = {"positive": 1, "negative": -1, "neutral": 0}
SENTIMENT_FORMS = ("event", "event", "event", "event", "told", "told", "opinion", "cause", "mood", "negated")
NEUTRAL_FORMS = ("quiet", "undecided")
NEUTRAL_KINDS = frozenset(
    {"introduce", "introduce_age", "introduce_years", "relate", "relate_age", "carry", "distance", "move", "travel",
     "stock", "put", "call", "write", "meet", "buy", "paint", "clean"}
)  # fmt: skip
"""Kinds of facts without sentiment."""
EVENT_KINDS = {"positive": frozenset({"find", "repair", "give", "help", "return"}),
          "negative": frozenset({"lose", "break", "argue", "search"})}  # fmt: skip
"""Positive and negative events, as in the stories."""
MIN_SENTENCES, MAX_SENTENCES = 2, 3
"""Neutral sentences around it."""


def row(request: SampleRequest) -> Row | None:
    """A positive, negative or neutral sentence among neutral ones."""
    label = request.label_rng.choice(tuple(LABELS))
    form = request.label_rng.choice(SENTIMENT_FORMS if LABELS[label] else NEUTRAL_FORMS)
    num_sentences = request.rng.randint(MIN_SENTENCES, MAX_SENTENCES)
    neutral_beats = request.rng.sample(beats_of_kinds(request.story, NEUTRAL_KINDS), num_sentences)
    if len(neutral_beats) < MIN_SENTENCES:
        return None
    if form in {"event", "quiet"}:
        text = _event_text(request, neutral_beats, label)
    else:
        text = _opinion_text(request, sorted(neutral_beats), LABELS[label], form)
    return None if text is None else {"text": text, "label": label}


def _event_text(request: SampleRequest, neutral_beats: list[int], label: str) -> str | None:
    """Events in their order, one of them positive or negative."""
    event_beats: list[int] = []
    if label in EVENT_KINDS:
        event_beats = [index for index, beat in enumerate(request.story.beats) if _has_only(beat, EVENT_KINDS[label])]
        if not event_beats:
            return None
        event_beats = [request.rng.choice(event_beats)]
    chosen = [without_reasons(request.story.beats[index]) for index in sorted([*neutral_beats, *event_beats])]
    return realize_excerpt(request.story, chosen, request.language).text


def _has_only(beat: Beat, kinds: frozenset[str]) -> bool:
    """Whether a beat has one of these kinds and no other positive or negative one."""
    return any(fact.kind in kinds for fact in beat) and all(fact.kind in kinds | NEUTRAL_KINDS for fact in beat)


def _opinion_text(request: SampleRequest, neutral_beats: list[int], polarity: int, form: str) -> str:
    """Neutral sentences with an opinion at a random position."""
    rng, language = request.rng, request.language
    fact = draw_opinion(request.story, polarity or rng.choice((1, -1)), rng)
    if form == "mood":
        fact = replace(fact, term=rng.choice(load_lexicon().phrases["happy" if fact.polarity > 0 else "sad"]))
    narrator = Narrator(request.story, language, rng)
    opinion_index = rng.randint(0, len(neutral_beats))
    for number, beat in enumerate([*neutral_beats, None]):
        if number == opinion_index:
            opposite_text = draw_opposite(fact, rng).text(language)
            narrator.add_template(rng.choice(read_groups("opinions", language)[form]), fact, against=opposite_text)
        if beat is not None:
            narrator.add_beat(without_reasons(request.story.beats[beat]), request.story.time_draws[beat])
    return narrator.text
