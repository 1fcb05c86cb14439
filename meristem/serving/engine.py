"""The two workers, and how a route reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import torch

from meristem.serving.admission import Admission, Ticket
from meristem.serving.batching import Batcher
from meristem.serving.continuous import News, Order, Scribe
from meristem.serving.errors import Refused
from meristem.serving.hub import Hub
from meristem.serving.jobs import SHORT, Work, characters_in
from meristem.serving.light_requests import LightRequests
from meristem.serving.metrics import Metrics
from meristem.serving.settings import ServingSettings
from meristem.serving.works import starts_work


class Engine:
    """All runs, what is counted, who is inside, and the workers."""

    def __init__(self, hub: Hub, settings: ServingSettings) -> None:
        self.hub, self.settings, self.metrics = hub, settings, Metrics()
        self.admission = Admission(settings.queue, settings.deadline)
        threads = settings.threads or torch.get_num_threads()
        light = LightRequests()
        self.batcher = Batcher(self.metrics, threads, tokens=settings.max_read_tokens, light=light)
        self.scribe = Scribe(hub.runs, self.metrics, rows=settings.rows, light=light)
        self.metrics.gauge("meristem_inside", "Requests in work or waiting for it.", lambda: self.admission.inside)
        self.metrics.gauge("meristem_waiting", "Requests that wait to be read.", lambda: self.batcher.waiting)
        self.metrics.gauge("meristem_writing", "Texts that are being written.", lambda: self.scribe.texts)

    def start(self) -> None:
        """Begin to work."""
        self.admission.stopping = False
        self.batcher.start()
        self.scribe.start()

    def stop(self) -> None:
        """Let nobody in any more, and end."""
        self.admission.stopping = True
        self.batcher.stop()
        self.scribe.stop()

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self.batcher.alive and self.scribe.alive and not self.admission.stopping

    def check_generated(self, prompts: int, texts: int, max_tokens: int, *, top: int = 0) -> None:
        """Refuse a request for more tokens than one may have written; `top` more are listed beside each."""
        most, asked = self.settings.max_generated_tokens, prompts * texts * max_tokens * (1 + top)
        if asked > most:
            listed = f", each with the {top} likeliest," if top else ""
            told = f"{prompts} × {texts} texts of {max_tokens:,} tokens{listed} are {asked:,}, and one request may ask"
            raise Refused(422, f"max_tokens: {told} for {most:,}: ask for fewer, or in parts", param="max_tokens")

    async def write(self, order: Order, prompts: Sequence[Any]) -> AsyncIterator[list[News]]:
        """News until every text of an order has ended; long prompts are cut into tokens where nobody waits for it."""
        listed = 0 if order.stream else order.top  # one answer is written out at once, a stream piece by piece
        self.check_generated(len(prompts), order.count, order.settings.max_tokens, top=listed)
        if characters_in(prompts) > SHORT:
            starts = await self.ask(starts_work(order.run), (order.starts, prompts), order.ticket)
            order.starts = lambda: starts
        async for news in self.scribe.write(order):
            yield news

    async def ask(self, work: Work, asked: Any, ticket: Ticket) -> Any:
        """The answer to one thing."""
        return await self.batcher.ask(work, asked, ticket)

    async def ask_each(self, work: Work, asked: Sequence[Any], ticket: Ticket) -> list[Any]:
        """The answers to several, in their order; the first that is wrong ends them all."""
        if len(asked) == 1:
            return [await self.ask(work, asked[0], ticket)]
        ticket.characters = characters_in(asked)
        tasks = [asyncio.ensure_future(self.ask(work, one, ticket)) for one in asked]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
