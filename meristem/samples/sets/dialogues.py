"""Dialogues: someone tells what happened and asks about it; the target is the reply."""

from __future__ import annotations

from meristem.samples.microworld.facts import Fact
from meristem.samples.sets.excerpt import Excerpt, realize_excerpt
from meristem.samples.sets.fact_questions import Question, unambiguous_questions
from meristem.samples.sets.narrator import Narrator
from meristem.samples.sets.sample_request import Row, SampleRequest
from meristem.samples.sets.template_tables import read_groups


def row(request: SampleRequest) -> Row | None:
    """A story, a reaction, perhaps a question with its reply, and the question whose reply is the target."""
    length = request.label_rng.randint(2, 4)
    start = request.rng.randint(0, max(0, len(request.story.beats) - length))
    passage = realize_excerpt(request.story, request.story.beats[start : start + length], request.language)
    questions = _draw_questions(request, passage)
    if not questions:
        return None
    chat, pick, is_chinese = read_groups("chat", request.language), request.rng.choice, request.language == "zh"
    turns = [("" if is_chinese else " ").join([pick(chat["begin"]), passage.text]), pick(chat["heard"])]
    for question in questions[1:]:
        turns += [question.text(request.language), _reply(request, question.fact)]
    last = questions[0].text(request.language)
    if request.rng.chance(0.4):
        lead = pick(chat["lead"])
        last = f"{lead}{last}" if is_chinese else f"{lead} {last[:1].lower()}{last[1:]}"
    return {"turns": [*turns, last], "target": _reply(request, questions[0].fact)}


def _draw_questions(request: SampleRequest, passage: Excerpt) -> list[Question]:
    """One or two unambiguous questions about different facts."""
    chosen = []
    for fact in request.rng.sample(list(passage.facts), len(passage.facts)):
        if candidates := unambiguous_questions(fact, passage):
            chosen.append(request.rng.choice(candidates))
    return chosen[: 2 if request.label_rng.chance(0.3) else 1]


def _reply(request: SampleRequest, fact: Fact) -> str:
    """A sentence with the fact that is asked about."""
    narrator = Narrator(request.story, request.language, request.rng)
    narrator.add_fact(fact)
    return narrator.text
