"""Options of an exposure measurement: how many texts of each kind it scores and generates."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class ExposureOptions:
    """Sample sizes and the seed; all of them together decide the result."""

    candidates: int = 1000
    """Random texts of each canary's template that it is ranked among."""
    controls: int = 100
    """Texts that were never planted, whose exposure is measured beside."""
    checkpoint_candidates: int = 200
    """Random texts per template at earlier checkpoints."""
    max_checkpoints: int = 6
    """Earlier checkpoints that are measured, spread evenly over those the run kept."""
    prefixes: int = 200
    """Beginnings of training text that the model continues, and as many of held-out text."""
    samples: int = 4
    """Sampled continuations of each, beside the greedy one."""
    prefix_tokens: int = 32
    continuation_tokens: int = 16
    members: int = 500
    """Passages of training text, and as many of held-out text, for membership inference."""
    passage_tokens: int = 64
    resamples: int = 1000
    """Bootstrap resamples of the intervals."""
    seed: int = 0

    def quick(self) -> ExposureOptions:
        """About a tenth of the work, with wider intervals."""
        return replace(
            self,
            candidates=200,
            controls=40,
            checkpoint_candidates=100,
            max_checkpoints=2,
            prefixes=40,
            samples=2,
            members=100,
            passage_tokens=32,
        )
