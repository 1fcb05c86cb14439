"""Privacy accountant: ε of Poisson-sampled Gaussian steps by dp-accounting, and the noise for a given ε."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from meristem.config.errors import RecipeError
from meristem.utils.optional_packages import require_module

AccountantName = Literal["pld", "rdp"]
PURPOSE, EXTRA, PACKAGE = "train.privacy", "privacy", "dp-accounting"
MAX_NOISE_MULTIPLIER = 1e4
PLD_INTERVAL = 1e-3
"""Discretization of privacy losses: ε is about 0.05 % above that of the default of 1e-4, in a tenth of the time."""
NOISE_TOLERANCE = 1e-3
"""The noise multiplier is this close to the smallest one within the budget, and never below it."""


@dataclass(frozen=True)
class SampledSteps:
    """Steps with the same noise that draw each unit with the same probability."""

    sampling_rate: float
    noise_multiplier: float
    """Standard deviation of the noise, as a multiple of the clipping norm."""
    count: int


def epsilon_of(accountant: AccountantName, steps: Sequence[SampledSteps], delta: float) -> float:
    """ε of these steps together, when a unit is added to the data or removed from it."""
    return _epsilon(accountant, tuple(part for part in steps if part.count), delta)


@lru_cache(maxsize=256)
def _epsilon(accountant: AccountantName, steps: tuple[SampledSteps, ...], delta: float) -> float:
    if not steps:
        return 0.0
    events = require_module("dp_accounting.dp_event", PURPOSE, EXTRA, package=PACKAGE)
    ledger = _new_accountant(accountant)
    for part in steps:
        noise = events.GaussianDpEvent(part.noise_multiplier)
        ledger.compose(events.PoissonSampledDpEvent(part.sampling_rate, noise), part.count)
    return float(ledger.get_epsilon(delta))


def _new_accountant(accountant: AccountantName) -> Any:
    logging.getLogger("absl").setLevel(logging.ERROR)  # orders that do not converge are left out, which is sound
    if accountant == "pld":
        pld = require_module("dp_accounting.pld.pld_privacy_accountant", PURPOSE, EXTRA, package=PACKAGE)
        return pld.PLDAccountant(value_discretization_interval=PLD_INTERVAL)
    rdp = require_module("dp_accounting.rdp.rdp_privacy_accountant", PURPOSE, EXTRA, package=PACKAGE)
    return rdp.RdpAccountant()


def find_noise_multiplier(
    accountant: AccountantName,
    epsilon: float,
    delta: float,
    rates_and_counts: Sequence[tuple[float, int]],
    earlier: Sequence[SampledSteps] = (),
) -> float:
    """The smallest noise multiplier with which these steps, after the earlier ones, stay within (ε, δ)."""

    def spent(noise_multiplier: float) -> float:
        steps = [SampledSteps(rate, noise_multiplier, count) for rate, count in rates_and_counts]
        return epsilon_of(accountant, [*earlier, *steps], delta)

    before = epsilon_of(accountant, earlier, delta)
    if before >= epsilon:
        raise RecipeError(
            f"train.privacy.epsilon: {epsilon:g} is spent: the weights that this run starts from have used "
            f"ε = {before:.4g} on the same data; raise it, or start from other weights"
        )
    low, high = 0.0, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
        if high > MAX_NOISE_MULTIPLIER:
            raise RecipeError(
                f"train.privacy: no amount of noise keeps {sum(count for _, count in rates_and_counts):,} steps within "
                f"ε = {epsilon:g} at δ = {delta:g}; take fewer steps, smaller batches, or a larger budget"
            )
    while high - low > NOISE_TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high
