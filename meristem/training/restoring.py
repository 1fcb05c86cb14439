"""What a run has besides its weights, to a snapshot and back, whatever the number of processes it goes on with."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from meristem.batch import State
from meristem.blocks.recurrence import NOTHING
from meristem.checkpoint import optimizer_state
from meristem.checkpoint.snapshot import Snapshot
from meristem.errors import MeristemError
from meristem.learning.feed import Feed
from meristem.learning.spread import placed
from meristem.training.optimizers import names_of
from meristem.training.step import Stepper

CHANGED = "the checkpoint's memory was changed, so the run cannot resume from it"


def remembered(stepper: Stepper, feeds: Mapping[str, Feed]) -> dict[str, Tensor]:
    """The memory of all lanes, those of all passes and processes in their order: `source/name`."""
    team, parts = stepper.team, dict[str, list[Tensor]]()
    for (source, _), state in sorted(stepper.memory.items(), key=lambda item: item[0]):
        for name, value in state.items():
            parts.setdefault(f"{source}/{name}", []).append(value)
    out = {}
    for name, tensors in parts.items():
        out[name] = team.gathered(torch.cat(tensors), team.shares(feeds[name.rpartition("/")[0]].rows))
    return out


def restore(stepper: Stepper, snapshot: Snapshot, feeds: Mapping[str, Feed]) -> None:
    """Optimizers and memory as they were when the snapshot was taken; the model's weights are there already."""
    names = names_of(stepper.learner.model)
    for one in stepper.optimizers:
        mine = {names[p] for group in one.param_groups for p in group["params"]}
        kept = {key: value for key, value in snapshot.optimizer.items() if key.rsplit("/", 1)[0] in mine}
        optimizer_state.restore(one, names, kept, place=placed)
    _check_memory(stepper, snapshot.memory, feeds)
    memory: dict[tuple[str, int], State] = {}
    for key, value in snapshot.memory.items():
        source, _, name = key.rpartition("/")
        for micro in range(feeds[source].micro_steps):
            lanes = feeds[source].lanes(micro)
            part = value[lanes.start : lanes.stop].to(stepper.device, copy=True)
            memory.setdefault((source, micro), {})[name] = part
    stepper.memory = memory


def _check_memory(stepper: Stepper, memory: Mapping[str, Tensor], feeds: Mapping[str, Feed]) -> None:
    """Refuse memory of other names, shapes, types or values than this model keeps for these feeds."""
    for source in {key.rpartition("/")[0] for key in memory} & feeds.keys():
        for name in stepper.learner.model.backbone.empty_memory(1):
            if f"{source}/{name}" not in memory:
                raise MeristemError(f"{CHANGED}: {source}/{name} is missing")
    for key, value in memory.items():
        source, _, name = key.rpartition("/")
        like = stepper.learner.model.backbone.empty_memory(feeds[source].rows) if source in feeds else {}
        if name not in like:
            problem = "is nothing that this run remembers"
        elif (value.shape, value.dtype) != (like[name].shape, like[name].dtype):
            problem = f"is {list(value.shape)} {value.dtype} instead of {list(like[name].shape)} {like[name].dtype}"
        elif value.is_floating_point() and not bool(torch.isfinite(value).all()):
            problem = "holds values that are not finite"
        elif not value.is_floating_point() and bool((value < NOTHING).any()):
            problem = "names documents that do not exist"
        else:
            continue
        raise MeristemError(f"{CHANGED}: {key} {problem}")
