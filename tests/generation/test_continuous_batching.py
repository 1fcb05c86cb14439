"""Continuous batching: sequences that join and leave a batch get the same tokens as alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from meristem.generation.cancellation import GenerationCancelled, cancellable
from meristem.generation.continuous_batching import CROWDED_DIVISOR, TURN_TOKENS, ContinuousBatch, SequenceState
from meristem.generation.fair_scheduling import FairScheduler, Owner, fair_shares
from meristem.generation.generate import generate
from meristem.generation.generated_text import GeneratedTextBuilder
from meristem.generation.generation_inputs import build_generation_inputs
from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.sampling import SamplingSettings
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", "clm", {}),
    "banded": ("gpt2", "clm", {"attention_window": 3, "attention_window_every": 2}),
    "modern": ("modern", "clm", {"kv_heads": 2}),
    "transformer_xl": ("transformer_xl", "clm", {"memory_length": 12}),
    "transformer": ("transformer", "seq2seq", {}),
    "rnn": ("rnn", "seq2seq", {"heads": None}),
}
PROMPTS = ["the old gardener", "my sister sold seventeen boats and a small", "the", "a small garden planted"]
SETTINGS: list[dict[str, Any]] = [
    {"greedy": True, "max_tokens": 9},
    {"seed": 3, "max_tokens": 30, "temperature": 1.5, "top_k": 40},
    {"seed": 4, "max_tokens": 5, "repetition_penalty": 1.3, "min_tokens": 5},
    {"seed": 5, "max_tokens": 14, "top_p": 0.9, "no_repeat_ngram_size": 2},
]


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, make: Any, tokenizer: Tokenizer) -> Model:
    family, head, more = FAMILIES[request.param]
    if family == "rnn":
        torch.manual_seed(7)
        from meristem.interfaces.backbone import Head
        from meristem.models.rnn import RNN

        told = {"layers": 2, "hidden_size": 32, "max_length": 24}
        return Model(RNN(RNN.Settings.model_validate(told), tokenizer.vocab_size), {head: Head("vocabulary")}).eval()
    return make(family, (head,), tokenizer.vocab_size, **more)  # type: ignore[no-any-return]


def seat(model: Model, tokenizer: Tokenizer, prompt: str, settings: dict[str, Any], **more: Any) -> SequenceState:
    chosen, start = SamplingSettings.model_validate(settings), build_generation_inputs(model, tokenizer, prompt)
    return SequenceState(GeneratedTextBuilder(tokenizer, start.prompt_ids, chosen.stop), start, chosen, **more)


def alone(model: Model, tokenizer: Tokenizer, prompt: str, settings: dict[str, Any]) -> tuple[int, ...]:
    ((one,),) = generate(model, tokenizer, [prompt], SamplingSettings.model_validate(settings))
    return one.tokens


def test_a_sequence_gets_the_same_text_whenever_it_joins(model: Model, tokenizer: Tokenizer) -> None:
    pool = ContinuousBatch(model, tokenizer, max_rows=3)  # one has to wait for a place
    seats = [seat(model, tokenizer, *both) for both in zip(PROMPTS, SETTINGS, strict=True)]
    for one in seats:
        pool.add(one)
        pool.step()
        pool.step()
    while pool.has_work:
        pool.step()
    for one, prompt, settings in zip(seats, PROMPTS, SETTINGS, strict=True):
        assert tuple(one.generated_text.token_ids) == alone(model, tokenizer, prompt, settings)
        assert one.generated_text.finished is not None
        assert one.generated_text.score == pytest.approx(sum(token.logprob for token in one.sampled_tokens))


def test_a_text_that_nobody_wants_leaves_before_the_next_token(causal: Model, tokenizer: Tokenizer) -> None:
    wanted = [True]
    pool = ContinuousBatch(causal, tokenizer)
    stays = seat(causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12})
    leaves = seat(causal, tokenizer, PROMPTS[1], {"greedy": True, "max_tokens": 12}, is_wanted=lambda: wanted[0])
    pool.add(leaves)
    pool.add(stays)
    for _ in range(3):
        pool.step()
    written, wanted[0] = len(leaves.sampled_tokens), False
    assert leaves in pool.step()
    assert len(leaves.sampled_tokens) == written
    assert len(pool) == 1
    while pool.has_work:
        pool.step()
    assert tuple(stays.generated_text.token_ids) == alone(
        causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12}
    )


class Broken(GeneratedTextBuilder):
    """A text that breaks whoever writes it down."""

    def add_token(self, token_id: int, logprob: float, max_new_tokens: int) -> None:
        if len(self.token_ids) == 2:
            raise RuntimeError("broken on purpose")
        super().add_token(token_id, logprob, max_new_tokens)


def test_only_the_culprit_of_a_failure_fails(causal: Model, tokenizer: Tokenizer) -> None:
    told = {"seed": 1, "max_tokens": 10}
    pool = ContinuousBatch(causal, tokenizer)
    good = [seat(causal, tokenizer, prompt, told) for prompt in PROMPTS[:2]]
    bad = seat(causal, tokenizer, PROMPTS[2], told)
    bad.generated_text = Broken(tokenizer, bad.inputs.prompt_ids, ())
    for one in (good[0], bad, good[1]):
        pool.add(one)
    while pool.has_work:
        pool.step()
    assert isinstance(bad.error, RuntimeError)
    for one, prompt in zip(good, PROMPTS, strict=False):
        assert one.error is None
        assert tuple(one.generated_text.token_ids) == alone(causal, tokenizer, prompt, told)


def test_the_likeliest_tokens_of_each_place_are_remembered(causal: Model, tokenizer: Tokenizer) -> None:
    pool, one = (
        ContinuousBatch(causal, tokenizer),
        seat(causal, tokenizer, "the", {"greedy": True, "max_tokens": 4}, top_logprobs=3),
    )
    pool.add(one)
    while pool.has_work:
        pool.step()
    session = DecodeSession(causal, torch.tensor([one.inputs.prompt_ids]), capacity=20)
    for chosen in one.sampled_tokens:
        expected = session.logits.log_softmax(-1)[0]
        assert [token for token, _ in chosen.top] == expected.topk(3).indices.tolist()
        assert [value for _, value in chosen.top] == pytest.approx(expected.topk(3).values.tolist(), abs=1e-4)
        session.decode_step(torch.tensor([chosen.token]))


def test_a_cancelled_search_stops_between_two_tokens(causal: Model, tokenizer: Tokenizer) -> None:
    asked = []

    def wanted() -> bool:
        asked.append(1)
        return len(asked) < 4

    settings = SamplingSettings.model_validate({"beams": 3, "max_tokens": 20, "min_tokens": 20})
    with pytest.raises(GenerationCancelled), cancellable(wanted):
        generate(causal, tokenizer, ["the"], settings)
    assert len(asked) == 4
    assert generate(causal, tokenizer, ["the"], settings)  # nothing is watched any more


# ------------------------------------------------------------ sharing between clients


def step_until_done(pool: ContinuousBatch, seats: list[SequenceState]) -> int:
    """Steps until none of these texts wants another token."""
    steps = 0
    while any(one.is_active for one in seats):
        pool.step()
        steps += 1
        assert steps < 1000, "the pool never finishes these texts"
    return steps


def test_a_short_text_waits_one_turn_of_a_client_with_many_long_ones(causal: Model, tokenizer: Tokenizer) -> None:
    settings = {"seed": 3, "max_tokens": 2000, "min_tokens": 2000}
    pool = ContinuousBatch(causal, tokenizer, max_rows=4)
    many = [seat(causal, tokenizer, PROMPTS[0], settings, copy_index=n, owner=Owner("many", 1)) for n in range(16)]
    for one in many:
        pool.add(one)
    for _ in range(24):
        pool.step()
    assert len(pool) == 4  # alone, a client has every place
    short = seat(causal, tokenizer, PROMPTS[1], {"greedy": True, "max_tokens": 5, "min_tokens": 5},
                 owner=Owner("short", 2))  # fmt: skip
    pool.add(short)
    assert step_until_done(pool, [short]) <= TURN_TOKENS + 5
    before = sum(len(one.sampled_tokens) for one in many)
    for _ in range(24):
        pool.step()
    assert sum(len(one.sampled_tokens) for one in many) == before + 4 * 24  # the places are given back
    together = [list(one.generated_text.token_ids) for one in many]
    assert sum(bool(tokens) for tokens in together) == 4
    most = max(map(len, together))
    same = SamplingSettings.model_validate(settings | {"max_tokens": most, "min_tokens": most})
    (texts,) = generate(causal, tokenizer, [PROMPTS[0]], same, count=4)
    for tokens, text in zip(together[:4], texts, strict=True):
        assert tokens == list(text.tokens[: len(tokens)])


def test_a_paused_text_is_what_it_is_alone(model: Model, tokenizer: Tokenizer) -> None:
    paused: set[SequenceState] = set()
    pool = ContinuousBatch(model, tokenizer, max_rows=4)  # one place while there are several clients
    settings = {"seed": 5, "max_tokens": 34, "min_tokens": 34, "top_p": 0.9}
    seats = [seat(model, tokenizer, prompt, settings, owner=Owner(n, n)) for n, prompt in enumerate(PROMPTS[:3])]
    for one in seats:
        pool.add(one)
    while pool.has_work:
        pool.step()
        paused |= set(pool._paused)
    assert paused == set(seats)
    for one, prompt in zip(seats, PROMPTS, strict=False):
        assert tuple(one.generated_text.token_ids) == alone(model, tokenizer, prompt, settings)


def test_slots_are_shared_between_clients_before_requests(causal: Model, tokenizer: Tokenizer) -> None:
    settings = {"greedy": True, "max_tokens": 40, "min_tokens": 40}
    pool = ContinuousBatch(
        causal, tokenizer, max_rows=8 * CROWDED_DIVISOR
    )  # eight places while there are several clients
    owners = [Owner("many", request) for request in range(6) for _ in range(2)] + [Owner("one", 0)] * 12
    for owner in owners:
        pool.add(seat(causal, tokenizer, PROMPTS[2], settings, owner=owner))
    pool.step()
    places = Counter(one.owner for one in pool._active)
    assert Counter(one.owner.client for one in pool._active) == {"many": 4, "one": 4}
    assert places[Owner("one", 0)] == 4 and max(places[owner] for owner in owners if owner.client == "many") == 1


def test_slots_are_shared_evenly_and_none_is_left_empty() -> None:
    assert fair_shares([100, 1, 100], 9) == [4, 1, 4]
    assert fair_shares([16, 1], 1) == [1, 0]  # what cannot be divided goes to the first
    assert fair_shares([0, 3, 5], 100) == [0, 3, 5]


def test_a_client_that_returns_has_no_claim_for_the_time_it_was_away() -> None:
    shares, busy, back = FairScheduler(), Owner("busy", 1), Owner("back", 2)
    shares.charge(back, 1)
    shares.set_active([busy])
    for _ in range(50):
        shares.charge(busy, 10)
        shares.set_active([busy])
    turns = []
    for _ in range(8):
        shares.set_active([busy, back])
        turns.append(shares.least_served([busy, back]))
        shares.charge(turns[-1], 10)
    assert Counter(turns) == {busy: 4, back: 4}
