"""The result of an exposure measurement: what `exposure.json` holds and `meristem.exposure` returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from meristem.corpus.report.advice import Advice
from meristem.trust.exposure.canary_exposure import CanaryExposure, ExposureLevel, TemplateFit
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.extraction import Extraction
from meristem.trust.exposure.membership import Membership
from meristem.trust.exposure.rank_exposure import EXPECTED_UNSEEN_BITS
from meristem.utils.result_tables import Record, Tabular

EXACT_KINDS = ("causal", "permutation", "source")
"""Kinds of language model whose log-probabilities are exact; those of the others are pseudo-log-likelihoods or means
of two directions."""


@dataclass(frozen=True, kw_only=True)
class CheckpointExposure:
    """Mean exposure by number of repeats at one checkpoint."""

    step: int
    levels: tuple[ExposureLevel, ...]


@dataclass(frozen=True, kw_only=True)
class ExposureReport(Tabular):
    """What a run gives away of its training text."""

    run: str
    step: int
    kind: str
    """The kind of language model that scores the canaries."""
    epochs: float
    """How often the training text was read."""
    levels: tuple[ExposureLevel, ...]
    """By number of repeats; empty without canaries."""
    control: ExposureLevel | None
    """Texts that were never planted."""
    canaries: tuple[CanaryExposure, ...]
    controls: tuple[CanaryExposure, ...]
    fits: tuple[TemplateFit, ...]
    checkpoints: tuple[CheckpointExposure, ...]
    """Earlier checkpoints and this one, by step; empty if the run kept no other."""
    extraction: tuple[Extraction, ...]
    membership: tuple[Membership, ...]
    notes: tuple[str, ...]
    """What was not measured, and why."""
    options: ExposureOptions
    advice: tuple[Advice, ...] = ()

    def with_advice(self, advice: list[Advice]) -> ExposureReport:
        """The same report with advice that follows from it."""
        return replace(self, advice=tuple(advice))

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary for JSON, with the expected exposure of texts that the model never saw."""
        return {**asdict(self), "expected_unseen_bits": EXPECTED_UNSEEN_BITS, "exact": self.kind in EXACT_KINDS}

    def records(self) -> list[Record]:
        """One row per number of repeats, never planted ones first."""
        levels = [*([self.control] if self.control else []), *self.levels]
        return [
            {
                "repeats": level.repeats,
                "canaries": level.canaries,
                "exposure": level.mean_bits,
                "low": level.interval[0],
                "high": level.interval[1],
                "extracted": level.extracted,
            }
            for level in levels
        ]

    def __repr__(self) -> str:
        bits = ", ".join(f"{level.repeats}×: {level.mean_bits:.1f}" for level in self.levels)
        return f"ExposureReport({self.run}, step {self.step:,}: {f'bits {bits}' if bits else 'no canaries'})"
