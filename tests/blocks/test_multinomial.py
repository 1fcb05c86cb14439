from __future__ import annotations

import pytest
import torch

from meristem.blocks.multinomial import sample_multinomial


@pytest.mark.parametrize("words", [1, 2, 3, 15, 16, 17, 37, 1000])
def test_the_token_where_the_cumulative_sum_exceeds_the_uniform(words: int) -> None:
    generator = torch.Generator().manual_seed(words)
    shares = torch.rand(words, 200, generator=generator, dtype=torch.float64) ** 4
    uniform = torch.rand(200, generator=generator, dtype=torch.float64)
    running = shares.cumsum(0)
    plain = (running <= uniform * running[-1]).sum(0)
    assert torch.equal(sample_multinomial(shares, uniform), plain)
    assert torch.equal(sample_multinomial(shares.t().contiguous().t(), uniform), plain)


def test_tokens_are_sampled_in_proportion_to_their_weight() -> None:
    generator = torch.Generator().manual_seed(5)
    shares = torch.rand(50, 1, generator=generator) ** 3
    number = 200_000
    counts = sample_multinomial(shares.expand(50, number), torch.rand(number, generator=generator)).bincount(
        minlength=50
    )
    expected = (shares / shares.sum())[:, 0] * number
    assert float(((counts - expected) ** 2 / expected).sum()) < 94  # chi-square with 49 degrees: the 99.99th percentile


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tokens_of_weight_zero_are_never_sampled(dtype: torch.dtype) -> None:
    shares = torch.zeros(37, 6, dtype=dtype)
    shares[20], shares[5, :2], shares[36, 2:4] = 3.0, 1e-3, 1e-3
    uniform = torch.tensor([0.0, 1 - 2**-24] * 3)
    assert sample_multinomial(shares, uniform).tolist() == [5, 20, 20, 36, 20, 20]


def test_a_broken_distribution_still_gives_a_token() -> None:
    """What diverged must be found by the loss, not by an index out of range."""
    shares = torch.full((37, 2), torch.nan)
    assert (
        (sample_multinomial(shares, torch.tensor([0.3, 0.9])) >= 0)
        & (sample_multinomial(shares, torch.tensor([0.3, 0.9])) < 37)
    ).all()
