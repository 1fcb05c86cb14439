"""Rows and batches: model inputs and targets of samples, and `collate`, which pads and stacks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


TEXT_INPUTS = ("tokens", "source")
"""Names of inputs that hold token ids."""


RngFactory = Callable[[str], np.random.Generator]
"""Purpose → random generator of one sample."""


@dataclass(kw_only=True)
class Row:
    """One row before collation: inputs of the backbone and targets of each loss term, as numpy arrays."""

    inputs: dict[str, Array]
    """Keyword arguments of the backbone, one row of each; the first dimension is time."""
    targets: dict[str, dict[str, Array]] = field(default_factory=dict)
    """Per loss term `at` (positions on the row's prediction axis) and arrays of the same length (`values`, …)."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Plain data that stays on the CPU: offsets, original text, which tokens are special."""
    sample_id: int = 0


@dataclass(kw_only=True)
class Batch:
    """Collated rows: tensors for the backbone, flat targets for the losses, counts known before the forward pass."""

    inputs: dict[str, Any]
    targets: dict[str, dict[str, Tensor]]
    target_counts: dict[str, int]
    sample_index: Tensor
    """Row → index of its sample in `sample_ids`: one sample may become several rows."""
    sample_ids: list[int]
    metadata: list[dict[str, Any]]
    num_tokens: int
    """Source and target tokens of all rows without padding: the unit of token budgets and throughput."""
    progress: float = 0.0
    """Share of the run's steps taken before the step of this batch; set by the training step."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device.type == "cpu":
            return self
        inputs = {
            key: tensor.to(device, non_blocking=True) if isinstance(tensor, Tensor) else tensor
            for key, tensor in self.inputs.items()
        }
        targets = {
            term: {key: tensor.to(device, non_blocking=True) for key, tensor in target.items()}
            for term, target in self.targets.items()
        }
        return replace(self, inputs=inputs, targets=targets, sample_index=self.sample_index.to(device))


class CollateSpec(Protocol):
    """What `collate` asks of an objective."""

    axis: str
    """The input whose time dimension the positions `at` index."""

    @property
    def off_axis_inputs(self) -> frozenset[str]:
        """Inputs that never run along that axis."""

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of predictions per loss term."""


def collate(rows: Sequence[Row], objective: CollateSpec, pad_values: Mapping[str, int]) -> Batch:
    """Stack rows into a batch; rows of unequal length are padded on the right, and `present` is the padding mask."""
    keys = list(rows[0].inputs)
    row_lengths = {key: np.array([len(row.inputs[key]) for row in rows]) for key in keys}
    lengths = row_lengths[objective.axis]
    max_lengths = {key: int(key_lengths.max()) for key, key_lengths in row_lengths.items()}
    inputs: dict[str, Any] = {
        key: _pad_and_stack([row.inputs[key] for row in rows], max_lengths[key], pad_values.get(key, 0)) for key in keys
    }
    for key, key_lengths in row_lengths.items():
        on_axis = key not in (objective.axis, *objective.off_axis_inputs) and bool((key_lengths == lengths).all())
        # an input with an axis of its own gets its own padding mask, such as `source_present`
        if not on_axis and key_lengths.min() < max_lengths[key]:
            name = "present" if key == objective.axis else f"{key}_present"
            inputs[name] = torch.from_numpy(np.arange(max_lengths[key]) < key_lengths[:, None])
    sample_ids = list(dict.fromkeys(row.sample_id for row in rows))
    index_of = {sample_id: index for index, sample_id in enumerate(sample_ids)}
    batch = Batch(
        inputs=inputs,
        targets=_collate_targets(rows, max_lengths[objective.axis]),
        target_counts={},
        sample_index=torch.tensor([index_of[row.sample_id] for row in rows]),
        sample_ids=sample_ids,
        metadata=[row.metadata for row in rows],
        num_tokens=sum(int(row_lengths[key].sum()) for key in TEXT_INPUTS if key in row_lengths),
    )
    batch.target_counts = objective.count_targets(batch)
    return batch


def _pad_and_stack(arrays: Sequence[Array], length: int, pad_value: int) -> Tensor:
    if all(len(array) == length for array in arrays):
        return torch.from_numpy(np.stack(arrays))
    padded = np.full((len(arrays), length, *arrays[0].shape[1:]), pad_value, dtype=arrays[0].dtype)
    for index, array in enumerate(arrays):
        padded[index, : len(array)] = array
    return torch.from_numpy(padded)


def _collate_targets(rows: Sequence[Row], length: int) -> dict[str, dict[str, Tensor]]:
    """Targets per loss term; positions `at` become flat indices into [rows · length]."""
    terms = list(dict.fromkeys(term for row in rows for term in row.targets))
    targets: dict[str, dict[str, Tensor]] = {}
    for term in terms:
        term_targets = [(index, row.targets[term]) for index, row in enumerate(rows) if term in row.targets]
        targets[term] = {
            "at": torch.from_numpy(
                np.concatenate(
                    [np.asarray(target["at"], np.int64) + row_index * length for row_index, target in term_targets]
                )
            )
        }
        for key in term_targets[0][1]:
            if key != "at":
                targets[term][key] = torch.from_numpy(np.concatenate([target[key] for _, target in term_targets]))
    return targets
