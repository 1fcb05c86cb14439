"""Sampling and logits processors: distributions, seeds, top-k, top-p, repetition penalty, n-gram blocking."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from meristem.generation.generate import generate
from meristem.generation.logits_processors import (
    TokenHistory,
    ban_early_end,
    ban_repeated_ngrams,
    ban_tokens,
    build_processors,
    keep_top_k,
    keep_top_p,
    penalize_repetition,
    process_logits,
)
from meristem.generation.sampling import sample_tokens, seeded_uniforms
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

LOGITS = torch.tensor([[0.5, 2.0, -1.0, 1.0, 0.0]])
CRITICAL = 23.5  # chi-square with 4 degrees of freedom: 1 in 10,000


def allowed(logits: torch.Tensor) -> list[int]:
    return torch.nonzero(logits[0] > -torch.inf)[:, 0].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    number = 5_000
    processors = build_processors(SamplingSettings(temperature=temperature), [], None)
    numbers = torch.tensor([seeded_uniforms(3, copy_index=copy)(0) for copy in range(number)]).double()
    sampled = sample_tokens(process_logits(LOGITS.expand(number, -1), [], processors), numbers)[0].numpy()
    expected = (LOGITS[0].double() / temperature).softmax(-1).numpy() * number
    observed = np.bincount(sampled, minlength=5)
    assert ((observed - expected) ** 2 / expected).sum() < CRITICAL


def test_draws_of_positions_copies_and_prompts_are_independent() -> None:
    def correlation(first: list[float], second: list[float]) -> float:
        return abs(float(np.corrcoef(first, second)[0, 1]))

    number = 2_000
    plain = [seeded_uniforms(1, 0, copy)(0) for copy in range(number)]
    assert correlation(plain, [seeded_uniforms(1, 0, copy)(1) for copy in range(number)]) < 0.09
    for prompt in (1, 2, 77):
        assert correlation(plain, [seeded_uniforms(1, prompt, copy)(0) for copy in range(number)]) < 0.09
    all_uniforms = [
        seeded_uniforms(1, prompt, copy)(index) for prompt in range(9) for copy in range(9) for index in range(9)
    ]
    assert len(set(all_uniforms)) == 9**3
    counts = np.histogram(all_uniforms, 8, (0, 1))[0]
    assert ((counts - 9**3 / 8) ** 2 / (9**3 / 8)).sum() < 29.9  # chi-square with 7 degrees of freedom: 1 in 10,000


def test_the_first_prompt_draws_what_it_always_drew() -> None:
    expected = [0.7176558081818095, 0.8290595742368484, 0.9852702419968804]
    assert [
        seeded_uniforms(3, 0, copy)(copy_and_index) for copy, copy_and_index in ((0, 0), (0, 5), (2, 1))
    ] == expected


def test_prompts_of_one_call_share_no_draws(causal: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=12, seed=1)
    texts = [text.tokens for (text,) in generate(causal, tokenizer, ["The old"] * 6, settings)]
    assert len(set(texts)) == 6
    assert texts == [text.tokens for (text,) in generate(causal, tokenizer, ["The old"] * 6, settings)]
    (copies,) = generate(causal, tokenizer, ["The old"], settings, count=6)
    assert copies[0].tokens == texts[0] and not {text.tokens for text in copies[1:]} & set(texts)


def test_without_a_seed_every_call_draws_anew_and_returns_its_seed(causal: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=12)
    calls = [generate(causal, tokenizer, ["The old", "My sister"], settings) for _ in range(4)]
    assert len({text.tokens for call in calls for (text,) in call}) == 8
    for call in calls:
        ((first,), (second,)) = call
        assert first.seed is not None and first.seed == second.seed
        assert (
            generate(causal, tokenizer, ["The old", "My sister"], settings.model_copy(update={"seed": first.seed}))
            == call
        )
    assert len({call[0][0].seed for call in calls}) == 4
    ((greedy,),) = generate(causal, tokenizer, ["The old"], SamplingSettings(max_tokens=2, greedy=True, seed=4))
    assert greedy.seed is None, "greedy decoding draws nothing"


def test_top_k_keeps_exactly_the_highest() -> None:
    assert allowed(keep_top_k(LOGITS, [], k=2)) == [1, 3]
    assert allowed(keep_top_k(LOGITS, [], k=99)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("p", [5e-324, 0.05, 0.3, 0.56, 0.6, 0.8, 0.9, 0.97, 1.0])
def test_top_p_keeps_the_fewest_that_reach_it(p: float) -> None:
    probabilities = LOGITS[0].softmax(-1)
    order = probabilities.argsort(descending=True).tolist()
    expected_ids: list[int] = []
    while sum(float(probabilities[token]) for token in expected_ids) < p and len(expected_ids) < 5:
        expected_ids.append(order[len(expected_ids)])
    assert allowed(keep_top_p(LOGITS, [], p=p)) == sorted(expected_ids)


def test_nothing_outside_the_allowed_is_drawn_even_at_the_edges() -> None:
    logits = keep_top_k(LOGITS, [], k=2).expand(3, -1)
    edges = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert sample_tokens(logits, edges)[0].tolist() == [1, 1, 3]
    first_only = ban_tokens(LOGITS, [], ids=torch.tensor([1, 2, 3, 4])).expand(3, -1)
    assert sample_tokens(first_only, edges)[0].tolist() == [0, 0, 0]


def test_repetition_penalty_lowers_seen_tokens_on_either_side_of_zero() -> None:
    logits = LOGITS.expand(2, -1)
    changed = penalize_repetition(logits, [TokenHistory([1], [2, 2]), TokenHistory([3])], penalty=2.0)
    assert changed.tolist() == [[0.5, 1.0, -2.0, 1.0, 0.0], [0.5, 2.0, -1.0, 0.5, 0.0]]
    assert LOGITS[0, 1] == 2.0


def test_the_end_is_banned_in_texts_that_are_too_short() -> None:
    texts = [TokenHistory([4], [1]), TokenHistory([4, 4, 4], [])]
    changed = ban_early_end(LOGITS.expand(2, -1), texts, min_tokens=1, end_id=3)
    assert changed[0].tolist() == LOGITS[0].tolist() and allowed(changed[1:]) == [0, 1, 2, 4]


def test_what_a_setting_does_not_change_has_no_processor() -> None:
    assert build_processors(SamplingSettings(top_p=1.0), [], 3) == ()
    filters = {"temperature": 0.5, "top_k": 3, "top_p": 0.9}
    assert len(build_processors(SamplingSettings(**filters), [], None)) == 3
    for deterministic in ({"greedy": True}, {"beams": 2}):
        assert build_processors(SamplingSettings.model_validate({**filters, **deterministic}), [], None) == ()


def test_no_run_of_tokens_is_written_twice() -> None:
    text = [1, 2, 3, 1, 2]
    logits = torch.zeros(2, 5)
    texts = [TokenHistory([3, 0], text), TokenHistory([], [4])]
    assert allowed(ban_repeated_ngrams(logits, texts, ngram_size=3)) == [0, 1, 2, 4]  # 1 2 3 stands there
    assert allowed(ban_repeated_ngrams(logits, texts, ngram_size=2)) == [0, 1, 2, 4]  # 2 3 does too
    assert allowed(ban_repeated_ngrams(logits, texts, ngram_size=1)) == [0, 4]
    assert torch.equal(ban_repeated_ngrams(logits, texts, ngram_size=3)[1], logits[1])  # too short to repeat anything
    assert torch.equal(logits, torch.zeros(2, 5))


def test_a_temperature_of_zero_is_greedy_decoding() -> None:
    settings = SamplingSettings.model_validate({"temperature": 0})
    assert settings == SamplingSettings(greedy=True) and not settings.is_sampled
    with pytest.raises(ValidationError, match="greater than 0"):
        SamplingSettings.model_validate({"temperature": -0.1})


@pytest.mark.parametrize("temperature", [1e-4, 1e-40, 1e-300])
def test_the_coldest_temperatures_draw_the_likeliest(temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.5], [-50.0, 40.0, 39.0]])
    processors = build_processors(SamplingSettings.model_validate({"temperature": temperature}), [], None)
    numbers = torch.tensor([0.3, 0.99]).double()
    assert sample_tokens(process_logits(logits, [], processors), numbers)[0].tolist() == [1, 1]
