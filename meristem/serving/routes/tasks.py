"""Routes that ask a task: labels, tags, answers, choices, and texts made from others."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.serving import bodies
from meristem.serving.engine import Engine
from meristem.serving.routes.answers import ERRORS, answered, ticket_of
from meristem.serving.works import caption_work, task_work


def router(engine: Engine) -> APIRouter:
    """One route for each kind of task."""
    routes = APIRouter(tags=["tasks"], responses=ERRORS)

    async def ask(verb: str, asked: bodies.Ranked, request: Request, given: Any) -> Response:
        """`given` is what one sample is made of, by name, or a list of such."""
        run = engine.hub.for_(verb, asked.model)
        task = run.task(verb)
        work = caption_work(run) if task is None else task_work(run, verb, task)
        several = given if isinstance(given, list) else [given]
        found = await engine.ask_each(work, [(parts, asked.top) for parts in several], ticket_of(request))
        return await answered(run, found, given)

    @routes.post("/classify", summary="The label of a text, or of a pair")
    async def classify(asked: bodies.Classify, request: Request) -> Response:
        more = {} if asked.text_b is None else {"text_b": asked.text_b}
        return await ask("classify", asked, request, _each(asked.text, **more))

    @routes.post("/tag", summary="The entities of a text, or the tag of each word")
    async def tag(asked: bodies.Tag, request: Request) -> Response:
        return await ask("tag", asked, request, _each(asked.text))

    @routes.post("/answer", summary="Where in a passage a question is answered")
    async def answer(asked: bodies.Answer, request: Request) -> Response:
        return await ask("answer", asked, request, {"question": asked.question, "passage": asked.passage})

    @routes.post("/choose", summary="The choice that goes best with a text")
    async def choose(asked: bodies.Choose, request: Request) -> Response:
        more = {} if asked.question is None else {"question": asked.question}
        return await ask("choose", asked, request, {"text": asked.text, "choices": asked.choices, **more})

    @routes.post("/translate", summary="A text in the other language")
    async def translate(asked: bodies.Rewrite, request: Request) -> Response:
        return await ask("translate", asked, request, _each(asked.text))

    @routes.post("/summarise", summary="A text, shorter")
    async def summarise(asked: bodies.Rewrite, request: Request) -> Response:
        return await ask("summarise", asked, request, _each(asked.text))

    @routes.post("/caption", summary="What there is to say of a picture")
    async def caption(asked: bodies.Caption, request: Request) -> Response:
        return await ask("caption", asked, request, {"image": asked.image})

    @routes.post("/reply", summary="What to say next in a conversation")
    async def reply(asked: bodies.Reply, request: Request) -> Response:
        return await ask("reply", asked, request, {"turns": asked.turns})

    return routes


def _each(text: str | list[str], **more: str) -> Any:
    """One sample for each text."""
    return {"text": text, **more} if isinstance(text, str) else [{"text": one, **more} for one in text]
