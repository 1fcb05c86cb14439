"""Optimizer state as flat tensors, keyed by parameter name instead of position; validated when restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from meristem.config.errors import MeristemError

NUMBER_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}
"""Types that are exact for every Python number an optimizer keeps."""
STATE_ENTRIES: dict[type[Optimizer], tuple[str, ...]] = {torch.optim.AdamW: ("exp_avg", "exp_avg_sq", "step")}
"""State entries per parameter of torch's optimizers; ours declare theirs in `state_entries`."""
MAX_SHOWN_PROBLEMS = 4  # problems listed in a message
NON_NEGATIVE_KEYS = frozenset({"exp_avg_sq", "row_mean_sq", "step"})
ROW_KEYS = frozenset({"row_mean_sq"})
"""Entries with one value per row of the parameter."""


def flatten_state(optimizer: Optimizer, names: dict[nn.Parameter, str]) -> dict[str, Tensor]:
    """State as `encoder.weight/exp_avg` → tensor; Python numbers as `name/key:int`; none for unused parameters."""
    flat = {}
    for parameter, entries in optimizer.state.items():
        name = _parameter_name(parameter, names)
        for key, value in entries.items():
            if isinstance(value, Tensor):
                flat[f"{name}/{key}"] = value.detach()
            elif type(value) in NUMBER_DTYPES:
                flat[f"{name}/{key}:{type(value).__name__}"] = torch.tensor(value, dtype=NUMBER_DTYPES[type(value)])
            elif value is not None:  # SGD without momentum keeps None, and reads a missing entry as None
                raise MeristemError(
                    f"{type(optimizer).__name__} keeps a {type(value).__name__} as {key!r} of {name}: "
                    "only tensors and numbers can be saved; choose another optimizer"
                )
    return flat


def restore_state(
    optimizer: Optimizer,
    names: dict[nn.Parameter, str],
    tensors: dict[str, Tensor],
    shard_like: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> None:
    """Restore the state of an optimizer in the saved types; parameters of other optimizers are ignored.

    `shard_like` shards a full tensor like its parameter. Names, shapes, types and values are checked first: a fused
    kernel trusts them, and a wrong shape would write outside of its memory.
    """
    state_by_name: dict[str, dict[str, Tensor]] = {}
    for flat_name, tensor in tensors.items():
        name, _, key = flat_name.rpartition("/")
        state_by_name.setdefault(name, {})[key] = tensor
    if unknown := sorted(state_by_name.keys() - set(names.values())):
        raise MeristemError(
            "the checkpoint's optimizer state has parameters that the model does not have: " + ", ".join(unknown[:6])
        )
    problems = [
        problem
        for group in optimizer.param_groups
        for parameter in group["params"]
        if (stored := state_by_name.get(name := _parameter_name(parameter, names)))
        for problem in state_problems(optimizer, name, parameter, stored)
    ]
    if problems:
        raise MeristemError(
            f"the checkpoint's optimizer state was changed, so the run cannot resume from it: "
            f"{'; '.join(problems[:MAX_SHOWN_PROBLEMS])}{' …' if len(problems) > MAX_SHOWN_PROBLEMS else ''}"
        )
    optimizer.state.clear()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if stored := state_by_name.get(_parameter_name(parameter, names)):
                entries = (_restore_entry(key, value, parameter, group, shard_like) for key, value in stored.items())
                optimizer.state[parameter] = dict(entries)


def state_problems(optimizer: Optimizer, name: str, parameter: Tensor, entries: dict[str, Tensor]) -> list[str]:
    """Problems with the stored entries of one parameter, one sentence each; empty if they can be restored."""
    expected = getattr(optimizer, "state_entries", STATE_ENTRIES.get(type(optimizer)))
    if expected is None or _has_option(optimizer, "amsgrad"):
        return []  # an optimizer that no recipe can select
    if entries.keys() != set(expected):
        return [f"{name} has the entries {', '.join(sorted(entries))} instead of {', '.join(sorted(expected))}"]
    problems = []
    for key, value in entries.items():
        shape, dtype = ((), torch.float32) if key == "step" else (tuple(parameter.shape), parameter.dtype)
        shape = (*shape[:1], 1) if key in ROW_KEYS else shape
        if tuple(value.shape) != shape:
            problems.append(f"{name}/{key} has the shape {list(value.shape)} instead of {list(shape)}")
        elif value.dtype not in (dtype, torch.float32) or (_has_option(optimizer, "fused") and value.dtype != dtype):
            problems.append(f"{name}/{key} is {value.dtype} instead of {dtype}")
        elif not bool(torch.isfinite(value).all()):
            problems.append(f"{name}/{key} holds values that are not finite")
        elif key in NON_NEGATIVE_KEYS and bool((value < 0).any()):
            problems.append(f"{name}/{key} holds negative values")
    return problems


def _has_option(optimizer: Optimizer, name: str) -> bool:
    return any(group.get(name) for group in optimizer.param_groups)


def _restore_entry(
    key: str,
    value: Tensor,
    parameter: nn.Parameter,
    group: dict[str, Any],
    shard_like: Callable[[Tensor, Tensor], Tensor] | None,
) -> tuple[str, Any]:
    key, _, number_type = key.partition(":")
    if number_type:
        return key, value.item()
    if value.shape == parameter.shape and value.dim():
        # With the memory layout of the parameter: fused kernels assume that both are the same.
        local_value = value if shard_like is None else shard_like(value, parameter)
        return key, torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(local_value)
    # Unless the kernel itself counts steps, torch keeps the count on the CPU.
    on_device = key != "step" or group.get("fused") or group.get("capturable")
    return key, value.to(parameter.device if on_device else "cpu", copy=True)


def _parameter_name(parameter: Tensor, names: dict[nn.Parameter, str]) -> str:
    if isinstance(parameter, nn.Parameter) and parameter in names:
        return names[parameter]
    raise MeristemError(f"the optimizer has a parameter of shape {tuple(parameter.shape)} without a name")
