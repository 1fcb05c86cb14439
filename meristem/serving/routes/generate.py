"""The /generate route: generated text as one response or streamed (server-sent events)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.generation.continuous_batching import SampledToken
from meristem.generation.generate import UNMASKING_KINDS
from meristem.generation.generated_text import GeneratedText
from meristem.generation.generation_inputs import build_generation_inputs
from meristem.serving import request_models
from meristem.serving.engine import ServingEngine
from meristem.serving.errors import RequestError
from meristem.serving.generation_worker import GenerationJob, GenerationUpdate
from meristem.serving.json_response import FiniteJSONResponse, finite_logprob, in_steps, json_response
from meristem.serving.model_registry import ServedRun
from meristem.serving.request_work import generate_work
from meristem.serving.routes.responses import ERROR_RESPONSES, request_context
from meristem.serving.streaming import event_response, format_event


def router(engine: ServingEngine) -> APIRouter:
    """The router of /generate."""
    routes = APIRouter(tags=["words"], responses=ERROR_RESPONSES)

    @routes.post("/generate", summary="Generate texts from a prompt or a source")
    async def generate(body: request_models.GenerateRequest, request: Request) -> Response:
        run = engine.registry.select("generate", body.model)
        settings, context = body.sampling_settings(), request_context(request)
        header = {"model": run.name, "seed": settings.used_seed}
        source = body.source is not None
        prompt = body.prompt if body.source is None else body.source
        if source and "source" not in run.lm_kinds:
            raise RequestError(422, f"source: model {run.name!r} has no encoder; send a prompt", param="source")
        if settings.uses_beam_search or (run.lm_kind("generate") in UNMASKING_KINDS and not source):
            if body.stream:
                message = "stream: beam search and masked models cannot be streamed; set stream to false"
                raise RequestError(422, message, param="stream")
            engine.check_generation_limit(1, max(body.n, body.beams), body.max_tokens)
            work = generate_work(run, settings, body.n, source=source)
            texts: list[GeneratedText] = await engine.submit(work, prompt, context)
            return FiniteJSONResponse({**header, "texts": [_text_json(item) for item in texts]})
        job = GenerationJob(
            run,
            lambda: [build_generation_inputs(run.model, run.tokenizer, prompt, as_source=source)],
            settings,
            context,
            body.n,
            body.top,
            stream=body.stream,
        )
        updates = engine.generate(job, [prompt])
        if body.stream:
            return await event_response(_stream_events(run, updates, settings.used_seed))
        return await json_response({**header, "texts": await _collect_texts(run, updates, body.n)})

    return routes


def token_json(run: ServedRun, sampled_token: SampledToken) -> dict[str, Any]:
    """One token with its log-probability and, if requested, the most likely tokens."""
    top = [
        {"token": run.tokenizer.token_text(token_id), "logprob": finite_logprob(logprob)}
        for token_id, logprob in sampled_token.top
    ]
    fields = {"token": run.tokenizer.token_text(sampled_token.token), "logprob": finite_logprob(sampled_token.logprob)}
    return {**fields, "top": top} if top else fields


def _text_json(generated: GeneratedText) -> dict[str, Any]:
    score = finite_logprob(generated.score)
    return {"text": generated.text, "score": score, "finished": generated.finished, "tokens": []}


async def _collect_texts(
    run: ServedRun, updates: AsyncIterator[list[GenerationUpdate]], num_texts: int
) -> list[dict[str, Any]]:
    """Each text with its tokens, after all are finished."""
    texts: list[dict[str, Any]] = [{"text": "", "tokens": [], "finished": None} for _ in range(num_texts)]
    async for step_updates in updates:
        for entry in step_updates:
            text = texts[entry.index]
            text["text"] += entry.text
            text["tokens"] += [token_json(run, sampled_token) async for sampled_token in in_steps(entry.tokens)]
            text["finished"] = entry.finish_reason
    return [{**entry, "score": sum(token["logprob"] for token in entry["tokens"])} for entry in texts]


async def _stream_events(
    run: ServedRun, updates: AsyncIterator[list[GenerationUpdate]], seed: int | None
) -> AsyncIterator[str]:
    """One event per update of a text, those of a step together, and a final one."""
    async for step_updates in updates:
        yield "".join(_update_event(run, update) for update in step_updates)
    yield format_event({"done": True, "seed": seed})


def _update_event(run: ServedRun, update: GenerationUpdate) -> str:
    tokens = [token_json(run, sampled_token) for sampled_token in update.tokens]
    event = {"index": update.index, "text": update.text, "tokens": tokens, "finished": update.finish_reason}
    return format_event(event)
