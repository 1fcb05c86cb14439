"""OpenAI-compatible routes under /v1: completions, chat completions, embeddings, models."""

from __future__ import annotations

import asyncio
import base64
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from meristem.generation.generate import UNMASKING_KINDS
from meristem.generation.generation_inputs import GenerationInputs
from meristem.interfaces.task import Task
from meristem.serving.engine import ServingEngine
from meristem.serving.errors import RequestError
from meristem.serving.generation_worker import GenerationJob, GenerationUpdate
from meristem.serving.json_response import json_response
from meristem.serving.model_registry import ServedRun
from meristem.serving.openai.openai_requests import (
    ChatCompletionRequest,
    ChatMessage,
    CompletionRequest,
    EmbeddingsRequest,
    PromptInput,
)
from meristem.serving.openai.openai_responses import ChatResponse, CompletionResponse, OpenAIResponse
from meristem.serving.request_work import echo_work, embed_work, encode_prompt
from meristem.serving.routes.responses import ERROR_RESPONSES, request_context
from meristem.serving.streaming import event_response
from meristem.tasks.components.sequence_generator import generator_of

DEFAULT_CHAT_TOKENS = 64
ROLE_NAMES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def router(engine: ServingEngine) -> APIRouter:
    """The router of /v1."""
    routes = APIRouter(prefix="/v1", tags=["openai"], responses=ERROR_RESPONSES)

    @routes.get("/models", summary="The runs")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model_object(run) for run in engine.registry.runs.values()]}

    @routes.get("/models/{model}", summary="One run")
    async def model(model: str) -> dict[str, Any]:
        return _model_object(engine.registry.get(model))

    @routes.post("/completions", summary="Complete prompts")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        run, context, prompts = _generation_run(engine, body.model), request_context(request), body.prompt_list()
        response = CompletionResponse(run, body, len(prompts))
        if body.echo:
            if run.lm_kind("generate") != "causal":
                raise RequestError(422, "echo: only supported by causal models; leave it out", param="echo")
            engine.check_generation_limit(len(prompts), body.n, body.max_tokens or 0)
            response.echoes = await engine.submit_each(echo_work(run, body.logprobs or 0), prompts, context)
        if body.max_tokens == 0:
            return await _whole(response, [])
        settings = body.sampling_settings(16 if body.max_tokens is None else body.max_tokens)
        job = GenerationJob(
            run, _prompt_encoder(run, prompts), settings, context, body.n, body.logprobs or 0, stream=body.stream
        )
        return await _respond(engine, job, prompts, response, body.stream)

    @routes.post("/chat/completions", summary="Reply to a conversation")
    async def chat(body: ChatCompletionRequest, request: Request) -> Response:
        run, context = engine.registry.select("chat", body.model), request_context(request)
        settings = body.sampling_settings(body.max_completion_tokens or body.max_tokens or DEFAULT_CHAT_TOKENS)
        task, top_logprobs = run.task("reply"), (body.top_logprobs or 0) if body.logprobs else 0
        if task is None:
            encode_prompts = _prompt_encoder(run, [_chat_transcript(body.messages)])
            settings = settings.model_copy(update={"stop": (*settings.stop, "\nUser:")})
        else:
            encode_prompts = _dialogue_encoder(task, body.messages)
        end_id = None if task is None else generator_of(task).layout.end_id
        job = GenerationJob(run, encode_prompts, settings, context, body.n, top_logprobs, end_id, stream=body.stream)
        transcript = [_chat_transcript(body.messages)]
        return await _respond(engine, job, transcript, ChatResponse(run, body, 1), body.stream)

    @routes.post("/embeddings", summary="Embeddings of texts")
    async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
        run = engine.registry.select("embed", body.model)
        texts = [body.input] if isinstance(body.input, str) else body.input
        results = await engine.submit_each(embed_work(run, "mean"), texts, request_context(request))
        embedding_size = len(results[0][0])
        if body.dimensions not in (None, embedding_size):
            raise RequestError(
                400, f"dimensions: embeddings of {run.name} have {embedding_size} dimensions", param="dimensions"
            )
        data = [
            {"object": "embedding", "index": index, "embedding": _encode_vector(vector, body.encoding_format)}
            for index, (vector, _) in enumerate(results)
        ]
        tokens = sum(num_tokens for _, num_tokens in results)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return await json_response({"object": "list", "data": data, "model": run.name, "usage": usage})

    return routes


async def _respond(
    engine: ServingEngine, job: GenerationJob, prompts: Sequence[PromptInput], response: OpenAIResponse, stream: bool
) -> Response:
    """The full response, or a stream."""
    response.created, response.id = int(time.time()), uuid.uuid4().hex[:24]
    response.seed = job.settings.used_seed
    updates = engine.generate(job, prompts)
    if stream:
        return await event_response(response.stream_chunks(updates))
    return await _whole(response, [update async for step_updates in updates for update in step_updates])


async def _whole(shape: OpenAIResponse, news: Sequence[GenerationUpdate]) -> Response:
    """All texts at once, shaped in a thread: with log-probabilities that takes milliseconds for each hundred tokens."""
    return await json_response(await asyncio.to_thread(shape.full_response, news))


def _model_object(run: ServedRun) -> dict[str, Any]:
    return {"id": run.name, "object": "model", "created": 0, "owned_by": "meristem"}


def _generation_run(engine: ServingEngine, name: str | None) -> ServedRun:
    """A run that generates token by token."""
    run = engine.registry.select("generate", name)
    if run.lm_kind("generate") in UNMASKING_KINDS:
        raise RequestError(422, f"model {run.name!r} is a masked language model: use POST /generate", param="model")
    return run


def _prompt_encoder(run: ServedRun, prompts: Sequence[PromptInput]) -> Callable[[], list[GenerationInputs]]:
    """A function that encodes the prompts, to be called in the worker thread."""
    return lambda: [encode_prompt(run, prompt)[0] for prompt in prompts]


def _chat_transcript(messages: Sequence[ChatMessage]) -> str:
    """A conversation as plain text, for a model that was not trained on dialogue."""
    return "".join(f"{ROLE_NAMES[message.role]}: {message.text}\n" for message in messages) + "Assistant:"


def _dialogue_encoder(task: Task, messages: Sequence[ChatMessage]) -> Callable[[], list[GenerationInputs]]:
    """A function that encodes a conversation as the dialogue task does."""

    def encode() -> list[GenerationInputs]:
        sample = task.parse_input({"turns": [message.text for message in messages]})
        return [generator_of(task).layout.generation_inputs(piece) for piece in task.encode_samples([sample])]

    return encode


def _encode_vector(vector: list[float], encoding: str) -> list[float] | str:
    return vector if encoding == "float" else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
