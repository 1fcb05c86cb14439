"""Dynamic batching: worker threads take the next job of the least served client and batch similar jobs with it.

There is no batching delay: while one batch is computed, the next one accumulates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from threading import Condition
from typing import Any

from meristem.generation.cancellation import GenerationCancelled, cancellable, yield_between_passes
from meristem.serving.errors import RequestError, to_request_error
from meristem.serving.job_queue import MAX_BATCH_TOKENS, Job, JobQueue, RequestWork, count_characters
from meristem.serving.light_requests import CHARACTERS, LightRequests
from meristem.serving.middleware.admission import RequestContext
from meristem.serving.prometheus_metrics import ServerMetrics
from meristem.serving.worker_thread import WorkerThreads, call_in_loop


class ThreadTimer:
    """CPU seconds used by the current thread."""

    def __init__(self) -> None:
        self._last = time.thread_time()

    def elapsed(self) -> float:
        """CPU seconds since the last call."""
        previous, self._last = self._last, time.thread_time()
        return self._last - previous


class BatchWorker(WorkerThreads):
    """Threads for everything but token-by-token generation: a fixed number compute at once, fair to clients.

    A job of more than a few forward passes is computed alone. Between two passes it yields to less served requests: its
    thread waits, and another one computes.
    """

    name = "meristem-reading"

    def __init__(
        self, metrics: ServerMetrics, threads: int = 1, *, max_tokens: int = 1 << 18, light: LightRequests | None = None
    ) -> None:
        """`tokens` are those that one request may have read; long jobs wait for the requests of `light`."""
        super().__init__(threads)
        self._metrics, self._max_tokens, self._light = metrics, max_tokens, light or LightRequests()
        self._queue = JobQueue(threads)
        self._resumed = Condition(self._lock)

    @property
    def num_waiting(self) -> int:
        """Number of jobs that are in no batch yet."""
        return self._queue.num_waiting

    async def submit(self, work: RequestWork, request: Any, context: RequestContext) -> Any:
        """The answer to one request."""
        characters = count_characters(request)
        context.characters = max(context.characters, characters)
        light = context.characters <= CHARACTERS
        job = Job(
            work, request, context, asyncio.get_running_loop().create_future(), num_characters=characters, light=light
        )
        with self._light.track(light):
            with self._condition:
                self._queue.add(job)
                self._condition.notify()
            return await context.wait(job.future)

    # ------------------------------------------------------------ in the worker

    def has_work(self) -> bool:
        """Whether a job can be computed now."""
        return self._queue.has_startable

    def run_once(self) -> None:
        """Compute one batch, or tokenize one long text."""
        with self._lock:
            short_jobs = self._queue.take_unprepared()
        for job in short_jobs:
            self._prepare(job)
        with self._lock:
            batch = self._queue.take_batch()
            if self._queue.has_startable:
                self._condition.notify()  # there is work for another thread
            if len(self._threads) < self._num_threads + self._queue.num_long:
                self._start_thread()
            if not batch:  # the jobs ahead of a suspended job were cancelled or refused
                self._resumed.notify_all()
                return
        heavy, is_ready = batch[0].heavy, batch[0].state == "ready"
        if heavy and self._num_threads > 1:
            self._light.wait()
        timer = ThreadTimer()
        try:
            if not is_ready:
                self._prepare(batch[0])
            else:
                self._metrics.record_batch(batch[0].work.name, len(batch))
                _deliver_results(self._compute(batch, timer))
        finally:
            with self._lock:
                self._queue.finish(batch, timer.elapsed(), computed=is_ready, heavy=heavy)
                self._notify_free_turn()

    def _notify_free_turn(self) -> None:
        """Wake suspended jobs and one idle thread: one more batch may run."""
        self._resumed.notify_all()
        self._condition.notify()

    def _prepare(self, job: Job) -> None:
        """Tokenize the inputs of a job; an invalid request fails here, before it can break a batch."""
        try:
            job.inputs, job.length = job.work.prepare(job.request)
            job.total_tokens = job.work.count_tokens(job.inputs, job.length)
            with self._lock:  # other threads may be preparing texts of the same request
                job.context.tokens_processed += job.total_tokens
            if job.context.tokens_processed > self._max_tokens:
                limit = f"more than {self._max_tokens:,} tokens to be processed"
                raise RequestError(422, f"this request needs {limit}: send fewer or shorter texts")
            job.state = "ready"
        except Exception as error:
            with self._lock:
                self._queue.remove(job)
            _deliver_results([(job, to_request_error(error, job.work.name))])

    def _compute(self, batch: list[Job], timer: ThreadTimer) -> list[tuple[Job, Any]]:
        """(job, result or error) of a batch; if a batch fails, each job is retried alone."""
        work = batch[0].work
        yield_turn = partial(self._yield_turn, batch[0], timer) if batch[0].is_long else None
        try:
            with (
                cancellable(lambda: any(job.context.is_active for job in batch)),
                yield_between_passes(yield_turn, MAX_BATCH_TOKENS),
            ):
                return list(zip(batch, work.compute([job.inputs for job in batch]), strict=True))
        except GenerationCancelled:
            return []
        except Exception as error:
            if len(batch) == 1:
                return [(batch[0], to_request_error(error, work.name))]
        return [pair for job in batch for pair in self._compute([job], timer)]

    def _yield_turn(self, job: Job, timer: ThreadTimer) -> None:
        """Between two passes of a long job: wait for light requests, and while others have had less."""
        if self._num_threads > 1:  # there is a turn for the light ones
            self._light.wait()
        with self._lock:
            self._queue.charge(job, timer.elapsed())
            if not self._queue.suspend(job):
                return
            self._notify_free_turn()
            while not self._queue.resume(job):
                if self._stopping or not job.context.is_active:
                    self._queue.abandon(job)
                    raise GenerationCancelled
                self._resumed.wait(1.0)
            timer.elapsed()


def _deliver_results(pairs: Sequence[tuple[Job, Any]]) -> None:
    """Set the results of jobs in the event loop that awaits them."""
    if pairs:
        call_in_loop(pairs[0][0].future.get_loop(), _set_results, pairs)


def _set_results(pairs: Sequence[tuple[Job, Any]]) -> None:
    for job, result in pairs:
        if job.future.done():
            continue
        if isinstance(result, RequestError):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
