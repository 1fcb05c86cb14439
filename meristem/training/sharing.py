"""What each of several devices would hold and send, counted from the model: a copy each, or a part of every weight."""

from __future__ import annotations

from dataclasses import dataclass

from meristem.learning.learner import Learner
from meristem.learning.spread import layers_of
from meristem.training.optimizers import matrices_of
from meristem.training.settings import TrainSettings

FLOAT = 4
"""Bytes of a number; weights, gradients and what optimizers keep are in float32."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers in a model, by what becomes of them in a step."""

    weights: int
    learning: int
    matrices: int
    """Of those that learn, the ones Muon moves."""
    layers: int
    """Weights of layers, which are gathered twice in a step where they lie in parts."""
    largest: int
    """The most that is gathered for one layer."""

    @property
    def kept(self) -> int:
        """Bytes of weights, gradients and what optimizers remember: two averages for AdamW, one for Muon."""
        return FLOAT * (self.weights + self.learning + 2 * (self.learning - self.matrices) + self.matrices)


def sizes_of(learner: Learner, settings: TrainSettings) -> Sizes:
    """Count a model."""
    parameters = list(learner.parameters())
    layers = [sum(p.numel() for p in layer.parameters()) for layer in layers_of(learner)]
    return Sizes(
        weights=sum(p.numel() for p in parameters),
        learning=sum(p.numel() for p in parameters if p.requires_grad),
        matrices=sum(p.numel() for p in matrices_of(learner.model)) if settings.optimizer == "muon" else 0,
        layers=sum(layers),
        largest=max(layers, default=0),
    )


@dataclass(frozen=True, kw_only=True)
class Shared:
    """One of several devices."""

    devices: int
    sharded: bool
    held: int
    """Bytes of weights, gradients and what optimizers remember."""
    memory: int
    """Bytes in all, above the idle process: what is held, what is gathered for a while, and activations."""
    sent: int
    """Bytes that a process sends to others in a step, on the average."""


def shared(sizes: Sizes, devices: int, *, sharded: bool, activations: float) -> Shared:
    """What one of `devices` holds and sends; `activations` are the bytes that its rows of a pass take."""
    others = (devices - 1) / devices
    if not sharded or devices == 1:
        # gradients go round twice: once to be summed, once to be told; of Muon's matrices each makes its share
        sent = others * FLOAT * (2 * sizes.learning + sizes.matrices)
        return Shared(
            devices=devices, sharded=False, held=sizes.kept, memory=round(sizes.kept + activations), sent=round(sent)
        )
    gathered = FLOAT * (sizes.weights - sizes.layers + 2 * sizes.largest)
    # weights once for the way forward, those of layers again for the way back, gradients, and Muon's matrices, whole
    # before each process makes its share of them orthogonal, and again afterwards
    sent = others * FLOAT * (sizes.weights + sizes.layers + 2 * sizes.learning + 2 * sizes.matrices)
    held = round(sizes.kept / devices)
    return Shared(
        devices=devices, sharded=True, held=held, memory=round(held + gathered + activations), sent=round(sent)
    )
