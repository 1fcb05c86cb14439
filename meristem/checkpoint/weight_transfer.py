"""Loading weights into a model: exactly (to resume a run), or those that match (to start from another run)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Size, Tensor, nn

from meristem.checkpoint import tensors as files
from meristem.config.errors import MeristemError

MAX_SHOWN_NAMES = 6  # names listed in a message


@dataclass(frozen=True, kw_only=True)
class TransferReport:
    """Result of a partial load: which tensors were loaded, missing, unexpected or of another shape."""

    loaded_keys: tuple[str, ...]
    missing_keys: tuple[str, ...]
    """In the model, but not in the file, of another shape there, or filtered out: still as initialized."""
    unexpected_keys: tuple[str, ...]
    """Only in the file, or tied in the model to a tensor with another value."""
    mismatched_keys: Mapping[str, tuple[Size, Size]]
    """Missing ones whose shapes differ: name → (shape in the model, shape in the file)."""

    def summary(self) -> str:
        """A few lines for the log."""
        mismatched = [
            f"{name} ({_format_shape(model_shape)} here, {_format_shape(file_shape)} there)"
            for name, (model_shape, file_shape) in self.mismatched_keys.items()
        ]
        missing = [name for name in self.missing_keys if name not in self.mismatched_keys]
        lines = [f"loaded: {len(self.loaded_keys)} of {len(self.loaded_keys) + len(self.missing_keys)} tensors"]
        if self.missing_keys:
            lines.append(f"newly initialized: {_join_names(mismatched + missing)}")
        if self.unexpected_keys:
            lines.append(f"not used: {_join_names(self.unexpected_keys)}")
        return "\n".join(lines)


def load_matching(
    model: nn.Module, tensors: dict[str, Tensor], *, name_filter: Callable[[str], bool] | None = None
) -> TransferReport:
    """Load the tensors whose name and shape match; `name_filter` selects names."""
    model_tensors = _state_tensors(model)
    aliases = files.find_aliases(model_tensors)
    candidates = {
        name: tensor
        for name, tensor in tensors.items()
        if name in model_tensors and (name_filter is None or name_filter(name))
    }
    matching = {name: tensor for name, tensor in candidates.items() if tensor.shape == model_tensors[name].shape}
    values: dict[str, Tensor] = {}
    for name in model_tensors:
        if name in matching:
            values.setdefault(aliases.get(name, name), matching[name])
    with torch.no_grad():
        for name, tensor in values.items():
            model_tensors[name].copy_(tensor)
    conflicting = [name for name, tensor in matching.items() if not _equal(tensor, values[aliases.get(name, name)])]
    loaded_keys = tuple(name for name in model_tensors if aliases.get(name, name) in values and name not in conflicting)
    missing_keys = tuple(name for name in model_tensors if aliases.get(name, name) not in values)
    return TransferReport(
        loaded_keys=loaded_keys,
        missing_keys=missing_keys,
        unexpected_keys=(*(name for name in tensors if name not in model_tensors), *conflicting),
        mismatched_keys={
            name: (model_tensors[name].shape, candidates[name].shape) for name in missing_keys if name in candidates
        },
    )


def load_exact(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Load all tensors; raises without loading any if names, shapes or types differ."""
    model_tensors = _state_tensors(model)
    aliases = files.find_aliases(model_tensors)
    differences = [f"{name} is missing in the checkpoint" for name in model_tensors if name not in tensors]
    differences += [f"{name} is not in the model" for name in tensors if name not in model_tensors]
    for name in model_tensors.keys() & tensors.keys():
        target, source = model_tensors[name], tensors[name]
        if (target.shape, target.dtype) != (source.shape, source.dtype):
            differences.append(f"{name} is {_format_type(target)} here, {_format_type(source)} in the checkpoint")
        elif name in aliases and not _equal(source, tensors.get(aliases[name], source)):
            differences.append(f"{name} and {aliases[name]} are one tensor here, two in the checkpoint")
    if differences:
        raise MeristemError("the checkpoint is from another model: " + _join_names(sorted(differences), "; "))
    with torch.no_grad():
        for name, tensor in model_tensors.items():
            tensor.copy_(tensors[name])


def nonfinite_names(tensors: Mapping[str, Tensor]) -> str:
    """Names of tensors that hold NaN or infinity, the first few listed; "" if all are finite."""
    nonfinite = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not _is_finite(tensor)]
    return _join_names(nonfinite)


def _is_finite(tensor: Tensor) -> bool:
    """Whether all values are finite; the sum is checked first, since it is the fastest test."""
    total = tensor.sum(dtype=torch.float64 if tensor.device.type != "mps" else None)
    return bool(torch.isfinite(total)) or bool(torch.isfinite(tensor).all())


def _state_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are bitwise equal, so that NaNs count as equal too."""
    if first is second:
        return True
    return first.dtype == second.dtype and first.shape == second.shape and torch.equal(_bits(first), _bits(second))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _format_shape(shape: Size) -> str:
    return "×".join(map(str, shape)) or "a number"


def _format_type(tensor: Tensor) -> str:
    return f"{_format_shape(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _join_names(names: list[str] | tuple[str, ...], separator: str = ", ") -> str:
    hidden_count = len(names) - MAX_SHOWN_NAMES
    return separator.join(names[:MAX_SHOWN_NAMES]) + (f" and {hidden_count} more" if hidden_count > 0 else "")
