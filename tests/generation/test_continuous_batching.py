"""Continuous batching: sequences that join and leave a batch get the same tokens as alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from meristem.blocks.incremental.transformer_decoder import TransformerIncrementalDecoder
from meristem.generation.cancellation import GenerationCancelled, cancellable
from meristem.generation.continuous_batching import ContinuousBatch, SequenceState, TokenSampler
from meristem.generation.fair_scheduling import FairScheduler, Owner, fair_shares
from meristem.generation.generate import banned_token_ids, generate, generate_from_inputs
from meristem.generation.generated_text import TextStream
from meristem.generation.generation_inputs import build_generation_inputs, collate_inputs
from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.logits_processors import TokenHistory, build_processors, process_logits
from meristem.generation.sampling import SamplingSettings, sample_tokens, seeded_uniforms
from meristem.generation.slot_scheduling import CROWDED_DIVISOR, TURN_TOKENS, FairSlotScheduler, FirstComeScheduler
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", "clm", {}),
    "banded": ("gpt2", "clm", {"attention_window": 3, "attention_window_every": 2}),
    "modern": ("modern", "clm", {"kv_heads": 2}),
    "transformer_xl": ("transformer_xl", "clm", {"memory_length": 12}),
    "transformer": ("transformer", "seq2seq", {}),
    "rnn": ("rnn", "seq2seq", {"heads": None}),
    "xlnet": ("xlnet", "plm", {"memory_length": 8}),
    "captioner": ("captioner", "seq2seq", {"image_size": 8, "patch_size": 4}),
}
IMAGES = [np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8) for number in range(4)]
PROMPTS = ["the old gardener", "my sister sold seventeen boats and a small", "the", "a small garden planted"]
SETTINGS: list[dict[str, Any]] = [
    {"greedy": True, "max_tokens": 9},
    {"seed": 3, "max_tokens": 30, "temperature": 1.5, "top_k": 40},
    {"seed": 4, "max_tokens": 5, "repetition_penalty": 1.3, "min_tokens": 5},
    {"seed": 5, "max_tokens": 14, "top_p": 0.9, "no_repeat_ngram_size": 2},
]
PENALTIES = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_tokens": 6}


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


def prompts_for(model: Model) -> list[Any]:
    """Texts, or images for a captioner."""
    return IMAGES if "image" in model.backbone.capabilities else PROMPTS


def seat(
    model: Model, tokenizer: Tokenizer, prompt: Any, settings: dict[str, Any], copy_index: int = 0, **more: Any
) -> SequenceState:
    chosen, start = SamplingSettings.model_validate(settings), build_generation_inputs(model, tokenizer, prompt)
    banned_ids = banned_token_ids(model, tokenizer, None, start.lm_kind(model))
    return SequenceState(
        start,
        TokenSampler.from_settings(chosen, banned_ids, tokenizer.end),
        seeded_uniforms(chosen.seed or 0, 0, copy_index),
        chosen.max_tokens,
        tokenizer.end,
        TextStream(tokenizer, start.prompt_ids, chosen.stop),
        **more,
    )


def shared(model: Model, max_rows: int = 64) -> ContinuousBatch:
    return ContinuousBatch(model, scheduler=FairSlotScheduler(max_rows))


@torch.inference_mode()
def alone(model: Model, tokenizer: Tokenizer, prompt: Any, settings: dict[str, Any]) -> tuple[int, ...]:
    """One sequence, decoded by itself without the engine."""
    chosen, start = SamplingSettings.model_validate(settings), build_generation_inputs(model, tokenizer, prompt)
    banned_ids = banned_token_ids(model, tokenizer, None, start.lm_kind(model))
    processors, uniforms = build_processors(chosen, banned_ids, tokenizer.end), seeded_uniforms(chosen.seed or 0)
    tokens, sizes, inputs = collate_inputs([start], model.device)
    session, text = DecodeSession(model, tokens, sizes, capacity=99, **inputs), list[int]()
    while len(text) < chosen.max_tokens:
        logits = process_logits(session.logits, [TokenHistory(start.prompt_ids, text)], processors)
        drawn = sample_tokens(logits, torch.tensor([uniforms(len(text))]).double())[0]
        token = logits.argmax(-1) if chosen.greedy else drawn
        if int(token) == tokenizer.end:
            break
        text.append(int(token))
        session.decode_step(token)
    return tuple(text)


def test_a_sequence_gets_the_same_text_whenever_it_joins(model: Model, tokenizer: Tokenizer) -> None:
    pool = shared(model, max_rows=3)  # one has to wait for a place
    seats = [seat(model, tokenizer, *both) for both in zip(prompts_for(model), SETTINGS, strict=True)]
    for one in seats:
        pool.add(one)
        pool.step()
        pool.step()
    while pool.has_work:
        pool.step()
    for one, prompt, settings in zip(seats, prompts_for(model), SETTINGS, strict=True):
        assert tuple(one.token_ids) == alone(model, tokenizer, prompt, settings)
        assert one.finished is not None
        assert sum(one.logprobs) == pytest.approx(sum(token.logprob for token in one.sampled_tokens()))


def test_texts_generated_together_are_those_generated_alone(model: Model, tokenizer: Tokenizer) -> None:
    prompts = [prompts_for(model)[number % 4] for number in range(9)]
    starts = [build_generation_inputs(model, tokenizer, prompt) for prompt in prompts]
    for settings in ({"greedy": True, "max_tokens": 30}, {"greedy": True, "max_tokens": 12, **PENALTIES}):
        texts = generate_from_inputs(model, tokenizer, starts, SamplingSettings.model_validate(settings))
        expected = [alone(model, tokenizer, prompt, settings) for prompt in prompts[:4]]
        assert [text.tokens for (text,) in texts] == [expected[number % 4] for number in range(9)]


def test_one_list_of_sequences_may_have_any_mixture_of_settings(causal: Model, tokenizer: Tokenizer) -> None:
    batch = ContinuousBatch(causal, scheduler=FirstComeScheduler(4))  # refilled as others finish
    mixture = [(prompt, settings) for settings in SETTINGS for prompt in PROMPTS]
    seats = [seat(causal, tokenizer, *both) for both in mixture]
    for one in seats:
        batch.add(one)
    batch.run()
    for one, both in zip(seats, mixture, strict=True):
        assert tuple(one.token_ids) == alone(causal, tokenizer, *both)


def test_copies_of_a_prompt_are_prefilled_once(
    causal: Model, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[tuple[int, ...]]()
    prefill = TransformerIncrementalDecoder.prefill

    def counted(self: Any, tokens: torch.Tensor, *more: Any) -> Any:
        sizes.append(tuple(tokens.shape))
        return prefill(self, tokens, *more)

    monkeypatch.setattr(TransformerIncrementalDecoder, "prefill", counted)
    settings = SamplingSettings(seed=3, max_tokens=4)
    (texts,) = generate(causal, tokenizer, [PROMPTS[0]], settings, count=8)
    assert [rows for rows, _ in sizes] == [1] and len({text.tokens for text in texts}) > 1


def test_an_error_of_a_run_is_raised(causal: Model, tokenizer: Tokenizer) -> None:
    batch, one = ContinuousBatch(causal), seat(causal, tokenizer, PROMPTS[0], {"seed": 1, "max_tokens": 5})
    one.text = Broken(tokenizer, one.inputs.prompt_ids)
    batch.add(one)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        batch.run()


def test_a_text_that_nobody_wants_leaves_before_the_next_token(causal: Model, tokenizer: Tokenizer) -> None:
    wanted = [True]
    pool = shared(causal)
    stays = seat(causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12})
    leaves = seat(causal, tokenizer, PROMPTS[1], {"greedy": True, "max_tokens": 12}, is_wanted=lambda: wanted[0])
    pool.add(leaves)
    pool.add(stays)
    for _ in range(3):
        pool.step()
    written, wanted[0] = len(leaves.logprobs), False
    assert leaves in pool.step()
    assert len(leaves.logprobs) == written
    assert len(pool.active) == 1
    while pool.has_work:
        pool.step()
    assert tuple(stays.token_ids) == alone(causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12})


class Broken(TextStream):
    """A text that breaks whoever writes it down."""

    num_tokens = 0

    def push(self, token_id: int) -> bool:
        self.num_tokens += 1
        if self.num_tokens > 2:
            raise RuntimeError("broken on purpose")
        return super().push(token_id)


def test_only_the_culprit_of_a_failure_fails(causal: Model, tokenizer: Tokenizer) -> None:
    told = {"seed": 1, "max_tokens": 10}
    pool = shared(causal)
    good = [seat(causal, tokenizer, prompt, told) for prompt in PROMPTS[:2]]
    bad = seat(causal, tokenizer, PROMPTS[2], told)
    bad.text = Broken(tokenizer, bad.inputs.prompt_ids)
    for one in (good[0], bad, good[1]):
        pool.add(one)
    while pool.has_work:
        pool.step()
    assert isinstance(bad.error, RuntimeError)
    for one, prompt in zip(good, PROMPTS, strict=False):
        assert one.error is None
        assert tuple(one.token_ids) == alone(causal, tokenizer, prompt, told)


def test_the_likeliest_tokens_of_each_place_are_remembered(causal: Model, tokenizer: Tokenizer) -> None:
    pool, one = (
        shared(causal),
        seat(causal, tokenizer, "the", {"greedy": True, "max_tokens": 4}, top_logprobs=3),
    )
    pool.add(one)
    while pool.has_work:
        pool.step()
    session = DecodeSession(causal, torch.tensor([one.inputs.prompt_ids]), capacity=20)
    for chosen in one.sampled_tokens():
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
    pool = shared(causal, max_rows=4)
    many = [seat(causal, tokenizer, PROMPTS[0], settings, copy_index=n, owner=Owner("many", 1)) for n in range(16)]
    for one in many:
        pool.add(one)
    for _ in range(24):
        pool.step()
    assert len(pool.active) == 4  # alone, a client has every place
    short = seat(causal, tokenizer, PROMPTS[1], {"greedy": True, "max_tokens": 5, "min_tokens": 5},
                 owner=Owner("short", 2))  # fmt: skip
    pool.add(short)
    assert step_until_done(pool, [short]) <= TURN_TOKENS + 5
    before = sum(len(one.logprobs) for one in many)
    for _ in range(24):
        pool.step()
    assert sum(len(one.logprobs) for one in many) == before + 4 * 24  # the places are given back
    together = [list(one.token_ids) for one in many]
    assert sum(bool(tokens) for tokens in together) == 4
    most = max(map(len, together))
    same = SamplingSettings.model_validate(settings | {"max_tokens": most, "min_tokens": most})
    (texts,) = generate(causal, tokenizer, [PROMPTS[0]], same, count=4)
    for tokens, text in zip(together[:4], texts, strict=True):
        assert tokens == list(text.tokens[: len(tokens)])


def test_a_paused_text_is_what_it_is_alone(model: Model, tokenizer: Tokenizer) -> None:
    paused: set[SequenceState] = set()
    pool = shared(model, max_rows=4)  # one place while there are several clients
    settings = {"seed": 5, "max_tokens": 34, "min_tokens": 34, "top_p": 0.9}
    seats = [
        seat(model, tokenizer, prompt, settings, owner=Owner(n, n)) for n, prompt in enumerate(prompts_for(model)[:3])
    ]
    for one in seats:
        pool.add(one)
    while pool.has_work:
        pool.step()
        paused |= set(pool._paused)
    assert paused == set(seats)
    for one, prompt in zip(seats, prompts_for(model), strict=False):
        assert tuple(one.token_ids) == alone(model, tokenizer, prompt, settings)


def test_slots_are_shared_between_clients_before_requests(causal: Model, tokenizer: Tokenizer) -> None:
    settings = {"greedy": True, "max_tokens": 40, "min_tokens": 40}
    pool = shared(causal, max_rows=8 * CROWDED_DIVISOR)  # eight places while there are several clients
    owners = [Owner("many", request) for request in range(6) for _ in range(2)] + [Owner("one", 0)] * 12
    for owner in owners:
        pool.add(seat(causal, tokenizer, PROMPTS[2], settings, owner=owner))
    pool.step()
    counts = Counter(one.owner for one in pool.active)
    assert Counter(one.owner.client for one in pool.active) == {"many": 4, "one": 4}
    assert counts[Owner("one", 0)] == 4 and max(counts[owner] for owner in owners if owner.client == "many") == 1


def test_slots_are_shared_evenly_and_none_is_left_empty() -> None:
    assert fair_shares([100, 1, 100], 9) == [4, 1, 4]
    assert fair_shares([16, 1], 1) == [1, 0]  # what cannot be divided goes to the first
    assert fair_shares([0, 3, 5], 100) == [0, 3, 5]


def test_a_client_that_returns_has_no_claim_for_the_time_it_was_away() -> None:
    shares, busy, owner = FairScheduler(), Owner("busy", 1), Owner("back", 2)
    shares.charge(owner, 1)
    shares.set_active([busy])
    for _ in range(50):
        shares.charge(busy, 10)
        shares.set_active([busy])
    turns = []
    for _ in range(8):
        shares.set_active([busy, owner])
        turns.append(shares.least_served([busy, owner]))
        shares.charge(turns[-1], 10)
    assert Counter(turns) == {busy: 4, owner: 4}
