"""The serving engine: model registry, metrics, admission, and the batch and generation workers behind the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import torch

from meristem.serving.batch_worker import BatchWorker
from meristem.serving.errors import RequestError
from meristem.serving.generation_worker import GenerationJob, GenerationUpdate, GenerationWorker
from meristem.serving.job_queue import SHORT_TEXT_CHARS, RequestWork, count_characters
from meristem.serving.light_requests import LightRequests
from meristem.serving.middleware.admission import AdmissionController, RequestContext
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.prometheus_metrics import ServerMetrics
from meristem.serving.request_work import encode_prompts_work
from meristem.serving.settings import ServingSettings


class ServingEngine:
    """The served runs, the metrics, the admission controller and the two workers."""

    def __init__(self, registry: ModelRegistry, settings: ServingSettings) -> None:
        self.registry, self.settings, self.metrics = registry, settings, ServerMetrics()
        self.admission = AdmissionController(settings.max_requests, settings.request_timeout)
        threads = settings.threads or torch.get_num_threads()
        light = LightRequests()
        self.batch_worker = BatchWorker(self.metrics, threads, max_tokens=settings.max_processed_tokens, light=light)
        self.generation_worker = GenerationWorker(
            registry.runs, self.metrics, max_batch_size=settings.max_batch_size, light=light
        )
        self.metrics.add_gauge("meristem_waiting", "Jobs waiting for a batch.", lambda: self.batch_worker.num_waiting)
        self.metrics.add_gauge("meristem_writing", "Texts being generated.", lambda: self.generation_worker.num_active)

    def start(self) -> None:
        """Start the workers."""
        self.admission.stopping = False
        self.batch_worker.start()
        self.generation_worker.start()

    def stop(self) -> None:
        """Refuse new requests and stop the workers."""
        self.admission.stopping = True
        self.batch_worker.stop()
        self.generation_worker.stop()

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted."""
        return self.batch_worker.is_alive and self.generation_worker.is_alive and not self.admission.stopping

    def check_generation_limit(self, prompts: int, texts: int, max_tokens: int, *, top_logprobs: int = 0) -> None:
        """Refuse a request for too many tokens; `top_logprobs` further tokens are listed for each generated one."""
        limit, num_tokens = self.settings.max_generated_tokens, prompts * texts * max_tokens * (1 + top_logprobs)
        if num_tokens > limit:
            top_note = f" with {top_logprobs} top tokens each" if top_logprobs else ""
            message = (
                f"max_tokens: {prompts} × {texts} texts of {max_tokens:,} tokens{top_note} are {num_tokens:,}; "
                f"the limit per request is {limit:,}: ask for fewer, or send several requests"
            )
            raise RequestError(422, message, param="max_tokens")

    async def generate(self, job: GenerationJob, prompts: Sequence[Any]) -> AsyncIterator[list[GenerationUpdate]]:
        """Updates until every text of a job is finished; long prompts are tokenized by the batch worker."""
        # a stream is sent piece by piece; the lists of top tokens of a full response are encoded at once
        top_logprobs = 0 if job.stream else job.top_logprobs
        self.check_generation_limit(len(prompts), job.num_samples, job.settings.max_tokens, top_logprobs=top_logprobs)
        if count_characters(prompts) > SHORT_TEXT_CHARS:
            prompt_inputs = await self.submit(encode_prompts_work(job.run), (job.encode_prompts, prompts), job.context)
            job.encode_prompts = lambda: prompt_inputs
        async for updates in self.generation_worker.generate(job):
            yield updates

    async def submit(self, work: RequestWork, request: Any, context: RequestContext) -> Any:
        """The result of one job of the batch worker."""
        return await self.batch_worker.submit(work, request, context)

    async def submit_each(self, work: RequestWork, requests: Sequence[Any], context: RequestContext) -> list[Any]:
        """The results of several jobs, in order; the first error cancels the others."""
        if len(requests) == 1:
            return [await self.submit(work, requests[0], context)]
        context.characters = count_characters(requests)
        tasks = [asyncio.ensure_future(self.submit(work, request, context)) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
