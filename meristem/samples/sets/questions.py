"""Extractive question answering (as SQuAD): the answer is a span; `?unanswerable=1` adds questions without one."""

from __future__ import annotations

from meristem.samples.sets.excerpt import Excerpt, realize_excerpt
from meristem.samples.sets.fact_questions import Question, find_answer, iter_questions, unambiguous_questions
from meristem.samples.sets.sample_request import Row, SampleRequest

MIN_SENTENCES, MAX_SENTENCES = 5, 9
UNANSWERABLE_SHARE = 1 / 3
"""Share of unanswerable questions, where they are enabled."""


def row(request: SampleRequest) -> Row | None:
    """A question about one fact of a passage, or about one that the passage omits."""
    beats = request.story.beats
    length = min(request.label_rng.randint(MIN_SENTENCES, MAX_SENTENCES), len(beats))
    is_unanswerable = request.options.get("unanswerable") == "1" and request.label_rng.chance(UNANSWERABLE_SHARE)
    start = request.rng.randint(0, len(beats) - length)
    passage = realize_excerpt(request.story, beats[start : start + length], request.language)
    draw_question = _unanswerable_question if is_unanswerable else _answerable_question
    drawn_question = draw_question(request, passage)
    if drawn_question is None:
        return None
    question, answers = drawn_question
    return {
        "id": f"{request.name}-{request.language}-{request.seed}-{request.number}",
        "question": question.text(request.language),
        "passage": passage.text,
        "answers": answers,
    }


def _answerable_question(request: SampleRequest, passage: Excerpt) -> tuple[Question, list[Row]] | None:
    """An unambiguous question about one of the facts, all equally likely."""
    facts = list(passage.facts)
    for fact in request.rng.sample(facts, len(facts)):
        if candidates := unambiguous_questions(fact, passage):
            question = request.rng.choice(candidates)
            answer_span = find_answer(question, passage)
            if answer_span is not None:
                start, end = answer_span
                return question, [{"text": passage.text[start:end], "start": start}]
    return None


def _unanswerable_question(request: SampleRequest, passage: Excerpt) -> tuple[Question, list[Row]] | None:
    """A question about a fact that the passage omits, although it mentions all of its entities."""
    named_ids = {mention.entity.id for mention in passage.named_mentions()}
    answerable = {
        (candidate.template, candidate.key(fact))
        for fact in passage.facts
        for candidate in iter_questions(fact, request.language)
    }
    omitted_facts = [fact for fact in request.story.facts if fact not in passage.facts]
    for fact in request.rng.sample(omitted_facts, len(omitted_facts)):
        candidates = [
            candidate
            for candidate in iter_questions(fact, request.language)
            if candidate.entities <= named_ids and (candidate.template, candidate.key(fact)) not in answerable
        ]
        if candidates:
            return request.rng.choice(candidates), []
    return None
