"""Validation and test loss: loss and accuracies on held-out text, always the same samples with the same masks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.dataset.feed import Feed
from meristem.distributed.process_group import DistributedContext
from meristem.interfaces.backbone import State
from meristem.interfaces.objective import Outcome
from meristem.learning.inference_options import forward_precision
from meristem.learning.learner import Learner
from meristem.metrics import roc_auc

TOKEN_TERMS = ("clm", "mlm", "mntp", "seq2seq", "denoising", "caption")
"""Loss terms that are a mean −log p per token, so that their exp is a perplexity."""
SEED = 0  # evaluation never uses the training seed, so that runs can be compared


@dataclass(kw_only=True)
class HeldOutSums:
    """Sums of an evaluation; `metrics` divides them."""

    weights: dict[str, float]
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    metric_sums: dict[str, tuple[float, float]] = field(default_factory=dict)
    score_histograms: dict[str, Tensor] = field(default_factory=dict)
    bytes_per_token: float | None = None
    """UTF-8 bytes per stored token, for bits per byte."""
    spelling_bits: float | None = 0.0
    """Bits per token to spell out unknown tokens (`dataset/unknown_tokens.py`); None if unknown."""

    def add(self, output: Outcome, counts: Mapping[str, int], *, weight: float = 1.0) -> None:
        """Add the result of one forward pass; a weight of 0 only registers its names."""
        for term, total in output.loss_sums.items():
            self.sums[term] = self.sums.get(term, 0.0) + weight * float(total)
            self.counts[term] = self.counts.get(term, 0.0) + weight * counts.get(term, 0)
        for metric, (total, count) in output.metrics.items():
            previous = self.metric_sums.get(metric, (0.0, 0.0))
            self.metric_sums[metric] = (previous[0] + weight * float(total), previous[1] + weight * float(count))
        for metric, scores in output.score_histograms.items():
            self.score_histograms[metric] = self.score_histograms.get(metric, 0) + scores.cpu() * weight

    def all_reduce(self, process_group: DistributedContext) -> HeldOutSums:
        """Sum over all ranks."""
        if process_group.world_size == 1:
            return self
        histogram_values = [
            value for histogram in self.score_histograms.values() for value in histogram.flatten().tolist()
        ]
        pairs = [value for pair in self.metric_sums.values() for value in pair]
        reduced = iter(
            process_group.all_reduce_sum([*self.sums.values(), *self.counts.values(), *pairs, *histogram_values])
        )
        self.sums = {term: next(reduced) for term in self.sums}
        self.counts = {term: next(reduced) for term in self.counts}
        self.metric_sums = {name: (next(reduced), next(reduced)) for name in self.metric_sums}
        for name, histogram in self.score_histograms.items():
            flat = torch.tensor([next(reduced) for _ in range(histogram.numel())], dtype=torch.float64)
            self.score_histograms[name] = flat.reshape(histogram.shape)
        return self

    def term_means(self) -> dict[str, float]:
        """The mean of each loss term; NaN without predictions."""
        return {term: mean_or_nan(total, self.counts[term]) for term, total in self.sums.items()}

    def losses(self) -> dict[str, float]:
        """The loss, and each term if there are several.

        A term without predictions is NaN, and so is a loss with such a term: it is unknown, not perfect.
        """
        means = self.term_means()
        loss = sum(self.weights[term] * value for term, value in means.items()) if means else math.nan
        return {"loss": loss, **(means if len(means) > 1 else {})}

    def metrics(self) -> dict[str, float]:
        """Losses, perplexity, bits per byte for causal models, accuracies."""
        means, out = self.term_means(), self.losses()
        token_terms = [term for term in TOKEN_TERMS if term in means]
        for term in token_terms:
            name = "perplexity" if len(token_terms) == 1 else f"{term}.perplexity"
            out[name] = math.exp(min(means[term], 700.0))  # min returns a NaN that is its first argument
        if "clm" in means and self.bytes_per_token and self.spelling_bits is not None:
            out["bits_per_byte"] = (means["clm"] / math.log(2) + self.spelling_bits) / self.bytes_per_token
        out.update({name: mean_or_nan(total, count) for name, (total, count) in self.metric_sums.items()})
        out.update({name: roc_auc.roc_auc(counts) for name, counts in self.score_histograms.items()})
        return out


def mean_or_nan(total: float, count: float) -> float:
    """total / count; NaN if the count is 0."""
    return total / count if count else math.nan


@contextmanager
def eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; restores the training mode of each module afterwards.

    What training has compiled runs uncompiled here: another mode and other lengths would be compiled again.
    """
    # frozen modules stay in evaluation mode
    training_modules = [submodule for submodule in module.modules() if submodule.training]
    module.eval()
    try:
        is_compiled = any(submodule._compiled_call_impl is not None for submodule in module.modules())
        with torch.inference_mode(), torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
            yield
    finally:
        for submodule in training_modules:
            submodule.training = True


def evaluate_held_out(
    learner: Learner,
    name: str,
    feed: Feed,
    *,
    max_rows: int | None = None,
    bytes_per_token: float | None = None,
    spelling_bits: float | None = 0.0,
) -> HeldOutSums:
    """Evaluate one source over its first `max_rows` samples, or over all of them; each rank takes its share."""
    num_rows = len(feed.view)
    num_evaluated = num_rows if max_rows is None else min(num_rows, max_rows)
    end = num_evaluated if feed.view.shuffled else num_rows
    held_out_sums = HeldOutSums(
        weights=dict(learner.objectives[name].loss_weights),
        bytes_per_token=bytes_per_token,
        spelling_bits=spelling_bits,
    )
    device = learner.model.device
    states: dict[int, State] = {}  # by micro step: each has its own memory state
    num_tokens = num_evaluated * learner.model.backbone.max_length  # of full rows
    with eval_mode(learner), forward_precision(learner.model, num_tokens):
        for row in range(0, num_evaluated, feed.batch_size):
            for micro in range(feed.micro_steps):
                row_range = feed.row_range(micro)
                num_batch_rows = min(len(row_range), end - row - row_range.start)
                if num_batch_rows <= 0 and feed.distributed.world_size == 1:
                    break
                # a rank without a share runs a row with weight 0, since forward passes must be collective
                counts = num_batch_rows > 0
                first, num_batch_rows = (row + row_range.start, num_batch_rows) if counts else (row, 1)
                batch = learner.explore(name, feed.batch_at(first, num_batch_rows).to(device))
                totals = {term: max(1, count) for term, count in batch.target_counts.items()}
                outcome = learner(name, batch, totals, (states.get(micro) or None) if counts else None)
                if counts:
                    states[micro] = outcome.state
                held_out_sums.add(outcome, batch.target_counts, weight=float(counts))
    return held_out_sums.all_reduce(feed.distributed)
