"""Sentiment: whether a text tells of something good or bad: an opinion, why somebody has it, a feeling, or an event."""

from __future__ import annotations

from dataclasses import replace

from meristem.samples.microworld.facts import Beat
from meristem.samples.microworld.lexicon import lexicon
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.clause import Narrator
from meristem.samples.sets.excerpt import beats, excerpt, plain, said
from meristem.samples.sets.opinions import judgement, opposite
from meristem.samples.sets.tables import groups

LABELS = {"positive": 1, "negative": -1, "neutral": 0}
FORMS = ("event", "event", "event", "event", "told", "told", "opinion", "cause", "mood", "negated")
NEUTRAL = ("quiet", "undecided")
QUIET = frozenset(
    {"introduce", "introduce_age", "introduce_years", "relate", "relate_age", "carry", "distance", "move", "travel",
     "stock", "put", "call", "write", "meet", "buy", "paint", "clean"}
)  # fmt: skip
"""Nobody is glad or sorry in these."""
EVENTS = {"positive": frozenset({"find", "repair", "give", "help", "return"}),
          "negative": frozenset({"lose", "break", "argue", "search"})}  # fmt: skip
"""Good and bad things that happen, as the stories have them make people glad or sorry."""
SHORTEST, LONGEST = 2, 3
"""Sentences around it."""


def row(ask: Ask) -> Row | None:
    """Something good or bad, or neither, between sentences that are neither."""
    label = ask.wish.pick(tuple(LABELS))
    form = ask.wish.pick(FORMS if LABELS[label] else NEUTRAL)
    quiet = ask.dice.some(beats(ask.story, QUIET), ask.dice.between(SHORTEST, LONGEST))
    if len(quiet) < SHORTEST:
        return None
    if form in {"event", "quiet"}:
        text = _events(ask, quiet, label)
    else:
        text = _opinion(ask, sorted(quiet), LABELS[label], form)
    return None if text is None else {"text": text, "label": label}


def _events(ask: Ask, quiet: list[int], label: str) -> str | None:
    """What happened, one of it good or bad, in the order in which it did."""
    moving: list[int] = []
    if label in EVENTS:
        moving = [n for n, beat in enumerate(ask.story.beats) if _is(beat, EVENTS[label])]
        if not moving:
            return None
        moving = [ask.dice.pick(moving)]
    chosen: list[Beat] = [plain(ask.story.beats[n]) for n in sorted([*quiet, *moving])]
    return excerpt(ask.story, chosen, ask.language).text


def _is(beat: Beat, kinds: frozenset[str]) -> bool:
    """Whether a beat tells of one of these, and of nothing else that is good or bad."""
    return any(fact.kind in kinds for fact in beat) and all(fact.kind in kinds | QUIET for fact in beat)


def _opinion(ask: Ask, quiet: list[int], polarity: int, form: str) -> str:
    """What somebody makes of somebody or something, somewhere in between."""
    dice, language = ask.dice, ask.language
    fact = judgement(ask.story, polarity or dice.pick((1, -1)), dice)
    if form == "mood":
        fact = replace(fact, term=dice.pick(lexicon().phrases["happy" if fact.polarity > 0 else "sad"]))
    narrator = Narrator(ask.story, language, dice)
    place = dice.between(0, len(quiet))
    for number, beat in enumerate([*quiet, None]):
        if number == place:
            against = said(opposite(fact, dice), language)
            narrator.say(dice.pick(groups("opinions", language)[form]), fact, against=against)
        if beat is not None:
            narrator.tell(plain(ask.story.beats[beat]), ask.story.pace[beat])
    return narrator.text
