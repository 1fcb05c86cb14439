"""One learner over many processes: a copy in each of them (DDP), or a part of every weight in each (FSDP2)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from meristem.batch import Outcome
from meristem.learning.learner import Learner
from meristem.learning.team import Team

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Learn = Callable[..., Outcome]


class Spread:
    """A learner as its team sees it: called like one, with gradients that are the sums over all processes."""

    def __init__(self, learner: Learner, team: Team, *, shard: bool = False) -> None:
        self.learner, self.team = learner, team
        self.sharded = shard and team.size > 1
        self._ddp: DistributedDataParallel | None = None
        if self.sharded:
            _shard(learner, team)
        elif team.size > 1:
            # a batch may leave a head unused; and what is a buffer is computed alike everywhere
            self._ddp = DistributedDataParallel(learner, find_unused_parameters=True, forward_sync_buffers=False)

    def __call__(self, *given: Any) -> Outcome:
        """Forward; backward of its loss sums gradients over the processes where that is not put off."""
        learn: Learn = self._ddp if self._ddp is not None else self.learner
        return learn(*given)

    def backward(self, loss: Tensor) -> None:
        """Gradients of this process's share of the loss, summed over all: what averages them is made up for."""
        torch.autograd.backward(loss * self.team.size if self.team.size > 1 else loss)

    def settle(self) -> None:
        """Between passes: every weight back in its part, where weights lie in parts."""
        if self.sharded:
            from torch.distributed.fsdp import FSDPModule

            for module in self.learner.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()

    def summing(self, *, last: bool) -> AbstractContextManager[object]:
        """Around a pass: only the last of a step needs to tell the others, unless weights lie in parts."""
        return nullcontext() if self._ddp is None or last else self._ddp.no_sync()


def _shard(learner: Learner, team: Team) -> None:
    """Each layer's weights are gathered when it is its turn; what lies outside layers, for the whole pass."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(team.device.type, (team.size,))
    for layer in layers_of(learner):
        fully_shard(layer, mesh=mesh)
    fully_shard(learner, mesh=mesh)
    register_fsdp_forward_method(learner, "explore")


def layers_of(learner: Learner) -> Iterator[nn.Module]:
    """The backbone's layers, where their weights are nobody else's."""
    times = Counter(id(p) for _, p in learner.named_parameters(remove_duplicate=False))
    for name, module in learner.model.backbone.named_modules():
        if isinstance(module, nn.ModuleList) and name.rsplit(".", 1)[-1] == "layers":
            yield from (layer for layer in module if all(times[id(p)] == 1 for p in layer.parameters()))


# ------------------------------------------------------------ tensors that lie in parts


def in_parts(tensor: Tensor) -> bool:
    """Whether a tensor lies in parts over the processes; asking imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """A tensor gathered from its parts, which every process must ask for; any other as it is."""
    if not in_parts(tensor):
        return tensor
    parts: DTensor = tensor  # type: ignore[assignment]  # just asked
    return parts.full_tensor()


def placed(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part of a whole tensor, where another lies in parts; nothing is sent."""
    if not in_parts(like):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    parts: DTensor = like  # type: ignore[assignment]  # just asked
    mesh = parts.device_mesh
    everywhere = DTensor.from_local(tensor.to(like.device), mesh, [Replicate()] * mesh.ndim, run_check=False)
    return everywhere.redistribute(placements=parts.placements)


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors by name, on the CPU where they lay in parts; what is one tensor under two names stays one."""
    made: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in made:
            made[id(tensor)] = whole(tensor).detach().cpu() if in_parts(tensor) else tensor.detach()
    return {name: made[id(tensor)] for name, tensor in tensors.items()}
