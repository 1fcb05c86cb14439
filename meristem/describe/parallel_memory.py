"""Memory and communication per device in data-parallel training (DDP) and sharded training (FSDP), from model sizes."""

from __future__ import annotations

from dataclasses import dataclass

from meristem.distributed.parallel import fsdp_layers
from meristem.learning.learner import Learner
from meristem.training.optim.param_groups import muon_parameters
from meristem.training.settings import TrainSettings

FLOAT_BYTES = 4
"""Bytes per value; weights, gradients and optimizer state are float32."""


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """Parameter counts of a model, by their role in a step."""

    weights: int
    trainable: int
    matrices: int
    """Trainable parameters that Muon updates."""
    layers: int
    """Weights of layers, which FSDP gathers twice in a step."""
    largest: int
    """Weights of the largest layer that FSDP gathers at once."""
    averaged: int = 0
    """Weights of which an average is kept."""

    @property
    def state_bytes(self) -> int:
        """Bytes of weights, their average, gradients and optimizer state: two moments for AdamW, one for Muon."""
        moments = 2 * (self.trainable - self.matrices) + self.matrices
        return FLOAT_BYTES * (self.weights + self.averaged + self.trainable + moments)


def count_sizes(learner: Learner, settings: TrainSettings) -> ModelSizes:
    """Count the parameters of a model."""
    parameters = list(learner.parameters())
    weights = sum(p.numel() for p in parameters)
    layer_sizes = [sum(p.numel() for p in layer.parameters()) for layer in fsdp_layers(learner)]
    return ModelSizes(
        weights=weights,
        trainable=sum(p.numel() for p in parameters if p.requires_grad),
        matrices=sum(p.numel() for p in muon_parameters(learner.model)) if settings.optimizer == "muon" else 0,
        layers=sum(layer_sizes),
        largest=max(layer_sizes, default=0),
        averaged=0 if settings.ema_decay is None else weights,
    )


@dataclass(frozen=True, kw_only=True)
class DeviceCost:
    """Memory and communication of one of several devices; the field names are JSON keys."""

    devices: int
    sharded: bool
    held: int
    """Bytes of weights, gradients and optimizer state."""
    memory: int
    """Total bytes above the idle process: state, temporarily gathered weights, and activations."""
    sent: int
    """Mean bytes that a process sends to others in a step."""


def device_cost(sizes: ModelSizes, devices: int, *, sharded: bool, activations: float) -> DeviceCost:
    """Cost of one of `devices`; `activations` are the bytes of activations of its rows."""
    remote_share = (devices - 1) / devices
    if not sharded or devices == 1:
        # all-reduce of gradients (reduce-scatter and all-gather), and all-gather of Muon's orthogonalized matrices
        bytes_sent = remote_share * FLOAT_BYTES * (2 * sizes.trainable + sizes.matrices)
        return DeviceCost(
            devices=devices,
            sharded=False,
            held=sizes.state_bytes,
            memory=round(sizes.state_bytes + activations),
            sent=round(bytes_sent),
        )
    gathered_bytes = FLOAT_BYTES * (sizes.weights - sizes.layers + 2 * sizes.largest)
    # all-gather of weights for the forward pass and of layers again for the backward pass, gradients, and Muon's
    # matrices before and after orthogonalization
    bytes_sent = remote_share * FLOAT_BYTES * (sizes.weights + sizes.layers + 2 * sizes.trainable + 2 * sizes.matrices)
    state_bytes = round(sizes.state_bytes / devices)
    return DeviceCost(
        devices=devices,
        sharded=True,
        held=state_bytes,
        memory=round(state_bytes + gathered_bytes + activations),
        sent=round(bytes_sent),
    )
