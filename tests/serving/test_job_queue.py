"""Which job is computed next: a long one makes way for short ones that came while it was computed."""

from __future__ import annotations

import asyncio

from meristem.serving.admission import Ticket
from meristem.serving.jobs import LONG, SHORT, Job, JobQueue, Work


def job(client: str, text: str) -> Job:
    work = Work(("run", "score"), lambda asked: (asked, len(asked)), list)
    return Job(work, text, Ticket(60, client), asyncio.get_running_loop().create_future(), characters=len(text))


def test_a_long_job_makes_way_for_a_short_one_that_nobody_has_prepared() -> None:
    async def scenario() -> None:
        queue = JobQueue(turns=1)
        long, short = job("a", "x" * 2 * LONG), job("b", "x")
        long.read, long.size, long.tokens, long.state = long.asked, 2 * LONG, 2 * LONG, "ready"
        queue.add(long)
        assert queue.take() == [long]
        queue.add(short)
        queue.charge(long, 1.0)
        assert queue.suspend(long)  # the only turn is free for the short job
        assert queue.take_unprepared() == [short]
        short.read, short.size, short.tokens, short.state = short.asked, 1, 1, "ready"
        assert queue.take() == [short] and not queue.resume(long)
        queue.finish([short], 0.01, computed=True, heavy=False)
        assert queue.resume(long)

    asyncio.run(scenario())


def test_cutting_long_texts_into_tokens_leaves_turns_to_others() -> None:
    async def scenario() -> None:
        queue = JobQueue(turns=2)
        first, second, short = job("a", "x" * 2 * SHORT), job("b", "x" * 2 * SHORT), job("c", "x")
        queue.add(first)
        queue.add(short)
        queue.remove(short)
        queue.add(second)
        assert queue.take() == [first] and first.state == "preparing"
        assert queue.take() == [] and not queue.startable  # the other turn is kept
        queue.add(short)
        assert queue.startable and queue.take_unprepared() == [short]
        short.read, short.size, short.tokens, short.state = short.asked, 1, 1, "ready"
        assert queue.take() == [short]
        queue.finish([short], 0.01, computed=True, heavy=False)
        queue.finish([first], 0.01, computed=False, heavy=True)
        assert queue.take() == [second]

    asyncio.run(scenario())
