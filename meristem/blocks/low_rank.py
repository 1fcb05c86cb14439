"""Low-rank parts of linear maps that learn in place of them: W + α/r · BA (LoRA, Hu et al. 2021)."""

# O rows and I columns of a weight, R rank

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from meristem.errors import MeristemError

KINDS = {"attention": r"(^|\.)(attention|cross|look)\.", "all": ""}
"""Words for some of a backbone's linear maps, and the pattern each stands for."""


class LowRank(nn.Module):
    """A weight with a small learned part added, which is zero at the start."""

    def __init__(self, weight_OI: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        rows, columns = weight_OI.shape
        self.scale = alpha / rank
        self.down_RI = nn.Parameter(weight_OI.new_empty(rank, columns))
        self.up_OR = nn.Parameter(weight_OI.new_zeros(rows, rank))
        nn.init.kaiming_uniform_(self.down_RI, a=math.sqrt(5))

    def forward(self, weight_OI: Tensor) -> Tensor:
        """W + α/r · BA."""
        return torch.addmm(weight_OI, self.up_OR, self.down_RI, alpha=self.scale)


def add(backbone: nn.Module, rank: int, alpha: float, layers: Sequence[str]) -> None:
    """Give every linear map that `layers` names a low-rank part; the weight itself is frozen."""
    maps = {name: module for name, module in backbone.named_modules() if isinstance(module, nn.Linear)}
    patterns = [KINDS.get(one, one) for one in layers]
    chosen = [module for name, module in maps.items() if any(re.search(pattern, f"{name}.") for pattern in patterns)]
    if not chosen:
        known = ", ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".N.", name) for name in maps)) or "none"
        raise MeristemError(
            f"from.lora.layers: {', '.join(layers)} names no linear map of this backbone; it has {known}"
        )
    for module in chosen:
        made = LowRank(module.weight, rank, alpha)
        module.weight.requires_grad_(False)
        parametrize.register_parametrization(module, "weight", made)


def parts(backbone: nn.Module) -> set[nn.Parameter]:
    """The parameters of all low-rank parts."""
    return {parameter for module in _parted(backbone) for parameter in _part(module).parameters()}


def merge(backbone: nn.Module) -> None:
    """Plain weights again: each the sum that was computed with."""
    for module in list(_parted(backbone)):
        parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)


def _parted(backbone: nn.Module) -> Iterator[nn.Module]:
    return (module for module in backbone.modules() if parametrize.is_parametrized(module, "weight"))


def _part(module: nn.Module) -> nn.Module:
    held = module.parametrizations
    assert isinstance(held, nn.ModuleDict)
    made = held["weight"]
    assert isinstance(made, parametrize.ParametrizationList)
    return made[0]
