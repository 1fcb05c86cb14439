"""Large answers are written in steps: other requests have their turns meanwhile."""

from __future__ import annotations

import asyncio

from meristem.serving.json_response import FiniteJSONResponse, in_steps, json_response


async def _turns_beside(work: object) -> int:
    """How often another task of the event loop runs while one is awaited."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    await work  # type: ignore[misc]  # any awaitable
    task.cancel()
    return turns


def test_a_large_answer_gives_turns_to_others() -> None:
    content = {"model": "m", "answer": {"per_token": [["word", -1.25]] * 50_000}}
    assert asyncio.run(_turns_beside(json_response(content))) > 50
    assert asyncio.run(json_response(content)).body == FiniteJSONResponse(content).body


def test_values_in_steps_are_the_same() -> None:
    async def collect() -> None:
        assert [part async for part in in_steps(range(5000))] == list(range(5000))

    assert asyncio.run(_turns_beside(collect())) > 10
