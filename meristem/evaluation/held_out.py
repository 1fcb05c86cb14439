"""Loss and accuracies on held-out text: always the same samples, hidden the same way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.batch import State
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.metrics import ranking

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

    def metrics(self) -> dict[str, float]:
        """loss, each term, perplexity of the words, bits per byte where every token is predicted, accuracies."""
        means = {term: self.sums[term] / max(1.0, self.counts[term]) for term in self.sums}
        out = {"loss": sum(self.weights[term] * value for term, value in means.items())}
        if len(means) > 1:
            out.update(means)
        for term in ("clm", "mlm", "seq2seq", "denoising", "caption"):
            if term in means:
                out["perplexity"] = math.exp(min(means[term], 700.0))
        if "clm" in means and self.bytes_per_token:
            out["bits_per_byte"] = means["clm"] / math.log(2) / self.bytes_per_token
        out.update({name: total / max(1.0, number) for name, (total, number) in self.extra.items()})
        out.update({name: ranking.area(counts) for name, counts in self.scored.items()})
        return out


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
    learner: Learner, name: str, feed: Feed, *, rows: int | None = None, bytes_per_token: float | None = None
) -> HeldOut:
    """Evaluate one source over its first `rows` samples, or over all of them."""
    size = len(feed.view)
    wanted = size if rows is None else min(size, rows)
    found = HeldOut(weights=dict(learner.objectives[name].weights), bytes_per_token=bytes_per_token)
    device = learner.model.device
    states: dict[int, State] = {}  # by pass within a step: each goes on with its own lanes
    with resting(learner):
        for first in (use + micro for use in range(0, wanted, feed.rows) for micro in range(0, feed.rows, feed.micro)):
            lane = first % feed.rows
            number = min(feed.micro, feed.rows - lane, (wanted if feed.view.shuffled else size) - first)
            if number <= 0:
                break
            batch = learner.explore(name, feed.at(first, number).to(device))
            outcome = learner(
                name, batch, {term: max(1, n) for term, n in batch.counts.items()}, states.get(lane) or None
            )
            states[lane] = outcome.state
            for term, total in outcome.sums.items():
                found.sums[term] = found.sums.get(term, 0.0) + float(total)
                found.counts[term] = found.counts.get(term, 0.0) + batch.counts[term]
            for metric, (total, counted) in outcome.metrics.items():
                before = found.extra.get(metric, (0.0, 0.0))
                found.extra[metric] = (before[0] + float(total), before[1] + float(counted))
            for metric, counts in outcome.scored.items():
                found.scored[metric] = found.scored.get(metric, 0) + counts.cpu()
    return found
