"""Tensors into a model: exactly, to go on with a run, or as far as they fit, to begin another from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Size, Tensor, nn

from meristem.checkpoint import tensors as files
from meristem.errors import MeristemError

SHOWN = 6  # names a message spells out before it only counts


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What became of every name."""

    taken: tuple[str, ...]
    fresh: tuple[str, ...]
    """In the model, but not in the file, of another shape there, or not asked for: as initialised."""
    left: tuple[str, ...]
    """In the file only, or tied in the model to a tensor of another value."""
    reshaped: Mapping[str, tuple[Size, Size]]
    """Of the fresh ones, those whose shapes differ: the model's and the file's."""

    def summary(self) -> str:
        """A few lines for people."""
        shapes = [f"{name} ({_shape(a)} here, {_shape(b)} there)" for name, (a, b) in self.reshaped.items()]
        others = [name for name in self.fresh if name not in self.reshaped]
        lines = [f"taken: {len(self.taken)} of {len(self.taken) + len(self.fresh)} tensors"]
        if self.fresh:
            lines.append(f"fresh: {_some(shapes + others)}")
        if self.left:
            lines.append(f"left:  {_some(self.left)}")
        return "\n".join(lines)


def into(model: nn.Module, tensors: dict[str, Tensor], *, only: Callable[[str], bool] | None = None) -> Transfer:
    """Take whatever has a name and shape of the model's; `only` says which names are wanted."""
    ours = _tensors(model)
    tied = files.aliases(ours)
    offered = {name: tensor for name, tensor in tensors.items() if name in ours and (only is None or only(name))}
    fitting = {name: tensor for name, tensor in offered.items() if tensor.shape == ours[name].shape}
    chosen: dict[str, Tensor] = {}
    for name in ours:
        if name in fitting:
            chosen.setdefault(tied.get(name, name), fitting[name])
    with torch.no_grad():
        for name, tensor in chosen.items():
            ours[name].copy_(tensor)
    lost = [name for name, tensor in fitting.items() if not _equal(tensor, chosen[tied.get(name, name)])]
    taken = tuple(name for name in ours if tied.get(name, name) in chosen and name not in lost)
    fresh = tuple(name for name in ours if tied.get(name, name) not in chosen)
    return Transfer(
        taken=taken,
        fresh=fresh,
        left=(*(name for name in tensors if name not in ours), *lost),
        reshaped={name: (ours[name].shape, offered[name].shape) for name in fresh if name in offered},
    )


def restore(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Exactly these names, shapes and types, or nothing at all."""
    ours = _tensors(model)
    tied = files.aliases(ours)
    differences = [f"{name} is missing in the checkpoint" for name in ours if name not in tensors]
    differences += [f"{name} is not in the model" for name in tensors if name not in ours]
    for name in ours.keys() & tensors.keys():
        here, there = ours[name], tensors[name]
        if (here.shape, here.dtype) != (there.shape, there.dtype):
            differences.append(f"{name} is {_kind(here)} here, {_kind(there)} in the checkpoint")
        elif name in tied and not _equal(there, tensors.get(tied[name], there)):
            differences.append(f"{name} and {tied[name]} are one tensor here, two in the checkpoint")
    if differences:
        raise MeristemError("the checkpoint is of another model: " + _some(sorted(differences), "; "))
    with torch.no_grad():
        for name, tensor in ours.items():
            tensor.copy_(tensors[name])


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """The names of tensors that hold NaN or infinity, the first few spelled out; "" where all are finite."""
    found = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not _finite(tensor)]
    return _some(found)


def _finite(tensor: Tensor) -> bool:
    """Whether all values are finite: a sum is only finite where every part of it is, and is the quickest look."""
    total = tensor.sum(dtype=torch.float64 if tensor.device.type != "mps" else None)
    return bool(torch.isfinite(total)) or bool(torch.isfinite(tensor).all())


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def _equal(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, so that tied tensors that hold a NaN are still one."""
    if one is other:
        return True
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _shape(size: Size) -> str:
    return "×".join(map(str, size)) or "a number"


def _kind(tensor: Tensor) -> str:
    return f"{_shape(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _some(names: list[str] | tuple[str, ...], between: str = ", ") -> str:
    rest = len(names) - SHOWN
    return between.join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
