"""Which optimizer moves which parameter, and how fast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from meristem.batch import Model
from meristem.blocks.generator import Generator
from meristem.learning.team import ALONE, Team
from meristem.training.depth import depths
from meristem.training.muon import Muon
from meristem.training.settings import TrainSettings


def names_of(model: nn.Module) -> dict[nn.Parameter, str]:
    """Each parameter's first name; a tied one has one."""
    return {parameter: name for name, parameter in model.named_parameters()}


def optimizers(model: Model, settings: TrainSettings, team: Team = ALONE) -> list[torch.optim.Optimizer]:
    """AdamW, fused, for everything; or Muon for the backbone's matrices and AdamW for the rest."""
    free = [p for p in model.parameters() if p.requires_grad]
    matrices = matrices_of(model) if settings.optimizer == "muon" else []
    taken = {id(p) for p in matrices}
    deep = depths(model) if settings.layer_decay < 1 else dict.fromkeys(free, 0)
    made: list[torch.optim.Optimizer] = []
    if rest := [p for p in free if id(p) not in taken]:
        groups = _groups(rest, deep, settings, settings.rate)
        made.append(torch.optim.AdamW(groups, lr=settings.rate, betas=settings.betas, eps=settings.epsilon, fused=True))
    if matrices:
        rate = settings.matrix_rate or 4 * settings.rate  # measured on WikiText-2: docs/log.md
        groups = _groups(matrices, deep, settings, rate)
        made.append(Muon(groups, rate, momentum=settings.momentum, weight_decay=settings.weight_decay, team=team))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return made


def matrices_of(model: Model) -> list[nn.Parameter]:
    """The weights of linear maps inside the backbone and a generator's body, which Muon's geometry is about."""
    bodies = [model.backbone, *(head.body for head in model.heads.values() if isinstance(head, Generator))]
    linear = [module.weight for body in bodies for module in body.modules() if isinstance(module, nn.Linear)]
    return [weight for weight in linear if isinstance(weight, nn.Parameter) and weight.requires_grad]


def _groups(
    parameters: Iterable[nn.Parameter], deep: Mapping[nn.Parameter, int], settings: TrainSettings, rate: float
) -> list[dict[str, Any]]:
    """Parameters of one depth together, those that decay first; the rate falls with the depth."""
    kinds: dict[tuple[bool, int], list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.ndim < 2, deep[parameter]), []).append(parameter)
    return [
        {
            "params": kinds[plain, depth],
            "weight_decay": 0.0 if plain else settings.weight_decay,
            "lr": rate * settings.layer_decay**depth,
        }
        for plain, depth in sorted(kinds)
    ]


def set_rate(made: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Scale every group from its peak."""
    for optimizer in made:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor
