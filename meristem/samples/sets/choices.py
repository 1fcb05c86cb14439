"""Choices: why somebody thought so, or how somebody felt then; one of two sentences fits the first one."""

from __future__ import annotations

from meristem.samples.microworld import Fact
from meristem.samples.microworld.facts import Beat
from meristem.samples.microworld.lexicon import lexicon
from meristem.samples.microworld.story import GLADDENING, SADDENING
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.clause import Narrator
from meristem.samples.sets.excerpt import beats, plain, sentence
from meristem.samples.sets.opinions import causes, judgement
from meristem.samples.sets.tables import groups

MOVING = (GLADDENING | SADDENING) - {"paint", "fetch"}
"""Events that make glad or sorry whoever they happen to."""


def row(ask: Ask) -> Row | None:
    """A sentence or two, whether its cause or its effect is asked for, and two sentences."""
    why = ask.wish.chance(0.65)
    label = ask.wish.between(0, 1)
    good = ask.wish.pick((1, -1))
    told = _why(ask, good) if why else _feeling(ask, good)
    if told is None:
        return None
    text, right, wrong = told
    pair = [right, wrong] if label == 0 else [wrong, right]
    return {"text": text, "question": "cause" if why else "effect", "choices": pair, "label": label}


def _why(ask: Ask, good: int) -> tuple[str, str, str]:
    """An opinion, a cause that leads to it, and one that leads to the opposite."""
    fact = judgement(ask.story, good, ask.dice)
    wrong = ask.dice.pick(causes(fact, turned=True)).term
    text, right = _said(ask, fact, ask.dice.pick(groups("opinions", ask.language)["opinion"]))
    return text, right, _filled(ask, fact, wrong.english if ask.language == "en" else wrong.chinese)


def _said(ask: Ask, fact: Fact, template: str) -> tuple[str, str]:
    narrator = Narrator(ask.story, ask.language, ask.dice)
    narrator.say(template, fact)
    assert fact.why is not None
    return narrator.text, _filled(ask, fact, fact.why.english if ask.language == "en" else fact.why.chinese)


def _filled(ask: Ask, fact: Fact, template: str) -> str:
    narrator = Narrator(ask.story, ask.language, ask.dice)
    narrator.say(template, fact)
    return narrator.text


def _feeling(ask: Ask, good: int) -> tuple[str, str, str] | None:
    """An event, and two feelings, of which one goes with it."""
    kinds = MOVING & (GLADDENING if good > 0 else SADDENING)
    found = [number for number in beats(ask.story, kinds) if len(ask.story.beats[number]) == 1]
    if not found:
        return None
    number = ask.dice.pick(found)
    beat: Beat = plain(ask.story.beats[number])
    narrator = Narrator(ask.story, ask.language, ask.dice)
    narrator.tell(beat, ask.story.pace[number])
    phrases = lexicon().phrases
    feels = [ask.dice.pick(phrases[mood]) for mood in (("happy", "sad") if good > 0 else ("sad", "happy"))]
    who = beat[0].who
    assert who is not None
    if ask.language == "en":
        right, wrong = (sentence(f"{who.pronoun} felt {feel.english}", "en") for feel in feels)
    else:
        right, wrong = (sentence(f"{who.name.chinese}感到{feel.chinese}", "zh") for feel in feels)
    return narrator.text, right, wrong
