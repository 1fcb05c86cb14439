"""Texts of many clients written together: one worker gives each of them a token, again and again.

A request joins before the next token and leaves after its last, or as soon as its client has left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meristem.generation.given import Given
from meristem.generation.pool import TURN, Chosen, Pool, Seat
from meristem.generation.sampling import SamplingSettings
from meristem.generation.way import Way
from meristem.generation.written import Finished, Writing
from meristem.serving.admission import Ticket
from meristem.serving.batching import told
from meristem.serving.errors import Refused
from meristem.serving.hub import Served
from meristem.serving.light_requests import CHARACTERS, TOKENS, LightRequests
from meristem.serving.metrics import Metrics
from meristem.serving.worker import Worker, post

UNREAD = 4096
"""Tokens that a streaming client may be behind; what it has not read is held in memory."""

LONG_TURN = 64
"""Tokens after which a place changes hands among long texts: that takes as long as several tokens."""
LONG_EVERY = 8
"""Tokens of light requests after which long texts have one, too."""


@dataclass(frozen=True)
class News:
    """What has become of one of a request's texts."""

    index: int
    text: str
    """What is now certain of it and was not before."""
    chosen: tuple[Chosen, ...]
    finished: Finished | None = None
    prompt: int = 0
    """Tokens that it was written from."""


@dataclass(eq=False)
class Order:
    """One request: what is to be written, and where the news go."""

    run: Served
    starts: Callable[[], Sequence[Given]]
    """Made in the worker, so that nobody else waits while texts are cut into tokens."""
    settings: SamplingSettings
    ticket: Ticket
    count: int = 1
    top: int = 0
    end: int | None = None
    stream: bool = False
    news: asyncio.Queue[list[News] | Refused] = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    texts: int = 1
    """How many are written: known once the worker has begun."""
    unread: int = 0
    """Tokens in the queue that the client's connection has not taken yet."""

    @property
    def light(self) -> bool:
        """Whether it is soon done: long texts wait for it."""
        return self.count * self.settings.max_tokens <= TOKENS and self.ticket.characters <= CHARACTERS

    def hand_over(self, news: list[News] | Refused) -> None:
        """Put news into the queue; a client that is too far behind is not written for any more."""
        self.unread += 0 if isinstance(news, Refused) else sum(len(one.chosen) for one in news)
        if self.stream and self.unread > UNREAD:
            self.ticket.leave()
        else:
            self.news.put_nowait(news)


class _Place:
    """One text of an order."""

    def __init__(self, order: Order, index: int, start: Given, copy: int) -> None:
        self.order, self.index, self._told = order, index, 0
        self._new: list[str] = []
        writing = Writing(order.run.tokenizer, start.prompt, order.settings.stop, self._new.append, end=order.end)
        self.seat = Seat(
            writing, start, order.settings, copy, order.end, order.top, lambda: order.ticket.wanted, order.ticket.owner
        )
        self._prompt = start.size

    def news(self) -> News:
        """All since the last time."""
        text, chosen = "".join(self._new), tuple(self.seat.chosen[self._told :])
        self._new.clear()
        self._told = len(self.seat.chosen)
        return News(self.index, text, chosen, self.seat.writing.finished, self._prompt)


class Scribe(Worker):
    """The worker that writes."""

    name = "meristem-writing"

    def __init__(
        self, runs: Mapping[str, Served], metrics: Metrics, *, rows: int, light: LightRequests | None = None
    ) -> None:
        """`runs` are those that are served now: they may come and go; long texts wait for the requests of `light`."""
        super().__init__()
        self._runs, self._rows, self._metrics, self._light = runs, rows, metrics, light or LightRequests()
        self._pools: dict[tuple[Served, Way, bool], Pool] = {}
        """One for each way a run writes: texts that an encoder's source begins are apart from those that go on, and
        those of light requests are apart from long ones."""
        self._rounds = 0
        """Rounds since long texts had a token."""
        self._new: deque[Order] = deque()
        self._places: dict[Seat, _Place] = {}

    @property
    def texts(self) -> int:
        """Texts that are being written now."""
        return sum(map(len, list(self._pools.values())))

    async def write(self, order: Order) -> AsyncIterator[list[News]]:
        """News until every text of an order has ended."""
        with self._changed:
            self._new.append(order)
            self._changed.notify()
        ended: set[int] = set()
        with self._light.answering(order.light):
            while len(ended) < order.texts:
                news = await order.ticket.wait(asyncio.ensure_future(order.news.get()))
                if isinstance(news, Refused):
                    raise news
                order.unread -= sum(len(one.chosen) for one in news)
                ended |= {one.index for one in news if one.finished is not None}
                yield news

    # ------------------------------------------------------------ in the worker

    def busy(self) -> bool:
        """Whether anything is to be written."""
        return bool(self._new) or any(pool.busy for pool in self._pools.values())

    def work(self) -> None:
        """One token for each text of each run."""
        self._gather()
        crowded = len({place.order.ticket.owner.client for place in self._places.values()}) > 1
        light = any(pool.busy for (_, _, light), pool in self._pools.items() if light)
        self._rounds = self._rounds + 1 if light else LONG_EVERY
        for (run, way, of_light), pool in list(self._pools.items()):
            if pool.busy and (of_light or self._rounds >= LONG_EVERY):
                if not (of_light or light):
                    self._light.wait()
                self._step(run.name, pool, crowded)
            elif not pool.busy and self._runs.get(run.name) is not run:
                del self._pools[run, way, of_light]
        if self._rounds >= LONG_EVERY:
            self._rounds = 0

    def _step(self, name: str, pool: Pool, crowded: bool) -> None:
        """One token for each text of a run; a failure that nobody can be blamed for ends them all, and only them."""
        try:
            changed = pool.step(crowded=crowded)
        except Exception as error:
            changed = pool.clear()
            for seat in changed:
                seat.error = error
        self._metrics.batch(f"{name} generate", len(changed))
        self._tell([self._places[seat] for seat in changed if seat in self._places])

    def _gather(self) -> None:
        """Take in what has come."""
        with self._changed:
            new, self._new = self._new, deque()
        for order in new:
            try:
                self._take(order)
            except Exception as error:
                post(order.loop, order.news.put_nowait, told(error, f"{order.run.name} generate"))

    def _take(self, order: Order) -> None:
        """Each of an order's texts gets a place."""
        starts = order.starts() if order.ticket.wanted else ()
        copies = [(start, copy) for start in starts for copy in range(order.count)]
        order.texts = len(copies)
        places = [_Place(order, index, start, copy) for index, (start, copy) in enumerate(copies)]
        for place in places:
            self._places[place.seat] = place
            self._pool(order.run, place.seat.start.way(order.run.model), order.light).add(place.seat)
        self._metrics.tokens("prompt", sum(start.size for start in starts))

    def _pool(self, run: Served, way: Way, light: bool) -> Pool:
        """Made when it is first needed."""
        if (run, way, light) not in self._pools:
            turn = TURN if light else LONG_TURN
            self._pools[run, way, light] = Pool(run.model, run.tokenizer, rows=self._rows, way=way, turn=turn)
        return self._pools[run, way, light]

    def _tell(self, places: Sequence[_Place]) -> None:
        """News to each request, all of a step at once; a request that does not stream hears of ends alone."""
        out: dict[Order, list[News] | Refused] = {}
        self._metrics.tokens("written", sum(place.order.ticket.wanted for place in places))
        for place in places:
            seat, order = place.seat, place.order
            if not seat.going or not order.ticket.wanted:
                del self._places[seat]
            if seat.error is not None:
                out[order] = told(seat.error, f"{order.run.name} generate")
            elif (order.stream or not seat.going) and isinstance(found := out.setdefault(order, []), list):
                found.append(place.news())
        loops = {order.loop for order in out}
        for loop in loops:
            post(loop, _hand_over, [(order, news) for order, news in out.items() if order.loop is loop])


def _hand_over(news: Sequence[tuple[Order, list[News] | Refused]]) -> None:
    for order, one in news:
        order.hand_over(one)
