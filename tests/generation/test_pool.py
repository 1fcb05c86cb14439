"""Texts that join and leave a pool are what they are alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meristem.batch import Model
from meristem.generation.given import given
from meristem.generation.pool import Pool, Seat
from meristem.generation.sampling import SamplingSettings
from meristem.generation.session import Session
from meristem.generation.watching import Abandoned, watched
from meristem.generation.write import write
from meristem.generation.written import Writing
from meristem.tokenizers.tokenizer import Tokenizer

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", "clm", {}),
    "banded": ("gpt2", "clm", {"window": 3, "window_every": 2}),
    "modern": ("modern", "clm", {"groups": 2}),
    "transformer_xl": ("transformer_xl", "clm", {"memory": 12}),
    "transformer": ("transformer", "seq2seq", {}),
    "rnn": ("rnn", "seq2seq", {"heads": None}),
}
PROMPTS = ["the old gardener", "my sister sold seventeen boats and a small", "the", "a small garden planted"]
SETTINGS: list[dict[str, Any]] = [
    {"greedy": True, "max_tokens": 9},
    {"seed": 3, "max_tokens": 30, "temperature": 1.5, "top_k": 40},
    {"seed": 4, "max_tokens": 5, "repetition_penalty": 1.3, "min_tokens": 5},
    {"seed": 5, "max_tokens": 14, "top_p": 0.9, "no_repeat": 2},
]


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, make: Any, tokenizer: Tokenizer) -> Model:
    family, head, more = FAMILIES[request.param]
    if family == "rnn":
        torch.manual_seed(7)
        from meristem.batch import Head
        from meristem.models.rnn import RNN

        told = {"layers": 2, "width": 32, "length": 24}
        return Model(RNN(RNN.Settings.model_validate(told), tokenizer.size), {head: Head("vocabulary")}).eval()
    return make(family, (head,), tokenizer.size, **more)  # type: ignore[no-any-return]


def seat(model: Model, tokenizer: Tokenizer, prompt: str, settings: dict[str, Any], **more: Any) -> Seat:
    chosen, start = SamplingSettings.model_validate(settings), given(model, tokenizer, prompt)
    return Seat(Writing(tokenizer, start.prompt, chosen.stop), start, chosen, **more)


def alone(model: Model, tokenizer: Tokenizer, prompt: str, settings: dict[str, Any]) -> tuple[int, ...]:
    ((one,),) = write(model, tokenizer, [prompt], SamplingSettings.model_validate(settings))
    return one.tokens


def test_whoever_joins_whenever_writes_what_it_writes_alone(model: Model, tokenizer: Tokenizer) -> None:
    pool = Pool(model, tokenizer, rows=3)  # one has to wait for a place
    seats = [seat(model, tokenizer, *both) for both in zip(PROMPTS, SETTINGS, strict=True)]
    for one in seats:
        pool.add(one)
        pool.step()
        pool.step()
    while pool.busy:
        pool.step()
    for one, prompt, settings in zip(seats, PROMPTS, SETTINGS, strict=True):
        assert tuple(one.writing.tokens) == alone(model, tokenizer, prompt, settings)
        assert one.writing.finished is not None
        assert one.writing.score == pytest.approx(sum(token.logprob for token in one.chosen))


def test_a_text_that_nobody_wants_leaves_before_the_next_token(causal: Model, tokenizer: Tokenizer) -> None:
    wanted = [True]
    pool = Pool(causal, tokenizer)
    stays = seat(causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12})
    leaves = seat(causal, tokenizer, PROMPTS[1], {"greedy": True, "max_tokens": 12}, wanted=lambda: wanted[0])
    pool.add(leaves)
    pool.add(stays)
    for _ in range(3):
        pool.step()
    written, wanted[0] = len(leaves.chosen), False
    assert leaves in pool.step()
    assert len(leaves.chosen) == written
    assert len(pool) == 1
    while pool.busy:
        pool.step()
    assert tuple(stays.writing.tokens) == alone(causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12})


class Broken(Writing):
    """A text that breaks whoever writes it down."""

    def push(self, token: int, score: float, most: int) -> None:
        if len(self.tokens) == 2:
            raise RuntimeError("broken on purpose")
        super().push(token, score, most)


def test_only_the_culprit_of_a_failure_fails(causal: Model, tokenizer: Tokenizer) -> None:
    told = {"seed": 1, "max_tokens": 10}
    pool = Pool(causal, tokenizer)
    good = [seat(causal, tokenizer, prompt, told) for prompt in PROMPTS[:2]]
    bad = seat(causal, tokenizer, PROMPTS[2], told)
    bad.writing = Broken(tokenizer, bad.start.prompt, ())
    for one in (good[0], bad, good[1]):
        pool.add(one)
    while pool.busy:
        pool.step()
    assert isinstance(bad.error, RuntimeError)
    for one, prompt in zip(good, PROMPTS, strict=False):
        assert one.error is None
        assert tuple(one.writing.tokens) == alone(causal, tokenizer, prompt, told)


def test_the_likeliest_tokens_of_each_place_are_remembered(causal: Model, tokenizer: Tokenizer) -> None:
    pool, one = Pool(causal, tokenizer), seat(causal, tokenizer, "the", {"greedy": True, "max_tokens": 4}, top=3)
    pool.add(one)
    while pool.busy:
        pool.step()
    session = Session(causal, torch.tensor([one.start.prompt]), capacity=20)
    for chosen in one.chosen:
        expected = session.logits.log_softmax(-1)[0]
        assert [token for token, _ in chosen.top] == expected.topk(3).indices.tolist()
        assert [value for _, value in chosen.top] == pytest.approx(expected.topk(3).values.tolist(), abs=1e-4)
        session.push(torch.tensor([chosen.token]))


def test_a_search_that_is_watched_stops_between_two_tokens(causal: Model, tokenizer: Tokenizer) -> None:
    asked = []

    def wanted() -> bool:
        asked.append(1)
        return len(asked) < 4

    settings = SamplingSettings.model_validate({"beams": 3, "max_tokens": 20, "min_tokens": 20})
    with pytest.raises(Abandoned), watched(wanted):
        write(causal, tokenizer, ["the"], settings)
    assert len(asked) == 4
    assert write(causal, tokenizer, ["the"], settings)  # nothing is watched any more
