"""Which job is computed next: a long one makes way for short ones that came while it was computed."""

from __future__ import annotations

import asyncio

from meristem.serving.job_queue import LONG_JOB_TOKENS, SHORT_TEXT_CHARS, Job, JobQueue, RequestWork
from meristem.serving.middleware.admission import RequestContext


def job(client: str, text: str) -> Job:
    work = RequestWork(("run", "score"), lambda item: (item, len(item)), list)
    return Job(
        work, text, RequestContext(60, client), asyncio.get_running_loop().create_future(), num_characters=len(text)
    )


def test_a_long_job_makes_way_for_a_short_one_that_nobody_has_prepared() -> None:
    async def scenario() -> None:
        queue = JobQueue(max_running=1)
        long, short = job("a", "x" * 2 * LONG_JOB_TOKENS), job("b", "x")
        long.inputs, long.length, long.total_tokens, long.state = (
            long.request,
            2 * LONG_JOB_TOKENS,
            2 * LONG_JOB_TOKENS,
            "ready",
        )
        queue.add(long)
        assert queue.take_batch() == [long]
        queue.add(short)
        queue.charge(long, 1.0)
        assert queue.suspend(long)  # the only turn is free for the short job
        assert queue.take_unprepared() == [short]
        short.inputs, short.length, short.total_tokens, short.state = short.request, 1, 1, "ready"
        assert queue.take_batch() == [short] and not queue.resume(long)
        queue.finish([short], 0.01, computed=True, heavy=False)
        assert queue.resume(long)

    asyncio.run(scenario())


def test_cutting_long_texts_into_tokens_leaves_turns_to_others() -> None:
    async def scenario() -> None:
        queue = JobQueue(max_running=2)
        first, second, short = job("a", "x" * 2 * SHORT_TEXT_CHARS), job("b", "x" * 2 * SHORT_TEXT_CHARS), job("c", "x")
        queue.add(first)
        queue.add(short)
        queue.remove(short)
        queue.add(second)
        assert queue.take_batch() == [first] and first.state == "preparing"
        assert queue.take_batch() == [] and not queue.has_startable  # the other turn is kept
        queue.add(short)
        assert queue.has_startable and queue.take_unprepared() == [short]
        short.inputs, short.length, short.total_tokens, short.state = short.request, 1, 1, "ready"
        assert queue.take_batch() == [short]
        queue.finish([short], 0.01, computed=True, heavy=False)
        queue.finish([first], 0.01, computed=False, heavy=True)
        assert queue.take_batch() == [second]

    asyncio.run(scenario())
