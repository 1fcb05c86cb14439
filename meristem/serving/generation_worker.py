"""Continuous batching for the server: one thread decodes one token per active sequence per step, for all clients.

A sequence joins the batch before any step and leaves after its last token, or when its client disconnects.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meristem.generation.continuous_batching import ContinuousBatch, SampledToken, SequenceState, TokenSampler
from meristem.generation.generate import banned_token_ids
from meristem.generation.generated_text import FinishReason, TextStream
from meristem.generation.generation_inputs import GenerationInputs
from meristem.generation.head_selection import LMKind
from meristem.generation.sampling import seeded_uniforms
from meristem.generation.settings import SamplingSettings
from meristem.generation.slot_scheduling import TURN_TOKENS, FairSlotScheduler
from meristem.serving.errors import RequestError, to_request_error
from meristem.serving.light_requests import CHARACTERS, TOKENS, LightRequests
from meristem.serving.middleware.admission import RequestContext
from meristem.serving.model_registry import ServedRun
from meristem.serving.prometheus_metrics import ServerMetrics
from meristem.serving.worker_thread import WorkerThreads, call_in_loop

MAX_UNREAD_TOKENS = 4096
"""Tokens that a streaming client may lag behind; unread updates are held in memory."""

LONG_TURN = 64
"""Tokens after which a place changes hands among long texts: that takes as long as several tokens."""
STREAM_INTERVAL = 0.05
"""Seconds between two updates of a long stream: sending a token takes the event loop as long as decoding it."""
LONG_EVERY = 8
"""Tokens of light requests after which long texts have one, too."""


@dataclass(frozen=True)
class GenerationUpdate:
    """New tokens and text of one sequence of a request."""

    index: int
    text: str
    """Text added since the last update; the start of a possible stop string is held back."""
    tokens: tuple[SampledToken, ...]
    finish_reason: FinishReason | None = None
    prompt_tokens: int = 0
    """Number of tokens of its prompt."""


@dataclass(eq=False)
class GenerationJob:
    """A generation request, and the queue that its updates are put into."""

    run: ServedRun
    encode_prompts: Callable[[], Sequence[GenerationInputs]]
    """Called in the worker thread, so that tokenization does not block the event loop."""
    settings: SamplingSettings
    """With a seed."""
    context: RequestContext
    num_samples: int = 1
    top_logprobs: int = 0
    end_id: int | None = None
    stream: bool = False
    updates: asyncio.Queue[list[GenerationUpdate] | RequestError] = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    num_texts: int = 1
    """Number of sequences; set when the worker starts the job."""
    unread_tokens: int = 0
    """Tokens in the queue that have not been sent to the client yet."""
    next_update: float = 0.0
    """When a stream that is not light sends its tokens again, unless a text is finished before."""

    @property
    def light(self) -> bool:
        """Whether it is soon done: long texts wait for it."""
        return self.num_samples * self.settings.max_tokens <= TOKENS and self.context.characters <= CHARACTERS

    def put_updates(self, updates: list[GenerationUpdate] | RequestError) -> None:
        """Put updates into the queue; the job of a streaming client that lags too far behind is cancelled."""
        self.unread_tokens += 0 if isinstance(updates, RequestError) else sum(len(update.tokens) for update in updates)
        if self.stream and self.unread_tokens > MAX_UNREAD_TOKENS:
            self.context.close()
        else:
            self.updates.put_nowait(updates)


class _GeneratedText:
    """One sequence of a job, and the updates it has not sent yet."""

    def __init__(self, job: GenerationJob, index: int, inputs: GenerationInputs, sampler: TokenSampler) -> None:
        self.job, self.index, self._num_sent = job, index, 0
        self._new_text: list[str] = []
        tokenizer, settings = job.run.tokenizer, job.settings
        self.sequence = SequenceState(
            inputs,
            sampler,
            seeded_uniforms(settings.seed or 0, *divmod(index, job.num_samples)),
            settings.max_tokens,
            end_id=tokenizer.end if job.end_id is None else job.end_id,
            text=TextStream(tokenizer, inputs.prompt_ids, settings.stop, self._new_text.append),
            top_logprobs=job.top_logprobs,
            is_wanted=lambda: job.context.is_active,
            owner=job.context.owner,
        )

    def take_update(self) -> GenerationUpdate:
        """Everything since the last update."""
        text, tokens = "".join(self._new_text), self.sequence.sampled_tokens(self._num_sent)
        self._new_text.clear()
        self._num_sent += len(tokens)
        return GenerationUpdate(self.index, text, tokens, self.sequence.finished, self.sequence.inputs.num_tokens)


class _ServedBatch(ContinuousBatch):
    """A decoding batch that clients share, with the samplers of their requests."""

    def __init__(self, run: ServedRun, lm_kind: LMKind, max_rows: int, turn: int) -> None:
        self.scheduler = FairSlotScheduler(max_rows, turn=turn, max_length=run.model.backbone.max_length)
        super().__init__(run.model, lm_kind=lm_kind, scheduler=self.scheduler)
        self._run, self._lm_kind = run, lm_kind
        self._banned_ids: dict[int | None, tuple[int, ...]] = {}

    def sampler(self, settings: SamplingSettings, end_id: int | None) -> TokenSampler:
        """The sampler of a request."""
        model, tokenizer = self._run.model, self._run.tokenizer
        if end_id not in self._banned_ids:
            self._banned_ids[end_id] = banned_token_ids(model, tokenizer, end_id, self._lm_kind)
        end_token = tokenizer.end if end_id is None else end_id
        return TokenSampler.from_settings(settings, self._banned_ids[end_id], end_token, model.device)


class GenerationWorker(WorkerThreads):
    """The thread that generates text token by token."""

    name = "meristem-writing"

    def __init__(
        self,
        runs: Mapping[str, ServedRun],
        metrics: ServerMetrics,
        *,
        max_batch_size: int,
        light: LightRequests | None = None,
    ) -> None:
        """`runs` are those that are served now: they may come and go; long texts wait for the requests of `light`."""
        super().__init__()
        self._runs, self._metrics, self._max_batch_size = runs, metrics, max_batch_size
        self._light = light or LightRequests()
        self._batches: dict[tuple[ServedRun, LMKind, bool], _ServedBatch] = {}
        """One for each way a run writes: texts that an encoder's source begins are apart from those that go on, and
        those of light requests are apart from long ones."""
        self._rounds = 0
        """Rounds since long texts had a token."""
        self._new_jobs: deque[GenerationJob] = deque()
        self._texts: dict[SequenceState, _GeneratedText] = {}

    @property
    def num_active(self) -> int:
        """Number of sequences being generated."""
        return sum(len(batch.active) for batch in list(self._batches.values()))

    async def generate(self, job: GenerationJob) -> AsyncIterator[list[GenerationUpdate]]:
        """Updates until every text of a job is finished."""
        with self._condition:
            self._new_jobs.append(job)
            self._condition.notify()
        finished_texts: set[int] = set()
        with self._light.track(job.light):
            while len(finished_texts) < job.num_texts:
                updates = await job.context.wait(asyncio.ensure_future(job.updates.get()))
                if isinstance(updates, RequestError):
                    raise updates
                job.unread_tokens -= sum(len(update.tokens) for update in updates)
                finished_texts |= {update.index for update in updates if update.finish_reason is not None}
                yield updates

    # ------------------------------------------------------------ in the worker

    def has_work(self) -> bool:
        """Whether there are new jobs or active sequences."""
        return bool(self._new_jobs) or any(batch.has_work for batch in self._batches.values())

    def run_once(self) -> None:
        """Decode one token per active sequence of each run."""
        self._accept_jobs()
        several_clients = len({text.job.context.owner.client for text in self._texts.values()}) > 1
        light = any(batch.has_work for (_, _, light), batch in self._batches.items() if light)
        self._rounds = self._rounds + 1 if light else LONG_EVERY
        for (run, lm_kind, of_light), batch in list(self._batches.items()):
            if batch.has_work and (of_light or self._rounds >= LONG_EVERY):
                if not (of_light or light):
                    self._light.wait()
                self._decode_step(run.name, batch, several_clients)
            elif not batch.has_work and self._runs.get(run.name) is not run:
                del self._batches[run, lm_kind, of_light]
        if self._rounds >= LONG_EVERY:
            self._rounds = 0

    def _decode_step(self, name: str, batch: _ServedBatch, several_clients: bool) -> None:
        """Decode one token per sequence of one batch; an unexpected error fails all sequences of this batch only."""
        try:
            batch.scheduler.is_crowded = several_clients
            sequences = batch.step()
        except Exception as error:
            sequences = batch.clear()
            for sequence in sequences:
                sequence.error = error
        self._metrics.record_batch(f"{name} generate", len(sequences))
        self._send_updates([self._texts[sequence] for sequence in sequences if sequence in self._texts])

    def _accept_jobs(self) -> None:
        """Add the new jobs to their batches; errors are sent to their clients."""
        with self._condition:
            new_jobs, self._new_jobs = self._new_jobs, deque()
        for job in new_jobs:
            try:
                self._add_job(job)
            except Exception as error:
                call_in_loop(job.loop, job.updates.put_nowait, to_request_error(error, f"{job.run.name} generate"))

    def _add_job(self, job: GenerationJob) -> None:
        """Add the sequences of a job to the batch of its run."""
        prompt_inputs = job.encode_prompts() if job.context.is_active else ()
        job.num_texts = len(prompt_inputs) * job.num_samples
        texts: list[tuple[_ServedBatch, _GeneratedText]] = []
        for inputs in prompt_inputs:
            batch = self._batch_for(job.run, inputs.lm_kind(job.run.model), job.light)
            sampler = batch.sampler(job.settings, job.end_id)
            texts += [(batch, _GeneratedText(job, len(texts) + n, inputs, sampler)) for n in range(job.num_samples)]
        for batch, text in texts:
            self._texts[text.sequence] = text
            batch.add(text.sequence)
        self._metrics.record_tokens("prompt", sum(inputs.num_tokens for inputs in prompt_inputs))

    def _batch_for(self, run: ServedRun, lm_kind: LMKind, light: bool) -> _ServedBatch:
        """Made when it is first needed."""
        if (run, lm_kind, light) not in self._batches:
            turn = TURN_TOKENS if light else LONG_TURN
            self._batches[run, lm_kind, light] = _ServedBatch(run, lm_kind, self._max_batch_size, turn)
        return self._batches[run, lm_kind, light]

    def _send_updates(self, texts: Sequence[_GeneratedText]) -> None:
        """Send the updates of a step to their requests; a request that does not stream gets finished texts only."""
        updates_by_job: dict[GenerationJob, list[GenerationUpdate] | RequestError] = {}
        now = time.monotonic()
        self._metrics.record_tokens("written", sum(text.job.context.is_active for text in texts))
        for text in texts:
            sequence, job = text.sequence, text.job
            if not sequence.is_active or not job.context.is_active:
                del self._texts[sequence]
            if sequence.error is not None:
                updates_by_job[job] = to_request_error(sequence.error, f"{job.run.name} generate")
            elif ((job.stream and now >= job.next_update) or not sequence.is_active) and isinstance(
                pending := updates_by_job.setdefault(job, []), list
            ):
                pending.append(text.take_update())
        for job in updates_by_job:
            if now >= job.next_update and not job.light:
                job.next_update = now + STREAM_INTERVAL
        for loop in {job.loop for job in updates_by_job}:
            of_loop = [(job, updates) for job, updates in updates_by_job.items() if job.loop is loop]
            call_in_loop(loop, _deliver_updates, of_loop)


def _deliver_updates(updates: Sequence[tuple[GenerationJob, list[GenerationUpdate] | RequestError]]) -> None:
    for job, job_updates in updates:
        job.put_updates(job_updates)
