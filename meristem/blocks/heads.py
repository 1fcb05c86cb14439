"""Small heads that families share."""

from __future__ import annotations

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


class PooledHead(nn.Module):
    """tanh of a dense layer at one position, then a score per class: BERT's pooler and what stands on it."""

    def __init__(self, width: int, classes: int, deviation: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.score = nn.Linear(width, classes)
        for linear in (self.dense, self.score):
            nn.init.normal_(linear.weight, std=deviation)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[n, D] → [n, classes]."""
        return self.score(torch.tanh(self.dense(states)))  # type: ignore[no-any-return]  # nn.Module.__call__


def tags(width: int, classes: int, deviation: float) -> nn.Linear:
    """A score per class at every token."""
    made = nn.Linear(width, classes)
    nn.init.normal_(made.weight, std=deviation)
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
