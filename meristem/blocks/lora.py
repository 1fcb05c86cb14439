"""LoRA: trainable low-rank updates W + α/r · BA of frozen linear layers (Hu et al. 2021)."""

# O rows and I columns of a weight, R rank

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from meristem.config.errors import MeristemError

LAYER_PATTERNS = {"attention": r"(^|\.)(attention|cross|look)\.", "all": ""}
"""Short names for groups of linear layers → regular expression on module names."""


class LoRAParametrization(nn.Module):
    """Parametrization of a weight [O, I] by a trainable low-rank update, which is zero at initialization."""

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


def add_lora(backbone: nn.Module, rank: int, alpha: float, layers: Sequence[str]) -> None:
    """Add a LoRA update to every linear layer that `layers` names, and freeze its weight."""
    linears = {name: module for name, module in backbone.named_modules() if isinstance(module, nn.Linear)}
    patterns = [LAYER_PATTERNS.get(layer, layer) for layer in layers]
    selected = [
        module for name, module in linears.items() if any(re.search(pattern, f"{name}.") for pattern in patterns)
    ]
    if not selected:
        known_names = ", ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".N.", name) for name in linears)) or "none"
        raise MeristemError(
            f"from.lora.target_modules: {', '.join(layers)} matches no linear layer of this backbone; it has "
            f"{known_names}"
        )
    for module in selected:
        parametrization = LoRAParametrization(module.weight, rank, alpha)
        module.weight.requires_grad_(False)
        parametrize.register_parametrization(module, "weight", parametrization)


def lora_parameters(backbone: nn.Module) -> set[nn.Parameter]:
    """The parameters of all LoRA updates."""
    return {parameter for module in _lora_modules(backbone) for parameter in _lora_parametrization(module).parameters()}


def merge_lora(backbone: nn.Module) -> None:
    """Merge every LoRA update into its weight and remove the parametrization."""
    for module in list(_lora_modules(backbone)):
        parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)


def _lora_modules(backbone: nn.Module) -> Iterator[nn.Module]:
    return (module for module in backbone.modules() if parametrize.is_parametrized(module, "weight"))


def _lora_parametrization(module: nn.Module) -> nn.Module:
    parametrizations = module.parametrizations
    assert isinstance(parametrizations, nn.ModuleDict)
    parametrization_list = parametrizations["weight"]
    assert isinstance(parametrization_list, parametrize.ParametrizationList)
    return parametrization_list[0]
