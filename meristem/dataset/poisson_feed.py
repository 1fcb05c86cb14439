"""Poisson sampling: each step draws each unit with the same probability, apart from all others (for DP-SGD)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from meristem.config.errors import RecipeError
from meristem.dataset.feed import Feed, prepare_sample, sample_tokens
from meristem.dataset.length_buckets import length_batches
from meristem.dataset.unit_rows import UnitView
from meristem.distributed.process_group import DistributedContext
from meristem.inputs.batch import TEXT_INPUTS, Batch, Row, collate
from meristem.interfaces.objective import Objective
from meristem.utils.randomness import generator

MAX_LOGITS = 1 << 26
"""Predictions × vocabulary of a micro-batch at most: their gradients are kept until all norms are known (256 MB)."""


@dataclass(kw_only=True)
class UnitBatch(Batch):
    """A batch of whole units, and each unit as a batch of its own."""

    units: list[Batch]
    row_units: Tensor
    """Row → index of its unit in `units`."""


@dataclass(frozen=True, kw_only=True)
class PoissonFeed(Feed):
    """Batches of random size: step n has the units drawn by (seed, n), `batch_size` of them in the mean.

    The seed is that of sampling and noise, which must be secret for the guarantee to hold.
    """

    max_rows: int = 1
    """Rows of one unit in a step at most."""
    max_tokens: int = 1 << 13
    """Tokens of a micro-batch with padding, unless it is one unit."""
    _latest: dict[int, list[UnitBatch]] = field(default_factory=dict, compare=False)

    @property
    def sampling_rate(self) -> float:
        """Probability with which a step draws a unit."""
        return self.batch_size / len(self.view)

    def step_units(self, source_step: int) -> list[int]:
        """The units of a step over all processes: a binomial number of them, then which ones, is Poisson sampling."""
        rng = generator(self.seed, "poisson sampling", source_step, 0)
        count = int(rng.binomial(len(self.view), self.sampling_rate))
        return sorted(rng.choice(len(self.view), count, replace=False, shuffle=False).tolist())

    def micro_steps_of(self, source_step: int) -> int:
        """Micro-batches of a step in this process; none if no unit was drawn."""
        return len(self._batches(source_step))

    def batch(self, source_step: int, micro_step: int) -> Batch:
        """Micro-batch `micro_step` of a step."""
        return self._batches(source_step)[micro_step]

    def _batches(self, source_step: int) -> list[UnitBatch]:
        if source_step not in self._latest:
            self._latest.clear()
            self._latest[source_step] = self._make_batches(source_step)
        return self._latest[source_step]

    def _make_batches(self, source_step: int) -> list[UnitBatch]:
        units = self.step_units(source_step)
        own = self.distributed.shard_range(len(units))
        rows_by_unit = [rows for unit in units[own.start : own.stop] if (rows := self.unit_rows(source_step, unit))]
        sizes = [max(map(_num_tokens, rows)) * len(rows) for rows in rows_by_unit]
        groups = length_batches(sizes, max_tokens=self.max_tokens)
        return [self.collate_units([rows_by_unit[index] for index in group]) for group in groups]

    def unit_rows(self, source_step: int, unit: int) -> list[Row]:
        """Rows of a unit in this step, prepared; none if the unit is too short."""
        assert isinstance(self.view, UnitView)
        parts = min(self.max_rows, self.view.num_rows(unit))
        if not parts:
            return []
        return prepare_sample(self.view, self.objective, self.seed, source_step, unit, parts)

    def collate_units(self, rows_by_unit: list[list[Row]]) -> UnitBatch:
        """A batch of whole units from the rows of each."""
        rows = [row for unit_rows in rows_by_unit for row in unit_rows]
        batch = collate(rows, self.objective, self.pad_values)
        units = [collate(unit_rows, self.objective, self.pad_values) for unit_rows in rows_by_unit]
        row_units = torch.tensor([number for number, unit_rows in enumerate(rows_by_unit) for _ in unit_rows])
        return UnitBatch(**vars(batch), units=units, row_units=row_units)


def _num_tokens(row: Row) -> int:
    return max((len(row.inputs[key]) for key in TEXT_INPUTS if key in row.inputs), default=1)


def poisson_feed(
    view: UnitView,
    objective: Objective,
    *,
    seed: int,
    units_per_step: int,
    max_rows: int,
    micro_batch_tokens: int | None,
    vocab_size: int,
    pad_values: Mapping[str, int],
    distributed: DistributedContext,
    unit: str,
) -> PoissonFeed:
    """A feed that draws `units_per_step` units in the mean."""
    if len(view) <= units_per_step:
        raise RecipeError(
            f"train.privacy: {len(view):,} {unit}s are too few for {units_per_step:,} of them in each step: sampling "
            f"hides who took part only where most stay out; use more data, or a smaller "
            f"train.{'batch_tokens' if unit == 'document' else 'batch_samples'}"
        )
    max_tokens = max(1, min(micro_batch_tokens or MAX_LOGITS, MAX_LOGITS // vocab_size))
    feed = PoissonFeed(
        view=view,
        objective=objective,
        seed=seed,
        batch_size=units_per_step,
        micro_batch_size=units_per_step,
        pad_values=pad_values,
        distributed=distributed,
        max_rows=max_rows,
        max_tokens=max_tokens,
    )
    return replace(feed, tokens_per_sample=sample_tokens(view, objective).mean)
