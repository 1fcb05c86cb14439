"""Optimizers (AdamW, Muon) and their parameter groups: weight decay and layer-wise learning-rate decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from meristem.blocks.fused_linear import FusedLinear
from meristem.blocks.transformer.electra_generator import ElectraGenerator
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.interfaces.backbone import Model
from meristem.training.optim.cautious_adamw import CautiousAdamW
from meristem.training.optim.layer_depth import layer_depths
from meristem.training.optim.muon import Muon, MuonVariant
from meristem.training.settings import TrainSettings
from meristem.training.train_state import DECLARED_SPLIT


def parameter_names(model: nn.Module) -> dict[nn.Parameter, str]:
    """Parameter → name; a tied parameter has its first name."""
    return {parameter: name for name, parameter in model.named_parameters()}


def build_optimizers(
    model: Model,
    settings: TrainSettings,
    distributed: DistributedContext = SINGLE_PROCESS,
    *,
    muon_split: str = DECLARED_SPLIT,
) -> list[torch.optim.Optimizer]:
    """Fused AdamW for all parameters, or Muon for the backbone's matrices and AdamW for the rest."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    matrices = muon_parameters(model) if settings.optimizer == "muon" else []
    matrix_ids = {id(p) for p in matrices}
    depth_by_parameter = layer_depths(model) if settings.layer_lr_decay < 1 else dict.fromkeys(trainable, 0)
    optimizers: list[torch.optim.Optimizer] = []
    if adamw_parameters := [p for p in trainable if id(p) not in matrix_ids]:
        groups = _param_groups(adamw_parameters, depth_by_parameter, settings, settings.learning_rate)
        adamw = CautiousAdamW if settings.cautious_weight_decay else torch.optim.AdamW
        optimizers.append(
            adamw(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=True)
        )
    if matrices:
        # the factor was measured on WikiText-2: docs/log/2026-11.md
        muon_learning_rate = settings.muon_learning_rate or 4 * settings.learning_rate
        groups = _param_groups(matrices, depth_by_parameter, settings, muon_learning_rate)
        optimizers.append(
            Muon(
                groups,
                muon_learning_rate,
                momentum=settings.muon_momentum,
                weight_decay=settings.weight_decay,
                split_sizes=muon_split_sizes(model, muon_split),
                variant=MuonVariant(
                    newton_schulz_steps=settings.newton_schulz_steps,
                    normalizes_rows=settings.muon_normalize,
                    cautious_weight_decay=settings.cautious_weight_decay,
                ),
                distributed=distributed,
            )
        )
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"], group["initial_weight_decay"] = group["lr"], group["weight_decay"]
    return optimizers


def muon_parameters(model: Model) -> list[nn.Parameter]:
    """Trainable weights of linear layers in the backbone and in the body of an ELECTRA generator."""
    return list(_muon_linears(model))


def muon_split_sizes(model: Model, muon_split: str) -> dict[nn.Parameter, tuple[int, ...]]:
    """Fused weight → rows of each part, as its module declares them; or by shape, in a run that started that way."""
    linears = _muon_linears(model)
    if muon_split == DECLARED_SPLIT:
        return {weight: linear.output_sizes for weight, linear in linears.items() if isinstance(linear, FusedLinear)}
    return {
        weight: (linear.in_features,) * (linear.out_features // linear.in_features)
        for weight, linear in linears.items()
        if linear.out_features % linear.in_features == 0
    }


def _muon_linears(model: Model) -> dict[nn.Parameter, nn.Linear]:
    """Trainable weight → its linear layer, of the backbone and of the body of an ELECTRA generator."""
    bodies = [model.backbone, *(head.body for head in model.heads.values() if isinstance(head, ElectraGenerator))]
    linears = [module for body in bodies for module in body.modules() if isinstance(module, nn.Linear)]
    return {
        linear.weight: linear
        for linear in linears
        if isinstance(linear.weight, nn.Parameter) and linear.weight.requires_grad
    }


def _param_groups(
    parameters: Iterable[nn.Parameter],
    depth_by_parameter: Mapping[nn.Parameter, int],
    settings: TrainSettings,
    learning_rate: float,
) -> list[dict[str, Any]]:
    """Groups by depth and by weight decay (none for norms and biases); the learning rate falls with the depth."""
    grouped: dict[tuple[bool, int], list[nn.Parameter]] = {}
    for parameter in parameters:
        grouped.setdefault((parameter.ndim < 2, depth_by_parameter[parameter]), []).append(parameter)
    return [
        {
            "params": grouped[no_decay, depth],
            "weight_decay": 0.0 if no_decay else settings.weight_decay,
            "lr": learning_rate * settings.layer_lr_decay**depth,
        }
        for no_decay, depth in sorted(grouped)
    ]


def set_lr_factor(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Set the learning rate of every group to its peak times `factor`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor


def set_weight_decay_factor(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Set the weight decay of every group to its setting times `factor`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["weight_decay"] = group["initial_weight_decay"] * factor
