"""Light requests: heavy work waits for them, for a bounded time, and a request of many texts is none."""

from __future__ import annotations

import asyncio
import threading
import time

from meristem.serving.job_queue import LONG_JOB_TOKENS, Job, JobQueue, RequestWork
from meristem.serving.light_requests import PAUSE, LightRequests
from meristem.serving.middleware.admission import RequestContext


def test_heavy_work_waits_until_light_requests_are_answered() -> None:
    light, waited = LightRequests(), []
    assert light.wait() == 0.0
    with light.track(False):
        assert light.wait() == 0.0
    with light.track(True):
        thread = threading.Thread(target=lambda: waited.append(light.wait()))
        thread.start()
        time.sleep(PAUSE / 4)
    thread.join(timeout=60)
    assert waited and waited[0] > 0


def test_heavy_work_goes_on_however_many_light_requests_there_are() -> None:
    light = LightRequests()
    with light.track(True):
        start = time.monotonic()
        assert light.wait() >= PAUSE * 0.9
        assert time.monotonic() - start < 60


def test_short_texts_of_a_heavy_request_do_not_take_the_last_turn() -> None:
    def job(client: str, *, light: bool) -> Job:
        work = RequestWork((client, "embed"), lambda item: (item, len(item)), list)
        future = asyncio.get_running_loop().create_future()
        return Job(work, "x", RequestContext(60, client), future, num_characters=1, light=light)

    def prepared(job: Job, tokens: int = 1) -> Job:
        job.inputs, job.length, job.total_tokens, job.state = job.request, 1, tokens, "ready"
        return job

    async def scenario() -> None:
        queue = JobQueue(max_running=2)
        flood, flood_more, light = job("a", light=False), job("b", light=False), job("c", light=True)
        queue.add(light)
        assert queue.take_unprepared() == [light]  # before those of heavy requests
        queue.add(prepared(flood))
        queue.add(prepared(flood_more))
        assert queue.take_batch() == [flood]
        assert queue.take_batch() == [] and not queue.has_startable  # the other turn is kept, since light jobs come
        assert prepared(light) and queue.take_batch() == [light]
        queue.finish([light], 0.01, computed=True, heavy=False)
        queue.finish([flood], 0.01, computed=True, heavy=True)
        assert queue.take_batch() == [flood_more]

    asyncio.run(scenario())


def test_without_light_requests_heavy_jobs_have_every_turn() -> None:
    async def scenario() -> None:
        queue, work = JobQueue(max_running=2), RequestWork(("run", "score"), lambda item: (item, len(item)), list)
        jobs = []
        for client in ("a", "b"):
            future = asyncio.get_running_loop().create_future()
            job = Job(work, "x" * 10_000, RequestContext(60, client), future, num_characters=10_000, light=False)
            job.inputs, job.length, job.total_tokens, job.state = (
                job.request,
                2 * LONG_JOB_TOKENS,
                2 * LONG_JOB_TOKENS,
                "ready",
            )
            queue.add(job)
            jobs.append(job)
        assert [queue.take_batch(), queue.take_batch()] == [[jobs[0]], [jobs[1]]]

    asyncio.run(scenario())
