"""Questions with their passage: the answer is a span of it; with `?unanswerable=1` some passages do not tell it."""

from __future__ import annotations

from meristem.samples.sets.asked import Question, answer, clear, questions
from meristem.samples.sets.asking import Ask, Row
from meristem.samples.sets.excerpt import Excerpt, excerpt

SHORTEST, LONGEST = 5, 9
WITHOUT = 1 / 3
"""Share of questions without an answer, where that is asked for."""


def row(ask: Ask) -> Row | None:
    """A question about one fact of a passage, or about one that the passage leaves out."""
    beats = ask.story.beats
    length = min(ask.wish.between(SHORTEST, LONGEST), len(beats))
    without = ask.options.get("unanswerable") == "1" and ask.wish.chance(WITHOUT)
    start = ask.dice.between(0, len(beats) - length)
    told = excerpt(ask.story, beats[start : start + length], ask.language)
    asked = _missing(ask, told) if without else _answered(ask, told)
    if asked is None:
        return None
    question, answers = asked
    return {
        "id": f"{ask.name}-{ask.language}-{ask.seed}-{ask.number}",
        "question": question.text(ask.language),
        "passage": told.text,
        "answers": answers,
    }


def _answered(ask: Ask, told: Excerpt) -> tuple[Question, list[Row]] | None:
    """A clear question about one of the facts, each as likely whatever its kind."""
    facts = list(told.facts)
    for fact in ask.dice.some(facts, len(facts)):
        ways = [one for one in questions(fact, ask.language) if clear(one, told)]
        if ways:
            question = ask.dice.pick(ways)
            place = answer(question, told)
            if place is not None:
                start, end = place
                return question, [{"text": told.text[start:end], "start": start}]
    return None


def _missing(ask: Ask, told: Excerpt) -> tuple[Question, list[Row]] | None:
    """A question about a fact that the passage leaves out, although it names everybody and everything in it."""
    here = {one.entity.id for one in told.named()}
    known = {(way.template, way.key(fact)) for fact in told.facts for way in questions(fact, ask.language)}
    left = [fact for fact in ask.story.facts if fact not in told.facts]
    for fact in ask.dice.some(left, len(left)):
        ways = [
            way
            for way in questions(fact, ask.language)
            if way.entities <= here and (way.template, way.key(fact)) not in known
        ]
        if ways:
            return ask.dice.pick(ways), []
    return None
