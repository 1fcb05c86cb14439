"""Data parallelism: DDP (replicated weights) or FSDP2 (sharded weights) around a learner, and full state dicts."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from meristem.distributed.process_group import DistributedContext
from meristem.interfaces.backbone import Model
from meristem.interfaces.objective import Outcome

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

LearnFunction = Callable[..., Outcome]


class HasModel(Protocol):
    """What sharding needs of a learner besides being an nn.Module: the model, whose layers become FSDP units."""

    model: Model


class ParallelLearner:
    """A learner wrapped in DDP or FSDP2: called like the learner, with gradients summed over all processes."""

    def __init__(self, learner: nn.Module, distributed: DistributedContext, *, fsdp: bool = False) -> None:
        self.learner, self.distributed = learner, distributed
        self.sharded = fsdp and distributed.world_size > 1
        self._ddp: DistributedDataParallel | None = None
        if self.sharded:
            _apply_fsdp(learner, distributed)
        elif distributed.world_size > 1:
            # a batch may leave a head unused; and every process computes the same buffers
            with distributed.collective_timeout():
                self._ddp = DistributedDataParallel(learner, find_unused_parameters=True, forward_sync_buffers=False)

    def __call__(self, *args: Any) -> Outcome:
        """Forward pass; `backward` of its loss reduces gradients, except within `gradient_sync(is_last=False)`."""
        learn: LearnFunction = self._ddp if self._ddp is not None else self.learner
        with self.distributed.collective_timeout():
            return learn(*args)

    def backward(self, loss: Tensor) -> None:
        """Backward pass of this process's share of the loss. DDP and FSDP average gradients over processes, so the
        loss is multiplied by the world size to get their sum."""
        with self.distributed.collective_timeout():
            torch.autograd.backward(loss * self.distributed.world_size if self.distributed.world_size > 1 else loss)

    def reshard(self) -> None:
        """Free the gathered weights of FSDP modules between passes; does nothing without FSDP."""
        if self.sharded:
            from torch.distributed.fsdp import FSDPModule

            for module in self.learner.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()

    def gradient_sync(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Context of one forward and backward pass: DDP reduces gradients only in a step's last pass (`no_sync`)."""
        return nullcontext() if self._ddp is None or is_last else self._ddp.no_sync()


def _apply_fsdp(learner: nn.Module, distributed: DistributedContext) -> None:
    """FSDP2: one unit per layer, gathered when the layer runs; all other weights are gathered for the whole pass."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(distributed.device.type, (distributed.world_size,))
    for layer in fsdp_layers(learner):
        fully_shard(layer, mesh=mesh)
    fully_shard(learner, mesh=mesh)
    register_fsdp_forward_method(learner, "explore")


def fsdp_layers(learner: nn.Module) -> Iterator[nn.Module]:
    """Layers of the backbone that share no parameter with another module, to be sharded as FSDP units."""
    use_counts = Counter(id(p) for _, p in learner.named_parameters(remove_duplicate=False))
    for name, module in cast(HasModel, learner).model.backbone.named_modules():
        if isinstance(module, nn.ModuleList) and name.rsplit(".", 1)[-1] == "layers":
            yield from (layer for layer in module if all(use_counts[id(p)] == 1 for p in layer.parameters()))


# ------------------------------------------------------------ sharded tensors (DTensor)


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor, sharded over processes; does not import torch.distributed.tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def full_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor gathered from all processes, all of which must call this; other tensors unchanged."""
    if not is_sharded(tensor):
        return tensor
    dtensor: DTensor = tensor  # type: ignore[assignment]  # is_sharded
    return dtensor.full_tensor()


def shard_like(tensor: Tensor, template: Tensor) -> Tensor:
    """This process's shard of a full tensor, placed like the template; no communication."""
    if not is_sharded(template):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    dtensor: DTensor = template  # type: ignore[assignment]  # is_sharded
    mesh = dtensor.device_mesh
    replicated = DTensor.from_local(tensor.to(template.device), mesh, [Replicate()] * mesh.ndim, run_check=False)
    return replicated.redistribute(placements=dtensor.placements)


def full_state_dict(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Full tensors by name, on the CPU if they were sharded; tied weights stay one tensor under two names."""
    full_tensors: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in full_tensors:
            full_tensors[id(tensor)] = full_tensor(tensor).detach().cpu() if is_sharded(tensor) else tensor.detach()
    return {name: full_tensors[id(tensor)] for name, tensor in tensors.items()}
