"""Routes that ask a language model: fill, score, embed, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.generation.fill import Filled
from meristem.generation.score import Scored
from meristem.serving import bodies
from meristem.serving.engine import Engine
from meristem.serving.errors import Refused
from meristem.serving.numbers import finite, in_steps
from meristem.serving.routes.answers import ERRORS, answered, ticket_of
from meristem.serving.works import (
    attention_work,
    detect_work,
    embed_work,
    fill_work,
    score_work,
    token_vectors_work,
)


def router(engine: Engine) -> APIRouter:
    """What a pretrained model can be asked."""
    routes = APIRouter(tags=["words"], responses=ERRORS)

    @routes.post("/fill", summary="The words that could stand in place of each [MASK]")
    async def fill(asked: bodies.Fill, request: Request) -> Response:
        run = engine.hub.for_("fill", asked.model)
        given = [(text, asked.top) for text in _several(asked.text)]
        found = await engine.ask_each(fill_work(run), given, ticket_of(request))
        return await answered(run, [_filled(one) for one in found], asked.text)

    @routes.post("/score", summary="The log-probability of a text, exact or pseudo")
    async def score(asked: bodies.Score, request: Request) -> Response:
        run = engine.hub.for_("score", asked.model)
        if asked.image is not None and "image" not in run.model.backbone.can:
            raise Refused(422, f"image: model {run.name!r} reads no pictures; give a text", param="image")
        work = score_work(run, image=asked.image is not None, targets=asked.text_b is not None)
        found = await engine.ask_each(work, _score_pairs(asked), ticket_of(request))
        scored = [await _scored(one) for some in found for one in some]
        return await answered(run, scored, asked.text if asked.text_b is None else asked.text_b)

    @routes.post("/detect", summary="Which tokens look replaced, with a probability for each")
    async def detect(asked: bodies.Detect, request: Request) -> Response:
        run = engine.hub.for_("detect", asked.model)
        found = await engine.ask_each(detect_work(run), _several(asked.text), ticket_of(request))
        tokens = [{"tokens": [vars(token) async for token in in_steps(some)]} for some in found]
        return await answered(run, tokens, asked.text)

    @routes.post("/embed", summary="A text as a vector, or its tokens or words as vectors")
    async def embed(asked: bodies.Embed, request: Request) -> Response:
        run = engine.hub.for_("embed", asked.model)
        texts, layer = _several(asked.text), asked.layer
        if asked.level == "text":
            found = await engine.ask_each(embed_work(run, asked.pooling, layer), texts, ticket_of(request))
            return await answered(run, [vector for vector, _ in found], asked.text)
        work = token_vectors_work(run, asked.level, layer, len(texts))
        return await answered(run, await engine.ask_each(work, texts, ticket_of(request)), asked.text)

    @routes.post("/attention", summary="Where each token looks, for every layer and head")
    async def attention(asked: bodies.Attention, request: Request) -> Response:
        run = engine.hub.for_("attention", asked.model)
        second = {} if asked.text_b is None else {"text_b": asked.text_b}
        first = {"text": asked.text} if asked.text or not asked.parts else {}
        given = {
            "parts": {**first, **second, **asked.parts},
            **{name: getattr(asked, name) for name in ("target", "image", "kind")},
        }
        found = await engine.ask(attention_work(run), given, ticket_of(request))
        return Response(found, media_type="application/json")

    return routes


def _several(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def _score_pairs(asked: bodies.Score) -> list[tuple[str, list[str]]]:
    """What is scored, each source with its targets."""
    if asked.text_b is None:
        return [(text, []) for text in _several(asked.text)]
    if isinstance(asked.text, list):
        return [(text, [target]) for text, target in zip(asked.text, asked.text_b, strict=True)]
    return [(asked.image or asked.text, _several(asked.text_b))]


def _filled(found: list[Filled]) -> list[dict[str, Any]]:
    """As `meristem fill --json` has it."""
    return [
        {
            "mask": one.mask,
            "candidates": [{"token": c.token, "score": c.probability, "sequence": c.text} for c in one.candidates],
        }
        for one in found
    ]


async def _scored(found: Scored) -> dict[str, Any]:
    each: Sequence[Any] = found.per_token
    if not math.isfinite(found.logprob):  # some number is none, which is rare: only then is each looked at
        each = [[token, finite(value)] async for token, value in in_steps(found.per_token)]
    more = {"forward": found.forward, "backward": found.backward}
    sides = {name: finite(value) for name, value in more.items() if value is not None}
    second = {} if found.text_b is None else {"text_b": found.text_b}
    plain = {"text": found.text, "logprob": finite(found.logprob), "tokens": found.tokens, "per_token": each}
    return {**plain, **second, **sides}
