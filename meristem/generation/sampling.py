"""Sampling: uniform random numbers that do not depend on the batch, and inverse transform sampling."""

# B rows, V vocabulary

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from meristem.blocks.multinomial import sample_multinomial
from meristem.config.errors import MeristemError
from meristem.utils.randomness import generator

MIN_TEMPERATURE = 1e-4
"""Below this only the most probable token is chosen, since the logits would overflow."""
Uniforms = Callable[[int], float]
"""Position of a token in its text → the number in [0, 1) that it is sampled with."""


def seeded_uniforms(seed: int, prompt_index: int = 0, copy_index: int = 0) -> Uniforms:
    """The numbers that one text of a call is sampled with: independent of the other prompts and texts of the call."""

    def uniform(position: int) -> float:
        return float(generator(seed, "write", copy_index, position, prompt_index).random())

    return uniform


def most_probable(logits_BV: Tensor) -> Tensor:
    """[B] the token with the highest logit of each row; the first of equal ones."""
    if logits_BV.is_cpu:  # numpy takes a tenth of torch's time for 16 × 8,192 logits
        return torch.from_numpy(logits_BV.numpy().argmax(-1))
    return logits_BV.argmax(-1)


def check_no_nan(logits: Tensor) -> None:
    """Raise an error if a logit is NaN: argmax would choose it, and sampling is undefined."""
    if bool(logits.isnan().any()):
        raise MeristemError(
            "the model's logits are NaN, so it cannot generate: use an older checkpoint, or "
            "train again with a lower train.learning_rate"
        )


def sample_tokens(logits_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """(tokens [B] by inverse transform sampling at the uniform numbers, unnormalized probabilities [B, V])."""
    weights_BV = (logits_BV - logits_BV.amax(1, keepdim=True)).exp_()
    return sample_multinomial(weights_BV.t(), uniform_B.to(logits_BV.device)), weights_BV
