"""The route that writes, whole or as it goes (server-sent events)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.generation.given import given
from meristem.generation.pool import Chosen
from meristem.generation.write import UNMASKED
from meristem.generation.written import Written
from meristem.serving import bodies
from meristem.serving.continuous import News, Order
from meristem.serving.engine import Engine
from meristem.serving.errors import Refused
from meristem.serving.hub import Served
from meristem.serving.numbers import FiniteJSONResponse, finite, in_steps, json_response
from meristem.serving.routes.answers import ERRORS, ticket_of
from meristem.serving.streaming import event, events
from meristem.serving.works import write_work


def router(engine: Engine) -> APIRouter:
    """Writing."""
    routes = APIRouter(tags=["words"], responses=ERRORS)

    @routes.post("/generate", summary="Texts that go on from a prompt, or that it is turned into")
    async def generate(asked: bodies.Generate, request: Request) -> Response:
        run = engine.hub.for_("generate", asked.model)
        settings, ticket = asked.sampling(), ticket_of(request)
        source = asked.source is not None
        prompt = asked.prompt if asked.source is None else asked.source
        if source and "source" not in run.ways:
            raise Refused(422, f"source: model {run.name!r} has no encoder to read one; give a prompt", param="source")
        if settings.searches or (run.way("generate") in UNMASKED and not source):
            if asked.stream:
                raise Refused(422, "stream: only texts that grow token by token are streamed, without beams, by causal "
                                   "models and encoder-decoders", param="stream")  # fmt: skip
            engine.check_generated(1, max(asked.n, asked.beams), asked.max_tokens)
            work = write_work(run, settings, asked.n, source=source)
            written: list[Written] = await engine.ask(work, prompt, ticket)
            return FiniteJSONResponse({"model": run.name, "texts": [_whole(one) for one in written]})
        order = Order(
            run, lambda: [given(run.model, run.tokenizer, prompt, source=source)], settings, ticket, asked.n, asked.top,
            stream=asked.stream,
        )  # fmt: skip
        news = engine.write(order, [prompt])
        if asked.stream:
            return await events(_streamed(run, news))
        return await json_response({"model": run.name, "texts": await _gathered(run, news, asked.n)})

    return routes


def token(run: Served, chosen: Chosen) -> dict[str, Any]:
    """One token with its log-probability, and the likeliest ones where they were asked for."""
    top = [{"token": run.tokenizer.piece(number), "logprob": finite(value)} for number, value in chosen.top]
    plain = {"token": run.tokenizer.piece(chosen.token), "logprob": finite(chosen.logprob)}
    return {**plain, "top": top} if top else plain


def _whole(one: Written) -> dict[str, Any]:
    return {"text": one.text, "score": finite(one.score), "finished": one.finished, "tokens": []}


async def _gathered(run: Served, news: AsyncIterator[list[News]], texts: int) -> list[dict[str, Any]]:
    """Each text with its tokens, once all have ended."""
    out: list[dict[str, Any]] = [{"text": "", "tokens": [], "finished": None} for _ in range(texts)]
    async for some in news:
        for one in some:
            out[one.index]["text"] += one.text
            out[one.index]["tokens"] += [token(run, chosen) async for chosen in in_steps(one.chosen)]
            out[one.index]["finished"] = one.finished
    return [{**one, "score": sum(token["logprob"] for token in one["tokens"])} for one in out]


async def _streamed(run: Served, news: AsyncIterator[list[News]]) -> AsyncIterator[str]:
    """One event for each text and step, and a last one."""
    async for some in news:
        for one in some:
            tokens = [token(run, chosen) for chosen in one.chosen]
            yield event({"index": one.index, "text": one.text, "tokens": tokens, "finished": one.finished})
    yield event({"done": True})
