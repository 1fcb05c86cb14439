"""Language model routes: fill, score, detect, embed, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.generation.score import TextScore
from meristem.serving import request_models
from meristem.serving.engine import ServingEngine
from meristem.serving.errors import RequestError
from meristem.serving.json_response import finite_logprob, in_steps
from meristem.serving.request_work import (
    attention_work,
    detect_work,
    embed_work,
    fill_work,
    score_work,
    token_vectors_work,
)
from meristem.serving.routes.responses import ERROR_RESPONSES, model_response, request_context


def router(engine: ServingEngine) -> APIRouter:
    """The router of the language model routes."""
    routes = APIRouter(tags=["words"], responses=ERROR_RESPONSES)

    @routes.post("/fill", summary="The most likely tokens for each [MASK]")
    async def fill(body: request_models.FillRequest, request: Request) -> Response:
        run = engine.registry.select("fill", body.model)
        inputs = [(text, body.top) for text in _as_list(body.text)]
        results = await engine.submit_each(fill_work(run), inputs, request_context(request))
        return await model_response(run, [[mask.to_dict() for mask in masks] for masks in results], body.text)

    @routes.post("/score", summary="Log-probability or pseudo-log-likelihood of texts")
    async def score(body: request_models.ScoreRequest, request: Request) -> Response:
        run = engine.registry.select("score", body.model)
        if body.image is not None and "image" not in run.model.backbone.capabilities:
            raise RequestError(422, f"image: model {run.name!r} does not accept images; send a text", param="image")
        work = score_work(run, image=body.image is not None, targets=body.text_b is not None)
        results = await engine.submit_each(work, _score_pairs(body), request_context(request))
        scored = [await _score_json(item) for group in results for item in group]
        return await model_response(run, scored, body.text if body.text_b is None else body.text_b)

    @routes.post("/detect", summary="Probability that each token was replaced (ELECTRA)")
    async def detect(body: request_models.DetectRequest, request: Request) -> Response:
        run = engine.registry.select("detect", body.model)
        results = await engine.submit_each(detect_work(run), _as_list(body.text), request_context(request))
        tokens = [{"tokens": [vars(token) async for token in in_steps(group)]} for group in results]
        return await model_response(run, tokens, body.text)

    @routes.post("/embed", summary="Embeddings of texts, tokens or words")
    async def embed(body: request_models.EmbedRequest, request: Request) -> Response:
        run = engine.registry.select("embed", body.model)
        texts, layer = _as_list(body.text), body.layer
        if body.level == "text":
            results = await engine.submit_each(embed_work(run, body.pooling, layer), texts, request_context(request))
            return await model_response(run, [vector for vector, _ in results], body.text)
        work = token_vectors_work(run, body.level, layer, len(texts))
        return await model_response(run, await engine.submit_each(work, texts, request_context(request)), body.text)

    @routes.post("/attention", summary="Attention weights of every layer and head")
    async def attention(body: request_models.AttentionRequest, request: Request) -> Response:
        run = engine.registry.select("attention", body.model)
        text_b_field = {} if body.text_b is None else {"text_b": body.text_b}
        text_field = {"text": body.text} if body.text or not body.parts else {}
        inputs = {
            "parts": {**text_field, **text_b_field, **body.parts},
            **{name: getattr(body, name) for name in ("target", "image", "kind")},
        }
        results = await engine.submit(attention_work(run), inputs, request_context(request))
        return Response(results, media_type="application/json")

    return routes


def _as_list(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def _score_pairs(body: request_models.ScoreRequest) -> list[tuple[str, list[str]]]:
    """(source, targets) pairs to score; a text without targets has an empty list."""
    if body.text_b is None:
        return [(text, []) for text in _as_list(body.text)]
    if isinstance(body.text, list):
        return [(text, [target]) for text, target in zip(body.text, body.text_b, strict=True)]
    return [(body.image or body.text, _as_list(body.text_b))]


async def _score_json(result: TextScore) -> dict[str, Any]:
    token_logprobs: Sequence[Any] = result.per_token
    if not math.isfinite(result.logprob):  # some number is none, which is rare: only then is each looked at
        token_logprobs = [[token, finite_logprob(value)] async for token, value in in_steps(result.per_token)]
    directions = {"forward": result.forward, "backward": result.backward}
    direction_logprobs = {name: finite_logprob(value) for name, value in directions.items() if value is not None}
    text_b_field = {} if result.text_b is None else {"text_b": result.text_b}
    fields = {"text": result.text, "logprob": finite_logprob(result.logprob), "tokens": result.tokens}
    return {**fields, "per_token": token_logprobs, **text_b_field, **direction_logprobs}
