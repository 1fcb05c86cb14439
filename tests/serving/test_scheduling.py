"""Scheduling: a long job gives way between two passes, and requests, clients and places have their limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.testclient import TestClient

from meristem.api import LoadedModel
from meristem.serving.batch_worker import BatchWorker
from meristem.serving.engine import ServingEngine
from meristem.serving.errors import RequestError
from meristem.serving.job_queue import LONG_JOB_TOKENS, MAX_BATCH_TOKENS, SHORT_TEXT_CHARS, RequestWork
from meristem.serving.middleware.admission import (
    RESERVED_SHARE,
    AdmissionController,
    ClientDisconnected,
    RequestContext,
)
from meristem.serving.model_registry import ModelRegistry, ServedRun
from meristem.serving.prometheus_metrics import ServerMetrics
from meristem.serving.request_work import score_work
from meristem.serving.settings import ServingSettings
from meristem.tokenizers.tokenizer import Tokenizer

SHORT_TEXT = "Ada walked to the old harbour."
LONG_TEXT = " ".join(f"Ada walked to garden {number}." for number in range(400))
PATIENCE = 20
"""Seconds after which a test that hangs fails."""


@dataclass
class Passes:
    """The forward passes of a model: how many tokens each reads; the first waits for `release`."""

    tokens: list[int] = field(default_factory=list)
    first: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def __call__(self, module: Any, arguments: Any, inputs: Any) -> None:
        self.tokens.append(inputs["tokens"].numel())
        self.first.set()
        assert self.release.wait(PATIENCE)


@pytest.fixture
def served_run(hub: ModelRegistry) -> ServedRun:
    return hub.runs["gpt2"]


@pytest.fixture
def passes(served_run: ServedRun) -> Iterator[Passes]:
    """Those of the causal run that is served."""
    recorded = Passes()
    handle = served_run.model.backbone.register_forward_pre_hook(recorded, with_kwargs=True)
    yield recorded
    recorded.release.set()
    handle.remove()


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE)


@pytest.mark.parametrize("client", ["same", "another"])
def test_a_short_job_finishes_before_a_long_one_that_began_first(
    served_run: ServedRun, passes: Passes, loaded: dict[str, LoadedModel], client: str
) -> None:
    finished: list[str] = []

    async def ask(batcher: BatchWorker, name: str, text: str, ticket: Any) -> Any:
        (answer,) = await batcher.submit(score_work(served_run), (text, []), ticket)
        finished.append(name)
        return answer

    async def scenario() -> list[Any]:
        batcher, admission = BatchWorker(ServerMetrics(), 1), AdmissionController(9, PATIENCE)
        batcher.start()
        long = asyncio.create_task(ask(batcher, "long", LONG_TEXT, admission.admit("same")))
        await reached(passes.first)
        short = asyncio.create_task(ask(batcher, "short", SHORT_TEXT, admission.admit(client)))
        while not batcher.num_waiting:
            await asyncio.sleep(0)
        passes.release.set()
        answers = await asyncio.gather(long, short)
        await asyncio.to_thread(batcher.stop)
        return answers

    long, short = asyncio.run(scenario())
    assert finished == ["short", "long"]
    assert sum(passes.tokens) > LONG_JOB_TOKENS and max(passes.tokens) <= MAX_BATCH_TOKENS
    for answer, text in ((long, LONG_TEXT), (short, SHORT_TEXT)):
        (expected_score,) = loaded["gpt2"].score([text])
        assert answer.logprob == pytest.approx(expected_score.logprob, rel=1e-5)


def test_a_suspended_job_ends_when_its_client_leaves(served_run: ServedRun, passes: Passes) -> None:
    started, finish = threading.Event(), threading.Event()

    def hold(items: Any) -> Any:
        started.set()
        assert finish.wait(PATIENCE)
        return items

    async def scenario() -> None:
        batcher, admission = BatchWorker(ServerMetrics(), 1), AdmissionController(9, PATIENCE)
        batcher.start()
        leaving = admission.admit("leaving")
        long = asyncio.create_task(batcher.submit(score_work(served_run), (LONG_TEXT, []), leaving))
        await reached(passes.first)
        request_work = RequestWork(("run", "hold"), lambda item: (item, len(item)), hold)
        other = asyncio.create_task(batcher.submit(request_work, "text", admission.admit("staying")))
        while not batcher.num_waiting:
            await asyncio.sleep(0)
        passes.release.set()
        await reached(started)  # the only turn is the other's
        count, queue = len(passes.tokens), batcher._queue
        assert queue.num_long == 1 and leaving.owner in queue._suspended
        leaving.close()
        with pytest.raises(ClientDisconnected):
            await long
        while queue.num_long:  # until its thread has noticed, though the turn is not free
            await asyncio.sleep(0.01)
        assert not other.done() and not queue._suspended
        finish.set()
        assert await other == "text"
        (answer,) = await batcher.submit(score_work(served_run), (SHORT_TEXT, []), admission.admit("staying"))
        assert answer.tokens > 0 and len(passes.tokens) == count + 1  # nothing more was read for who left
        await asyncio.to_thread(batcher.stop)

    try:
        asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    finally:
        finish.set()


# ------------------------------------------------------------ tokenising


LONG_PROMPT = "Ada walked to the old harbour. " * 2904


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/generate", {"prompt": LONG_PROMPT, "max_tokens": 1}),
        ("/generate", {"prompt": LONG_PROMPT, "max_tokens": 1, "beams": 2}),
        ("/v1/completions", {"prompt": LONG_PROMPT, "max_tokens": 1}),
    ],
)
def test_a_long_text_is_tokenised_by_the_threads_that_read(
    client: TestClient, served_run: ServedRun, monkeypatch: pytest.MonkeyPatch, route: str, body: dict[str, Any]
) -> None:
    assert len(LONG_PROMPT) > 90_000
    threads: list[str] = []
    for name in ("encode", "encode_batch", "ids_each", "count"):
        tokenise = getattr(Tokenizer, name)

        def recorded(self: Tokenizer, text: Any, *rest: Any, tokenise: Any = tokenise, **options: Any) -> Any:
            text = text if isinstance(text, str) else list(text)
            if sum(map(len, [text] if isinstance(text, str) else text)) > SHORT_TEXT_CHARS:
                threads.append(threading.current_thread().name)
            return tokenise(self, text, *rest, **options)

        monkeypatch.setattr(Tokenizer, name, recorded)
    answer = client.post(route, json={"model": "gpt2", **body})
    assert answer.status_code == 200, answer.text
    assert threads and set(threads) == {BatchWorker.name}


# ------------------------------------------------------------ limits of a request, and places


@pytest.mark.parametrize(
    ("route", "body", "tokens"),
    [
        ("/v1/completions", {"prompt": ["Ada"] * 64, "n": 16, "max_tokens": 2048}, "2,097,152"),
        ("/v1/completions", {"prompt": ["Ada"] * 64, "n": 16, "max_tokens": 2048, "stream": True}, "2,097,152"),
        ("/v1/completions", {"prompt": ["Ada"] * 64, "n": 16, "max_tokens": 2048, "echo": True}, "2,097,152"),
        ("/v1/completions", {"prompt": "Ada", "max_tokens": 2048, "logprobs": 20}, "43,008"),
        ("/generate", {"prompt": "Ada", "n": 16, "max_tokens": 2048, "top": 1}, "65,536"),
    ],
)
def test_more_generated_tokens_than_one_request_may_have(
    client: TestClient, route: str, body: dict[str, Any], tokens: str
) -> None:
    answer = client.post(route, json={"model": "gpt2", **body})
    assert answer.status_code == (400 if route.startswith("/v1") else 422), answer.text
    error = answer.json()["error"]
    assert error["param"] == "max_tokens" and tokens in error["message"] and "32,768" in error["message"]


def test_a_request_for_as_many_tokens_as_it_may_have_is_accepted(hub: ModelRegistry) -> None:
    engine = ServingEngine(hub, ServingSettings.model_validate({}))
    engine.check_generation_limit(1, 16, 2048)
    with pytest.raises(RequestError) as error:
        engine.check_generation_limit(64, 16, 2048)
    assert error.value.status == 422


def test_more_read_tokens_than_one_request_may_have(served_run: ServedRun) -> None:
    async def scenario() -> None:
        batcher, admission = BatchWorker(ServerMetrics(), 1, max_tokens=100), AdmissionController(9, PATIENCE)
        batcher.start()
        work = score_work(served_run)
        with pytest.raises(RequestError, match="more than 100 tokens") as error:
            await batcher.submit(work, (LONG_TEXT, []), admission.admit())
        assert error.value.status == 422
        ticket = admission.admit()
        texts = [batcher.submit(work, (SHORT_TEXT, []), ticket) for _ in range(30)]  # together too many
        answers = await asyncio.gather(*texts, return_exceptions=True)
        assert {type(answer) for answer in answers} == {list, RequestError}
        assert isinstance(await batcher.submit(work, (SHORT_TEXT, []), admission.admit()), list)
        await asyncio.to_thread(batcher.stop)

    asyncio.run(scenario())


def enter_all(admission: AdmissionController, client: str) -> list[RequestContext]:
    """As many requests of one client as are admitted."""
    tickets: list[RequestContext] = []
    while not admission.is_full(client):
        tickets.append(admission.admit(client))
    return tickets


def test_one_client_cannot_hold_every_place() -> None:
    async def scenario() -> None:
        admission = AdmissionController(64, PATIENCE)
        first = enter_all(admission, "first")
        assert len(first) == 64 - 64 // RESERVED_SHARE
        with pytest.raises(RequestError) as error:
            admission.admit("first")
        assert error.value.status == 429
        newcomers = [admission.admit(f"newcomer {number}") for number in range(64 // RESERVED_SHARE)]
        assert admission.num_active == 64 and all(newcomer.is_active for newcomer in newcomers)
        with pytest.raises(RequestError):
            admission.admit("one too many")

    asyncio.run(scenario())


def test_places_that_become_free_go_to_the_client_that_has_fewer() -> None:
    async def scenario() -> None:
        admission = AdmissionController(64, PATIENCE)
        first, second = enter_all(admission, "first"), [admission.admit("second")]
        for _ in range(100):  # both ask again whenever a place becomes free
            if len(first) > 1:
                admission.release(first.pop())
            for client, tickets in (("first", first), ("second", second)):
                if not admission.is_full(client):
                    tickets.append(admission.admit(client))
        assert len(second) >= 64 // 2 - 64 // RESERVED_SHARE
        assert len(first) <= 64 // 2

    asyncio.run(scenario())
