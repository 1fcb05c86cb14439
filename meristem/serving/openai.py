"""OpenAI's routes, so that whatever speaks to them can speak to a run: completions, chat, embeddings, models."""

from __future__ import annotations

import asyncio
import base64
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.generation.given import Given
from meristem.generation.write import UNMASKED
from meristem.serving.continuous import News, Order
from meristem.serving.engine import Engine
from meristem.serving.errors import Refused
from meristem.serving.hub import Served
from meristem.serving.numbers import json_response
from meristem.serving.openai_bodies import Chat, Completion, Embeddings, Message, Prompt
from meristem.serving.openai_shapes import Chats, Completions, Shape
from meristem.serving.routes.answers import ERRORS, ticket_of
from meristem.serving.streaming import events
from meristem.serving.works import echo_work, embed_work, start_of_prompt
from meristem.task import Task

CHAT_TOKENS = 64
SPEAKERS = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def router(engine: Engine) -> APIRouter:
    """Everything under /v1."""
    routes = APIRouter(prefix="/v1", tags=["openai"], responses=ERRORS)

    @routes.get("/models", summary="The runs")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(run) for run in engine.hub.runs.values()]}

    @routes.get("/models/{model}", summary="One run")
    async def model(model: str) -> dict[str, Any]:
        return _model(engine.hub.named(model))

    @routes.post("/completions", summary="Texts that go on from prompts")
    async def completions(asked: Completion, request: Request) -> Response:
        run, ticket, prompts = _run(engine, asked.model), ticket_of(request), asked.prompts()
        shape = Completions(run, asked, len(prompts))
        if asked.echo:
            if run.way("generate") != "causal":
                raise Refused(422, "echo: only causal models judge their prompts; leave it out", param="echo")
            engine.check_generated(len(prompts), asked.n, asked.max_tokens or 0)
            shape.echoed = await engine.ask_each(echo_work(run, asked.logprobs or 0), prompts, ticket)
        if asked.max_tokens == 0:
            return await _whole(shape, [])
        settings = asked.sampling(16 if asked.max_tokens is None else asked.max_tokens)
        order = Order(run, _starts(run, prompts), settings, ticket, asked.n, asked.logprobs or 0, stream=asked.stream)
        return await _written(engine, order, prompts, shape, asked.stream)

    @routes.post("/chat/completions", summary="The next turn of a conversation")
    async def chat(asked: Chat, request: Request) -> Response:
        run, ticket = engine.hub.for_("chat", asked.model), ticket_of(request)
        settings = asked.sampling(asked.max_completion_tokens or asked.max_tokens or CHAT_TOKENS)
        task, top = run.task("reply"), (asked.top_logprobs or 0) if asked.logprobs else 0
        if task is None:
            starts = _starts(run, [_script(asked.messages)])
            settings = settings.model_copy(update={"stop": (*settings.stop, "\nUser:")})
        else:
            starts = _turns(task, asked.messages)
        end = None if task is None else task.laid.end  # type: ignore[attr-defined]  # a task that writes
        order = Order(run, starts, settings, ticket, asked.n, top, end, stream=asked.stream)
        said = [_script(asked.messages)]
        return await _written(engine, order, said, Chats(run, asked, 1), asked.stream)

    @routes.post("/embeddings", summary="Texts as vectors")
    async def embeddings(asked: Embeddings, request: Request) -> Response:
        run = engine.hub.for_("embed", asked.model)
        texts = [asked.input] if isinstance(asked.input, str) else asked.input
        found = await engine.ask_each(embed_work(run, "mean"), texts, ticket_of(request))
        width = len(found[0][0])
        if asked.dimensions not in (None, width):
            raise Refused(400, f"dimensions: vectors of {run.name} have {width} numbers", param="dimensions")
        data = [
            {"object": "embedding", "index": number, "embedding": _vector(vector, asked.encoding_format)}
            for number, (vector, _) in enumerate(found)
        ]
        tokens = sum(size for _, size in found)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return await json_response({"object": "list", "data": data, "model": run.name, "usage": usage})

    return routes


async def _written(
    engine: Engine, order: Order, prompts: Sequence[Prompt], shape: Shape, stream: bool
) -> Response:
    """Whole, or piece by piece."""
    shape.begun, shape.id = int(time.time()), uuid.uuid4().hex[:24]
    news = engine.write(order, prompts)
    if stream:
        return await events(shape.streamed(news))
    return await _whole(shape, [one async for some in news for one in some])


async def _whole(shape: Shape, news: Sequence[News]) -> Response:
    """All texts at once, shaped in a thread: with log-probabilities that takes milliseconds for each hundred tokens."""
    return await json_response(await asyncio.to_thread(shape.whole, news))


def _model(run: Served) -> dict[str, Any]:
    return {"id": run.name, "object": "model", "created": 0, "owned_by": "meristem"}


def _run(engine: Engine, name: str | None) -> Served:
    """A run that writes token by token."""
    run = engine.hub.for_("generate", name)
    if run.way("generate") in UNMASKED:
        raise Refused(422, f"model {run.name!r} is masked and writes by filling masks: POST /generate", param="model")
    return run


def _starts(run: Served, prompts: Sequence[Prompt]) -> Callable[[], list[Given]]:
    """Where texts begin; they are cut into tokens by the worker."""
    return lambda: [start_of_prompt(run, prompt)[0] for prompt in prompts]


def _script(messages: Sequence[Message]) -> str:
    """A conversation written out, for a model that was never taught any."""
    return "".join(f"{SPEAKERS[one.role]}: {one.text}\n" for one in messages) + "Assistant:"


def _turns(task: Task, messages: Sequence[Message]) -> Callable[[], list[Given]]:
    """A conversation as its task reads it."""
    writing: Any = task
    return lambda: [writing.laid.start(writing.pieces([writing.asked({"turns": [one.text for one in messages]})])[0])]


def _vector(vector: list[float], encoding: str) -> list[float] | str:
    return vector if encoding == "float" else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
