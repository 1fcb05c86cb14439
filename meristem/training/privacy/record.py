"""Privacy record: the noise, sampling rates and steps of a run, from which its spent budget follows; in state.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from meristem.config.errors import MeristemError
from meristem.training.privacy.accountant import AccountantName, SampledSteps, epsilon_of


@dataclass(frozen=True, kw_only=True)
class PrivacyRecord:
    """What a private run has spent so far."""

    delta: float
    accountant: AccountantName
    noise_multiplier: float
    rates: dict[str, float]
    """Source → probability with which a step draws a unit."""
    steps: dict[str, int]
    """Source → steps taken."""
    unit: str
    data: list[str] = field(default_factory=list)
    """Names of the sources or files that are protected."""
    earlier: list[SampledSteps] = field(default_factory=list)
    """Steps of the runs that this one started from, on the same data."""

    def spent(self) -> list[SampledSteps]:
        """The steps taken, those of earlier runs first."""
        own = [SampledSteps(rate, self.noise_multiplier, self.steps.get(name, 0)) for name, rate in self.rates.items()]
        return [*self.earlier, *own]

    @property
    def epsilon(self) -> float:
        """ε spent so far; a source counts as if each of its documents could also be in all others."""
        return epsilon_of(self.accountant, self.spent(), self.delta)

    def after(self, steps: Mapping[str, int]) -> PrivacyRecord:
        """The record of a run with so many steps of each source."""
        return replace(self, steps=dict(steps))

    def describe(self) -> str:
        """The guarantee in one line."""
        return (
            f"ε = {self.epsilon:.4g} at δ = {self.delta:g} for each {self.unit} "
            f"(noise multiplier {self.noise_multiplier:.4g}, {self.accountant} accountant, Poisson sampling)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> PrivacyRecord:
        """The record from JSON data of a file that may have been changed."""
        try:
            earlier = [SampledSteps(float(s["sampling_rate"]), float(s["noise_multiplier"]), int(s["count"]))
                       for s in saved["earlier"]]  # fmt: skip
            record = cls(
                delta=float(saved["delta"]),
                accountant=saved["accountant"],
                noise_multiplier=float(saved["noise_multiplier"]),
                rates={str(name): float(rate) for name, rate in saved["rates"].items()},
                steps={str(name): int(count) for name, count in saved["steps"].items()},
                unit=str(saved["unit"]),
                data=[str(name) for name in saved["data"]],
                earlier=earlier,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise MeristemError("state.json: privacy has an invalid value: the file was changed") from None
        own = [SampledSteps(rate, record.noise_multiplier, 0) for rate in record.rates.values()]
        valid = all(0 < part.sampling_rate <= 1 and 0 < part.noise_multiplier < math.inf for part in (*earlier, *own))
        counts = [*record.steps.values(), *(part.count for part in earlier)]
        if (
            not valid
            or min(counts, default=0) < 0
            or not 0 < record.delta < 1
            or record.accountant not in ("pld", "rdp")
        ):
            raise MeristemError("state.json: privacy has an invalid value: the file was changed")
        return record
