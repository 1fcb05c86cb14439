"""Task routes: classify, tag, answer, choose, translate, summarise, caption, reply."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.serving import request_models
from meristem.serving.engine import ServingEngine
from meristem.serving.request_work import caption_work, task_work
from meristem.serving.routes.responses import ERROR_RESPONSES, model_response, request_context


def router(engine: ServingEngine) -> APIRouter:
    """The router of the task routes."""
    routes = APIRouter(tags=["tasks"], responses=ERROR_RESPONSES)

    async def ask(route: str, body: request_models.TaskRequest, request: Request, inputs: Any) -> Response:
        """Predict for `inputs`: the fields of one sample by name, or a list of them."""
        run = engine.registry.select(route, body.model)
        task = run.task(route)
        work = caption_work(run) if task is None else task_work(run, route, task)
        input_list = inputs if isinstance(inputs, list) else [inputs]
        outputs = await engine.submit_each(work, [(parts, body.top) for parts in input_list], request_context(request))
        return await model_response(run, outputs, inputs)

    @routes.post("/classify", summary="The label of a text or pair of texts")
    async def classify(body: request_models.ClassifyRequest, request: Request) -> Response:
        other_fields = {} if body.text_b is None else {"text_b": body.text_b}
        return await ask("classify", body, request, _make_samples(body.text, **other_fields))

    @routes.post("/tag", summary="The entities of a text, or the tag of each word")
    async def tag(body: request_models.TagRequest, request: Request) -> Response:
        return await ask("tag", body, request, _make_samples(body.text))

    @routes.post("/answer", summary="The answer span of a question in a passage")
    async def answer(body: request_models.AnswerRequest, request: Request) -> Response:
        return await ask("answer", body, request, {"question": body.question, "passage": body.passage})

    @routes.post("/choose", summary="The best of several choices for a text")
    async def choose(body: request_models.ChooseRequest, request: Request) -> Response:
        other_fields = {} if body.question is None else {"question": body.question}
        return await ask("choose", body, request, {"text": body.text, "choices": body.choices, **other_fields})

    @routes.post("/translate", summary="Translations of texts")
    async def translate(body: request_models.RewriteRequest, request: Request) -> Response:
        return await ask("translate", body, request, _make_samples(body.text))

    @routes.post("/summarise", summary="Summaries of texts")
    async def summarise(body: request_models.RewriteRequest, request: Request) -> Response:
        return await ask("summarise", body, request, _make_samples(body.text))

    @routes.post("/caption", summary="The caption of an image")
    async def caption(body: request_models.CaptionRequest, request: Request) -> Response:
        return await ask("caption", body, request, {"image": body.image})

    @routes.post("/reply", summary="The reply to a conversation")
    async def reply(body: request_models.ReplyRequest, request: Request) -> Response:
        return await ask("reply", body, request, {"turns": body.turns})

    return routes


def _make_samples(text: str | list[str], **other_fields: str) -> Any:
    """The fields of one sample, or of one sample per text."""
    return (
        {"text": text, **other_fields} if isinstance(text, str) else [{"text": item, **other_fields} for item in text]
    )
