"""Small heads that families share."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from meristem.blocks.feed_forward import GATED, ActivationName, activate
from meristem.blocks.norms import NormName, norm
from meristem.settings import MeristemError


class Transform(nn.Module):
    """Dense, activation, norm: what BERT puts between the last layer and the vocabulary."""

    def __init__(
        self,
        width: int,
        activation: ActivationName,
        norm_name: NormName,
        epsilon: float,
        deviation: float,
        *,
        out: int | None = None,
    ) -> None:
        super().__init__()
        self.activation: ActivationName = "gelu" if activation in GATED else activation
        self.dense = nn.Linear(width, out or width)
        self.norm = norm(norm_name, out or width, epsilon)
        nn.init.normal_(self.dense.weight, std=deviation)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → [..., out], the width of the embedding where that is another one."""
        return self.norm(activate(self.activation, self.dense(states)))  # type: ignore[no-any-return]  # nn.Module.__call__


class Scaled(nn.Module):
    """States times a number: what T5 puts before a vocabulary that is tied to its embeddings."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → [..., D]."""
        return states * self.factor


PoolerName = Literal["tanh", "gelu", "relu"]


class PooledHead(nn.Module):
    """A dense layer and tanh at one position, then a score per class: BERT's pooler and what stands on it.

    ELECTRA has gelu there, DistilBERT relu.
    """

    def __init__(self, width: int, classes: int, deviation: float, activation: PoolerName = "tanh") -> None:
        super().__init__()
        self.activation: PoolerName = activation
        self.dense = nn.Linear(width, width)
        self.score = nn.Linear(width, classes)
        for linear in (self.dense, self.score):
            nn.init.normal_(linear.weight, std=deviation)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[n, D] → [n, classes]."""
        pooled = self.dense(states)
        pooled = torch.tanh(pooled) if self.activation == "tanh" else activate(self.activation, pooled)
        return self.score(pooled)  # type: ignore[no-any-return]  # nn.Module.__call__


class Pooler(nn.Module):
    """tanh of a dense layer at one position, with nothing on it: what a BERT saved without heads ends in."""

    def __init__(self, width: int, deviation: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        nn.init.normal_(self.dense.weight, std=deviation)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[n, D] → [n, D]."""
        return torch.tanh(self.dense(states))


def tags(width: int, classes: int, deviation: float, *, bias: bool = True) -> nn.Linear:
    """A score per class at every token."""
    made = nn.Linear(width, classes, bias=bias)
    nn.init.normal_(made.weight, std=deviation)
    if bias:
        nn.init.zeros_(made.bias)
    return made


class TokenScore(nn.Module):
    """Dense, activation, one number: ELECTRA's judgement of a token."""

    def __init__(self, width: int, activation: ActivationName, deviation: float) -> None:
        super().__init__()
        self.activation: ActivationName = "gelu" if activation in GATED else activation
        self.dense = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)
        for linear in (self.dense, self.score):
            nn.init.normal_(linear.weight, std=deviation)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[n, D] → [n]."""
        return self.score(activate(self.activation, self.dense(states))).squeeze(-1)  # type: ignore[no-any-return]  # nn.Module.__call__


def no_such_head(family: str, kind: str, known: tuple[str, ...]) -> MeristemError:
    """What to say when a family has no shape for a head."""
    return MeristemError(f"the {family} family makes no head {kind!r}; it makes {', '.join(known)}")
