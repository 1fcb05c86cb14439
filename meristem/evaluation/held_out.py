"""Loss and accuracies on held-out text: always the same samples, hidden the same way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.batch import Outcome, State
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.learning.team import Team
from meristem.metrics import ranking

WORD_TERMS = ("clm", "mlm", "seq2seq", "denoising", "caption")
"""Terms that are the mean −log p of a word, so that exp of them is a perplexity."""
SEED = 0  # held-out draws never follow the training seed, so that runs can be compared


@dataclass(kw_only=True)
class HeldOut:
    """What an evaluation found; sums until `metrics` divides them."""

    weights: dict[str, float]
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    extra: dict[str, tuple[float, float]] = field(default_factory=dict)
    scored: dict[str, Tensor] = field(default_factory=dict)
    bytes_per_token: float | None = None
    """UTF-8 bytes behind one stored token, for bits per byte."""
    spelling_bits: float | None = 0.0
    """Bits per token to spell what unknown tokens stand for (`store/unknown.py`); None where that is not known."""

    def add(self, outcome: Outcome, counts: Mapping[str, int], *, weight: float = 1.0) -> None:
        """What one pass found; a weight of 0 only names it."""
        for term, total in outcome.sums.items():
            self.sums[term] = self.sums.get(term, 0.0) + weight * float(total)
            self.counts[term] = self.counts.get(term, 0.0) + weight * counts[term]
        for metric, (total, counted) in outcome.metrics.items():
            before = self.extra.get(metric, (0.0, 0.0))
            self.extra[metric] = (before[0] + weight * float(total), before[1] + weight * float(counted))
        for metric, scores in outcome.scored.items():
            self.scored[metric] = self.scored.get(metric, 0) + scores.cpu() * weight

    def over(self, team: Team) -> HeldOut:
        """The same over all processes."""
        if team.size == 1:
            return self
        scored = [value for scores in self.scored.values() for value in scores.flatten().tolist()]
        pairs = [value for pair in self.extra.values() for value in pair]
        found = iter(team.sum([*self.sums.values(), *self.counts.values(), *pairs, *scored]))
        self.sums = {term: next(found) for term in self.sums}
        self.counts = {term: next(found) for term in self.counts}
        self.extra = {name: (next(found), next(found)) for name in self.extra}
        for name, scores in self.scored.items():
            flat = torch.tensor([next(found) for _ in range(scores.numel())], dtype=torch.float64)
            self.scored[name] = flat.reshape(scores.shape)
        return self

    def metrics(self) -> dict[str, float]:
        """loss, each term, perplexity of the words, bits per byte where every token is predicted, accuracies.

        What nothing was predicted for is NaN, and so is a loss with such a term: it is unknown, not perfect.
        """
        means = {term: mean(self.sums[term], self.counts[term]) for term in self.sums}
        out = {"loss": sum(self.weights[term] * value for term, value in means.items()) if means else math.nan}
        if len(means) > 1:
            out.update(means)
        words = [term for term in WORD_TERMS if term in means]
        for term in words:
            name = "perplexity" if len(words) == 1 else f"{term}.perplexity"
            out[name] = math.exp(min(means[term], 700.0))  # min gives back a NaN that stands first
        if "clm" in means and self.bytes_per_token and self.spelling_bits is not None:
            out["bits_per_byte"] = (means["clm"] / math.log(2) + self.spelling_bits) / self.bytes_per_token
        out.update({name: mean(total, number) for name, (total, number) in self.extra.items()})
        out.update({name: ranking.area(counts) for name, counts in self.scored.items()})
        return out


def mean(total: float, number: float) -> float:
    """total / number; NaN where there is nothing to divide by."""
    return total / number if number else math.nan


@contextmanager
def resting(learner: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradient, and back to what it was."""
    learning = [module for module in learner.modules() if module.training]  # parts that are frozen never do
    learner.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in learning:
            module.training = True


def held_out(
    learner: Learner, name: str, feed: Feed, *, rows: int | None = None, bytes_per_token: float | None = None,
    spelling_bits: float | None = 0.0,
) -> HeldOut:
    """Evaluate one source over its first `rows` samples, or over all of them; every process of a team its share."""
    size = len(feed.view)
    wanted = size if rows is None else min(size, rows)
    end = wanted if feed.view.shuffled else size
    found = HeldOut(weights=dict(learner.objectives[name].weights), bytes_per_token=bytes_per_token,
                    spelling_bits=spelling_bits)
    device = learner.model.device
    states: dict[int, State] = {}  # by pass within a step: each goes on with its own lanes
    with resting(learner):
        for use in range(0, wanted, feed.rows):
            for micro in range(feed.micro_steps):
                lanes = feed.lanes(micro)
                number = min(len(lanes), end - use - lanes.start)
                if number <= 0 and feed.team.size == 1:
                    break
                # a process without a share reads a row that does not count: passes are made together
                first, number, counts = (use + lanes.start, number, True) if number > 0 else (use, 1, False)
                batch = learner.explore(name, feed.at(first, number).to(device))
                totals = {term: max(1, n) for term, n in batch.counts.items()}
                outcome = learner(name, batch, totals, (states.get(micro) or None) if counts else None)
                if counts:
                    states[micro] = outcome.state
                found.add(outcome, batch.counts, weight=float(counts))
    return found.over(feed.team)
