"""Resume state: a snapshot of weights, optimizers and recurrent memory, gathered and restored by all processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from meristem.blocks.transformer.segment_memory import EMPTY_SLOT
from meristem.checkpoint import optimizer_state
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.dataset.feed import Feed
from meristem.distributed.parallel import full_state_dict, shard_like
from meristem.interfaces.backbone import State
from meristem.training.optim.param_groups import parameter_names
from meristem.training.optim.weight_average import TRAINED_KEY
from meristem.training.step import Stepper
from meristem.training.train_state import TrainState

MEMORY_CHANGED = "the checkpoint's memory was changed, so the run cannot resume from it"


def gather_snapshot(
    stepper: Stepper, feeds: Mapping[str, Feed], state: TrainState, recipe_yaml: str, tokenizer_path: Path
) -> Snapshot:
    """A snapshot of the current step, complete on rank 0; all ranks gather their shards."""
    model = stepper.learner.model
    names = parameter_names(model)
    optimizer_tensors: dict[str, Tensor] = {}
    for optimizer in stepper.optimizers:
        optimizer_tensors.update(full_state_dict(optimizer_state.flatten_state(optimizer, names)))
    if stepper.weight_average is not None:
        optimizer_tensors.update(stepper.weight_average.trained_tensors())
    return Snapshot(
        step=state.step,
        model=full_state_dict(model.state_dict(keep_vars=True)),
        optimizer=optimizer_tensors,
        memory=gather_memory(stepper, feeds),
        state=state.to_dict(),
        recipe=recipe_yaml,
        tokenizer=tokenizer_path,
    )


def gather_memory(stepper: Stepper, feeds: Mapping[str, Feed]) -> dict[str, Tensor]:
    """Memory of all rows of a batch, gathered over micro-batches and processes: `source/name` → tensor."""
    distributed, tensors_by_name = stepper.distributed, dict[str, list[Tensor]]()
    for (source, _), state in sorted(stepper.memory.items(), key=lambda item: item[0]):
        for name, value in state.items():
            tensors_by_name.setdefault(f"{source}/{name}", []).append(value)
    gathered_memory = {}
    for name, tensors in tensors_by_name.items():
        gathered_memory[name] = distributed.all_gather(
            torch.cat(tensors), distributed.shard_sizes(feeds[name.rpartition("/")[0]].batch_size)
        )
    return gathered_memory


def restore_training(stepper: Stepper, snapshot: Snapshot, feeds: Mapping[str, Feed]) -> None:
    """Restore optimizers and memory from a snapshot; the weights are already loaded, averaged ones if it has those."""
    names = parameter_names(stepper.learner.model)
    state = dict(snapshot.optimizer)
    if stepper.weight_average is not None:
        trained_keys = [key for key in state if key.endswith(f"/{TRAINED_KEY}")]
        stepper.weight_average.restore({key: state.pop(key) for key in trained_keys})
    for optimizer in stepper.optimizers:
        own_names = {names[p] for group in optimizer.param_groups for p in group["params"]}
        own_state = {key: value for key, value in state.items() if key.rsplit("/", 1)[0] in own_names}
        optimizer_state.restore_state(optimizer, names, own_state, shard_like=shard_like)
    _check_memory(stepper, snapshot.memory, feeds)
    memory: dict[tuple[str, int], State] = {}
    for key, value in snapshot.memory.items():
        source, _, name = key.rpartition("/")
        for micro_step in range(feeds[source].micro_steps):
            row_range = feeds[source].row_range(micro_step)
            row_memory = value[row_range.start : row_range.stop].to(stepper.device, copy=True)
            memory.setdefault((source, micro_step), {})[name] = row_memory
    stepper.memory = memory


def _check_memory(stepper: Stepper, memory: Mapping[str, Tensor], feeds: Mapping[str, Feed]) -> None:
    """Raise if the memory does not have the names, shapes, types and values that this model and these feeds need."""
    for source in {key.rpartition("/")[0] for key in memory} & feeds.keys():
        for name in stepper.learner.model.backbone.empty_memory(1):
            if f"{source}/{name}" not in memory:
                raise MeristemError(f"{MEMORY_CHANGED}: {source}/{name} is missing")
    for key, value in memory.items():
        source, _, name = key.rpartition("/")
        expected = stepper.learner.model.backbone.empty_memory(feeds[source].batch_size) if source in feeds else {}
        if name not in expected:
            problem = "is not part of this run's memory"
        elif (value.shape, value.dtype) != (expected[name].shape, expected[name].dtype):
            problem = (
                f"is {list(value.shape)} {value.dtype} instead of {list(expected[name].shape)} {expected[name].dtype}"
            )
        elif value.is_floating_point() and not bool(torch.isfinite(value).all()):
            problem = "holds values that are not finite"
        elif not value.is_floating_point() and bool((value < EMPTY_SLOT).any()):
            problem = "holds invalid document numbers"
        else:
            continue
        raise MeristemError(f"{MEMORY_CHANGED}: {key} {problem}")
