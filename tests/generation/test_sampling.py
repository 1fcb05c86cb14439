"""Sampling controls: distributions, top-k, top-p, repetition penalty, temperature, n-gram blocking."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from meristem.generation.sampling import (
    SamplingSettings,
    apply_repetition_penalty,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    ban_repeated_ngrams,
    ban_tokens,
    draw_uniforms,
    sample_from_logits,
    sample_next_tokens,
)

LOGITS = torch.tensor([[0.5, 2.0, -1.0, 1.0, 0.0]])
CRITICAL = 23.5  # chi-square with 4 degrees of freedom: 1 in 10,000


def allowed(logits: torch.Tensor) -> list[int]:
    return torch.nonzero(logits[0] > -torch.inf)[:, 0].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    number = 5_000
    settings = SamplingSettings(temperature=temperature, seed=3)
    drawn = sample_next_tokens(LOGITS.expand(number, -1), settings, range(number), 0).numpy()
    expected = (LOGITS[0].double() / temperature).softmax(-1).numpy() * number
    observed = np.bincount(drawn, minlength=5)
    assert ((observed - expected) ** 2 / expected).sum() < CRITICAL


def test_draws_of_successive_positions_are_independent() -> None:
    at = [torch.cat([draw_uniforms(1, [row], position) for row in range(2_000)]) for position in (0, 1)]
    assert abs(float(torch.corrcoef(torch.stack(at))[0, 1])) < 0.09


def test_top_k_keeps_exactly_the_highest() -> None:
    assert allowed(apply_top_k(LOGITS, 2)) == [1, 3]
    assert allowed(apply_top_k(LOGITS, None)) == allowed(apply_top_k(LOGITS, 99)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("p", [5e-324, 0.05, 0.3, 0.56, 0.6, 0.8, 0.9, 0.97, 1.0])
def test_top_p_keeps_the_fewest_that_reach_it(p: float) -> None:
    probabilities = LOGITS[0].softmax(-1)
    order = probabilities.argsort(descending=True).tolist()
    wanted: list[int] = []
    while sum(float(probabilities[token]) for token in wanted) < p and len(wanted) < 5:
        wanted.append(order[len(wanted)])
    assert allowed(apply_top_p(LOGITS, p)) == sorted(wanted)


def test_nothing_outside_the_allowed_is_drawn_even_at_the_edges() -> None:
    logits = apply_top_k(LOGITS, 2).expand(3, -1)
    edges = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert sample_from_logits(logits, edges).tolist() == [1, 1, 3]
    first_only = ban_tokens(LOGITS, [1, 2, 3, 4]).expand(3, -1)
    assert sample_from_logits(first_only, edges).tolist() == [0, 0, 0]


def test_repetition_penalty_lowers_seen_tokens_on_either_side_of_zero() -> None:
    changed = apply_repetition_penalty(LOGITS, [[1, 2, 2]], 2.0)
    assert changed.tolist() == [[0.5, 1.0, -2.0, 1.0, 0.0]]
    assert LOGITS[0, 1] == 2.0


def test_temperature_one_changes_nothing() -> None:
    assert apply_temperature(LOGITS, 1.0) is LOGITS


def test_greedy_takes_the_best() -> None:
    assert sample_next_tokens(LOGITS, SamplingSettings(greedy=True), [0], 0).tolist() == [1]


def test_no_run_of_tokens_is_written_twice() -> None:
    text = [1, 2, 3, 1, 2]
    logits = torch.zeros(2, 5)
    assert allowed(ban_repeated_ngrams(logits, [text, [4]], 3)) == [0, 1, 2, 4]  # 1 2 3 stands there
    assert allowed(ban_repeated_ngrams(logits, [text, [4]], 2)) == [0, 1, 2, 4]  # 2 3 does too
    assert allowed(ban_repeated_ngrams(logits, [text, [4]], 1)) == [0, 4]
    assert torch.equal(ban_repeated_ngrams(logits, [text, [4]], 3)[1], logits[1])  # too short to repeat anything
    assert torch.equal(ban_repeated_ngrams(logits, [text, [4]], None), logits)


@pytest.mark.parametrize("temperature", [1e-4, 1e-40, 1e-300])
def test_the_coldest_temperatures_draw_the_likeliest(temperature: float) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.5], [-50.0, 40.0, 39.0]])
    settings = SamplingSettings.model_validate({"temperature": temperature})
    assert sample_next_tokens(logits, settings, [0, 1], 0).tolist() == [1, 1]
