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
from meristem.generation.sampling import sample_tokens, seeded_uniforms
from meristem.generation.settings import SamplingSettings
from meristem.generation.slot_scheduling import CROWDED_DIVISOR, TURN_TOKENS, FairSlotScheduler, FirstComeScheduler
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", "clm", {}),
    "banded": ("gpt2", "clm", {"attention_window": 3, "attention_window_every": 2}),
    "modern": ("modern", "clm", {"kv_heads": 2}),
    "transformer_xl": ("transformer_xl", "clm", {"memory_length": 12}),
    "mamba": ("mamba", "clm", {}),
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
    family, head, family_settings = FAMILIES[request.param]
    if family == "rnn":
        torch.manual_seed(7)
        from meristem.interfaces.backbone import Head
        from meristem.models.rnn import RNN

        model_settings = {"layers": 2, "hidden_size": 32, "max_length": 24}
        return Model(
            RNN(RNN.Settings.model_validate(model_settings), tokenizer.vocab_size), {head: Head("vocabulary")}
        ).eval()
    return make(family, (head,), tokenizer.vocab_size, **family_settings)  # type: ignore[no-any-return]


def prompts_for(model: Model) -> list[Any]:
    """Texts, or images for a captioner."""
    return IMAGES if "image" in model.backbone.capabilities else PROMPTS


def make_sequence(
    model: Model, tokenizer: Tokenizer, prompt: Any, settings: dict[str, Any], copy_index: int = 0, **options: Any
) -> SequenceState:
    sampling_settings, start = (
        SamplingSettings.model_validate(settings),
        build_generation_inputs(model, tokenizer, prompt),
    )
    banned_ids = banned_token_ids(model, tokenizer, None, start.lm_kind(model))
    return SequenceState(
        start,
        TokenSampler.from_settings(sampling_settings, banned_ids, tokenizer.end),
        seeded_uniforms(sampling_settings.seed or 0, 0, copy_index),
        sampling_settings.max_tokens,
        tokenizer.end,
        TextStream(tokenizer, start.prompt_ids, sampling_settings.stop),
        **options,
    )


def shared(model: Model, max_rows: int = 64) -> ContinuousBatch:
    return ContinuousBatch(model, scheduler=FairSlotScheduler(max_rows))


@torch.inference_mode()
def generate_alone(model: Model, tokenizer: Tokenizer, prompt: Any, settings: dict[str, Any]) -> tuple[int, ...]:
    """One sequence, decoded by itself without the engine."""
    sampling_settings, start = (
        SamplingSettings.model_validate(settings),
        build_generation_inputs(model, tokenizer, prompt),
    )
    banned_ids = banned_token_ids(model, tokenizer, None, start.lm_kind(model))
    processors, uniforms = (
        build_processors(sampling_settings, banned_ids, tokenizer.end),
        seeded_uniforms(sampling_settings.seed or 0),
    )
    tokens, sizes, inputs = collate_inputs([start], model.device)
    session, text = DecodeSession(model, tokens, sizes, capacity=99, **inputs), list[int]()
    while len(text) < sampling_settings.max_tokens:
        logits = process_logits(session.logits, [TokenHistory(start.prompt_ids, text)], processors)
        sampled = sample_tokens(logits, torch.tensor([uniforms(len(text))]).double())[0]
        token = logits.argmax(-1) if sampling_settings.greedy else sampled
        if int(token) == tokenizer.end:
            break
        text.append(int(token))
        session.decode_step(token)
    return tuple(text)


def test_a_sequence_gets_the_same_text_whenever_it_joins(model: Model, tokenizer: Tokenizer) -> None:
    decode_batch = shared(model, max_rows=3)  # one has to wait for a place
    sequence_states = [
        make_sequence(model, tokenizer, *prompt_and_settings)
        for prompt_and_settings in zip(prompts_for(model), SETTINGS, strict=True)
    ]
    for sequence_state in sequence_states:
        decode_batch.add(sequence_state)
        decode_batch.step()
        decode_batch.step()
    while decode_batch.has_work:
        decode_batch.step()
    for sequence_state, prompt, settings in zip(sequence_states, prompts_for(model), SETTINGS, strict=True):
        assert tuple(sequence_state.token_ids) == generate_alone(model, tokenizer, prompt, settings)
        assert sequence_state.finished is not None
        assert sum(sequence_state.logprobs) == pytest.approx(
            sum(token.logprob for token in sequence_state.sampled_tokens())
        )


def test_texts_generated_together_are_those_generated_alone(model: Model, tokenizer: Tokenizer) -> None:
    prompts = [prompts_for(model)[number % 4] for number in range(9)]
    starts = [build_generation_inputs(model, tokenizer, prompt) for prompt in prompts]
    for settings in ({"greedy": True, "max_tokens": 30}, {"greedy": True, "max_tokens": 12, **PENALTIES}):
        texts = generate_from_inputs(model, tokenizer, starts, SamplingSettings.model_validate(settings))
        expected = [generate_alone(model, tokenizer, prompt, settings) for prompt in prompts[:4]]
        assert [text.tokens for (text,) in texts] == [expected[number % 4] for number in range(9)]


def test_one_list_of_sequences_may_have_any_mixture_of_settings(causal: Model, tokenizer: Tokenizer) -> None:
    batch = ContinuousBatch(causal, scheduler=FirstComeScheduler(4))  # refilled as others finish
    mixture = [(prompt, settings) for settings in SETTINGS for prompt in PROMPTS]
    sequence_states = [make_sequence(causal, tokenizer, *pair) for pair in mixture]
    for sequence_state in sequence_states:
        batch.add(sequence_state)
    batch.run()
    for sequence_state, prompt_and_settings in zip(sequence_states, mixture, strict=True):
        assert tuple(sequence_state.token_ids) == generate_alone(causal, tokenizer, *prompt_and_settings)


def test_copies_of_a_prompt_are_prefilled_once(
    causal: Model, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[tuple[int, ...]]()
    prefill = TransformerIncrementalDecoder.prefill

    def counted(self: Any, tokens: torch.Tensor, *prefill_arguments: Any) -> Any:
        sizes.append(tuple(tokens.shape))
        return prefill(self, tokens, *prefill_arguments)

    monkeypatch.setattr(TransformerIncrementalDecoder, "prefill", counted)
    settings = SamplingSettings(seed=3, max_tokens=4)
    (texts,) = generate(causal, tokenizer, [PROMPTS[0]], settings, count=8)
    assert [rows for rows, _ in sizes] == [1] and len({text.tokens for text in texts}) > 1


def test_an_error_of_a_run_is_raised(causal: Model, tokenizer: Tokenizer) -> None:
    batch, sequence_state = (
        ContinuousBatch(causal),
        make_sequence(causal, tokenizer, PROMPTS[0], {"seed": 1, "max_tokens": 5}),
    )
    sequence_state.text = Broken(tokenizer, sequence_state.inputs.prompt_ids)
    batch.add(sequence_state)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        batch.run()


def test_a_text_that_nobody_wants_leaves_before_the_next_token(causal: Model, tokenizer: Tokenizer) -> None:
    still_wanted = [True]
    decode_batch = shared(causal)
    stays = make_sequence(causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12})
    leaves = make_sequence(
        causal, tokenizer, PROMPTS[1], {"greedy": True, "max_tokens": 12}, is_wanted=lambda: still_wanted[0]
    )
    decode_batch.add(leaves)
    decode_batch.add(stays)
    for _ in range(3):
        decode_batch.step()
    num_generated, still_wanted[0] = len(leaves.logprobs), False
    assert leaves in decode_batch.step()
    assert len(leaves.logprobs) == num_generated
    assert len(decode_batch.active) == 1
    while decode_batch.has_work:
        decode_batch.step()
    assert tuple(stays.token_ids) == generate_alone(causal, tokenizer, PROMPTS[0], {"greedy": True, "max_tokens": 12})


class Broken(TextStream):
    """A text that breaks whoever writes it down."""

    num_tokens = 0

    def push(self, token_id: int) -> bool:
        self.num_tokens += 1
        if self.num_tokens > 2:
            raise RuntimeError("broken on purpose")
        return super().push(token_id)


def test_only_the_culprit_of_a_failure_fails(causal: Model, tokenizer: Tokenizer) -> None:
    settings = {"seed": 1, "max_tokens": 10}
    decode_batch = shared(causal)
    good = [make_sequence(causal, tokenizer, prompt, settings) for prompt in PROMPTS[:2]]
    bad = make_sequence(causal, tokenizer, PROMPTS[2], settings)
    bad.text = Broken(tokenizer, bad.inputs.prompt_ids)
    for sequence_state in (good[0], bad, good[1]):
        decode_batch.add(sequence_state)
    while decode_batch.has_work:
        decode_batch.step()
    assert isinstance(bad.error, RuntimeError)
    for sequence_state, prompt in zip(good, PROMPTS, strict=False):
        assert sequence_state.error is None
        assert tuple(sequence_state.token_ids) == generate_alone(causal, tokenizer, prompt, settings)


def test_the_likeliest_tokens_of_each_place_are_remembered(causal: Model, tokenizer: Tokenizer) -> None:
    decode_batch, sequence_state = (
        shared(causal),
        make_sequence(causal, tokenizer, "the", {"greedy": True, "max_tokens": 4}, top_logprobs=3),
    )
    decode_batch.add(sequence_state)
    while decode_batch.has_work:
        decode_batch.step()
    session = DecodeSession(causal, torch.tensor([sequence_state.inputs.prompt_ids]), capacity=20)
    for sampled in sequence_state.sampled_tokens():
        expected = session.logits.log_softmax(-1)[0]
        assert [token for token, _ in sampled.top] == expected.topk(3).indices.tolist()
        assert [value for _, value in sampled.top] == pytest.approx(expected.topk(3).values.tolist(), abs=1e-4)
        session.decode_step(torch.tensor([sampled.token]))


def test_a_cancelled_search_stops_between_two_tokens(causal: Model, tokenizer: Tokenizer) -> None:
    calls = []

    def is_wanted() -> bool:
        calls.append(1)
        return len(calls) < 4

    settings = SamplingSettings.model_validate({"beams": 3, "max_tokens": 20, "min_tokens": 20})
    with pytest.raises(GenerationCancelled), cancellable(is_wanted):
        generate(causal, tokenizer, ["the"], settings)
    assert len(calls) == 4
    assert generate(causal, tokenizer, ["the"], settings)  # nothing is watched any more


# ------------------------------------------------------------ sharing between clients


def step_until_done(decode_batch: ContinuousBatch, sequence_states: list[SequenceState]) -> int:
    """Steps until none of these texts wants another token."""
    steps = 0
    while any(sequence_state.is_active for sequence_state in sequence_states):
        decode_batch.step()
        steps += 1
        assert steps < 1000, "the pool never finishes these texts"
    return steps


def test_a_short_text_waits_one_turn_of_a_client_with_many_long_ones(causal: Model, tokenizer: Tokenizer) -> None:
    settings = {"seed": 3, "max_tokens": 2000, "min_tokens": 2000}
    decode_batch = shared(causal, max_rows=4)
    long_sequences = [
        make_sequence(causal, tokenizer, PROMPTS[0], settings, copy_index=n, owner=Owner("many", 1)) for n in range(16)
    ]
    for sequence_state in long_sequences:
        decode_batch.add(sequence_state)
    for _ in range(24):
        decode_batch.step()
    assert len(decode_batch.active) == 4  # alone, a client has every place
    short = make_sequence(causal, tokenizer, PROMPTS[1], {"greedy": True, "max_tokens": 5, "min_tokens": 5},
                 owner=Owner("short", 2))  # fmt: skip
    decode_batch.add(short)
    assert step_until_done(decode_batch, [short]) <= TURN_TOKENS + 5
    before = sum(len(state.logprobs) for state in long_sequences)
    for _ in range(24):
        decode_batch.step()
    assert sum(len(state.logprobs) for state in long_sequences) == before + 4 * 24  # the places are given back
    token_lists = [list(state.token_ids) for state in long_sequences]
    assert sum(bool(tokens) for tokens in token_lists) == 4
    max_tokens = max(map(len, token_lists))
    sampling_settings = SamplingSettings.model_validate(settings | {"max_tokens": max_tokens, "min_tokens": max_tokens})
    (texts,) = generate(causal, tokenizer, [PROMPTS[0]], sampling_settings, count=4)
    for tokens, text in zip(token_lists[:4], texts, strict=True):
        assert tokens == list(text.tokens[: len(tokens)])


def test_a_paused_text_is_what_it_is_alone(model: Model, tokenizer: Tokenizer) -> None:
    paused: set[SequenceState] = set()
    decode_batch = shared(model, max_rows=4)  # one place while there are several clients
    settings = {"seed": 5, "max_tokens": 34, "min_tokens": 34, "top_p": 0.9}
    sequence_states = [
        make_sequence(model, tokenizer, prompt, settings, owner=Owner(n, n))
        for n, prompt in enumerate(prompts_for(model)[:3])
    ]
    for sequence_state in sequence_states:
        decode_batch.add(sequence_state)
    while decode_batch.has_work:
        decode_batch.step()
        paused |= set(decode_batch._paused)
    assert paused == set(sequence_states)
    for sequence_state, prompt in zip(sequence_states, prompts_for(model), strict=False):
        assert tuple(sequence_state.token_ids) == generate_alone(model, tokenizer, prompt, settings)


def test_slots_are_shared_between_clients_before_requests(causal: Model, tokenizer: Tokenizer) -> None:
    settings = {"greedy": True, "max_tokens": 40, "min_tokens": 40}
    decode_batch = shared(causal, max_rows=8 * CROWDED_DIVISOR)  # eight places while there are several clients
    owners = [Owner("many", request) for request in range(6) for _ in range(2)] + [Owner("one", 0)] * 12
    for owner in owners:
        decode_batch.add(make_sequence(causal, tokenizer, PROMPTS[2], settings, owner=owner))
    decode_batch.step()
    counts = Counter(sequence_state.owner for sequence_state in decode_batch.active)
    assert Counter(sequence_state.owner.client for sequence_state in decode_batch.active) == {"many": 4, "one": 4}
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
