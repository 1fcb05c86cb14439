"""What an optimizer remembers of each parameter, by the parameter's name instead of its position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from meristem.errors import MeristemError

NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}  # exact for every Python number an optimizer keeps
STATE_ENTRIES: dict[type[Optimizer], tuple[str, ...]] = {torch.optim.AdamW: ("exp_avg", "exp_avg_sq", "step")}
"""Every entry an optimizer of torch's keeps for a parameter; one of our own says so in `state_entries`."""
SHOWN = 4  # problems a message spells out
NOT_NEGATIVE = frozenset({"exp_avg_sq", "step"})


def flatten(optimizer: Optimizer, names: dict[nn.Parameter, str]) -> dict[str, Tensor]:
    """`encoder.weight/exp_avg` and so on; plain numbers as `name/key:int`; nothing for a parameter never used."""
    out = {}
    for parameter, memory in optimizer.state.items():
        name = _name(parameter, names)
        for key, value in memory.items():
            if isinstance(value, Tensor):
                out[f"{name}/{key}"] = value.detach()
            elif type(value) in NUMBERS:
                out[f"{name}/{key}:{type(value).__name__}"] = torch.tensor(value, dtype=NUMBERS[type(value)])
            elif value is not None:  # SGD without momentum keeps None, and reads a missing entry as None
                raise MeristemError(f"{type(optimizer).__name__} keeps a {type(value).__name__} as {key!r} of {name}: "
                                    "only tensors and numbers can be saved; choose another optimizer")
    return out


def restore(optimizer: Optimizer, names: dict[nn.Parameter, str], tensors: dict[str, Tensor],
            place: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
    """Give an optimizer back what it remembered, in the same types; another's parameters are passed over.

    `place` puts a whole tensor where its parameter lies, if that is in parts. Names, shapes, types and values are
    checked first: a fused kernel trusts them, and one wrong shape writes outside of its memory.
    """
    remembered: dict[str, dict[str, Tensor]] = {}
    for long, tensor in tensors.items():
        name, _, key = long.rpartition("/")
        remembered.setdefault(name, {})[key] = tensor
    if unknown := sorted(remembered.keys() - set(names.values())):
        raise MeristemError("the checkpoint's optimizer knows parameters that the model does not have: "
                            + ", ".join(unknown[:6]))
    problems = [
        problem
        for group in optimizer.param_groups
        for parameter in group["params"]
        if (memory := remembered.get(name := _name(parameter, names)))
        for problem in state_problems(optimizer, name, parameter, memory)
    ]
    if problems:
        raise MeristemError(f"the checkpoint's optimizer state was changed, so the run cannot resume from it: "
                            f"{'; '.join(problems[:SHOWN])}{' …' if len(problems) > SHOWN else ''}")
    optimizer.state.clear()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if memory := remembered.get(_name(parameter, names)):
                entries = (_entry(key, value, parameter, group, place) for key, value in memory.items())
                optimizer.state[parameter] = dict(entries)


def state_problems(optimizer: Optimizer, name: str, parameter: Tensor, entries: dict[str, Tensor]) -> list[str]:
    """What is wrong with the entries stored for one parameter, one sentence each; nothing, if they may be restored."""
    expected = getattr(optimizer, "state_entries", STATE_ENTRIES.get(type(optimizer)))
    if expected is None or _amsgrad(optimizer):
        return []  # an optimizer that no recipe can name
    if entries.keys() != set(expected):
        return [f"{name} has the entries {', '.join(sorted(entries))} instead of {', '.join(sorted(expected))}"]
    problems = []
    for key, value in entries.items():
        shape, dtype = ((), torch.float32) if key == "step" else (tuple(parameter.shape), parameter.dtype)
        if tuple(value.shape) != shape:
            problems.append(f"{name}/{key} has the shape {list(value.shape)} instead of {list(shape)}")
        elif value.dtype not in (dtype, torch.float32) or (_fused(optimizer) and value.dtype != dtype):
            problems.append(f"{name}/{key} is {value.dtype} instead of {dtype}")
        elif not bool(torch.isfinite(value).all()):
            problems.append(f"{name}/{key} holds values that are not finite")
        elif key in NOT_NEGATIVE and bool((value < 0).any()):
            problems.append(f"{name}/{key} holds negative values")
    return problems


def _amsgrad(optimizer: Optimizer) -> bool:
    return any(group.get("amsgrad") for group in optimizer.param_groups)


def _fused(optimizer: Optimizer) -> bool:
    return any(group.get("fused") for group in optimizer.param_groups)


def _entry(key: str, value: Tensor, parameter: nn.Parameter, group: dict[str, Any],
           place: Callable[[Tensor, Tensor], Tensor] | None) -> tuple[str, Any]:
    key, _, number = key.partition(":")
    if number:
        return key, value.item()
    if value.shape == parameter.shape and value.dim():
        # Laid out like the parameter: fused kernels walk both along memory.
        mine = value if place is None else place(value, parameter)
        return key, torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(mine)
    # Unless the kernel itself counts the steps, torch keeps the count on the CPU.
    there = key != "step" or group.get("fused") or group.get("capturable")
    return key, value.to(parameter.device if there else "cpu", copy=True)


def _name(parameter: Tensor, names: dict[nn.Parameter, str]) -> str:
    if isinstance(parameter, nn.Parameter) and parameter in names:
        return names[parameter]
    raise MeristemError(f"the optimizer has a parameter of shape {tuple(parameter.shape)} without a name")
