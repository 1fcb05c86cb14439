"""Dialogues: somebody tells what happened and asks about it; the reply says it in other words."""

from __future__ import annotations

from meristem.samples.microworld import Fact
from meristem.samples.sets.asked import Question, clear, questions
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.clause import Narrator
from meristem.samples.sets.excerpt import Excerpt, excerpt
from meristem.samples.sets.tables import groups


def row(ask: Ask) -> Row | None:
    """A telling, an answer to it, perhaps a question with its reply, and the question whose reply is wanted."""
    length = ask.wish.between(2, 4)
    start = ask.dice.between(0, max(0, len(ask.story.beats) - length))
    told = excerpt(ask.story, ask.story.beats[start : start + length], ask.language)
    asked = _questions(ask, told)
    if not asked:
        return None
    chat, pick, zh = groups("chat", ask.language), ask.dice.pick, ask.language == "zh"
    turns = [("" if zh else " ").join([pick(chat["begin"]), told.text]), pick(chat["heard"])]
    for question in asked[1:]:
        turns += [question.text(ask.language), _reply(ask, question.fact)]
    last = asked[0].text(ask.language)
    if ask.dice.chance(0.4):
        lead = pick(chat["lead"])
        last = f"{lead}{last}" if zh else f"{lead} {last[:1].lower()}{last[1:]}"
    return {"turns": [*turns, last], "target": _reply(ask, asked[0].fact)}


def _questions(ask: Ask, told: Excerpt) -> list[Question]:
    """One or two clear questions about different facts."""
    found = []
    for fact in ask.dice.some(list(told.facts), len(told.facts)):
        ways = [way for way in questions(fact, ask.language) if clear(way, told)]
        if ways:
            found.append(ask.dice.pick(ways))
    return found[: 2 if ask.wish.chance(0.3) else 1]


def _reply(ask: Ask, fact: Fact) -> str:
    """The fact asked about, told by itself."""
    narrator = Narrator(ask.story, ask.language, ask.dice)
    narrator.retell(fact)
    return narrator.text
