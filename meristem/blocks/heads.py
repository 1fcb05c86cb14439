"""Small heads that families share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from meristem.blocks.crf import CRF
from meristem.blocks.feed_forward import GATED, ActivationName, activate
from meristem.blocks.leash import Leash
from meristem.blocks.norms import NormName, norm
from meristem.blocks.scalar_mix import ScalarMix
from meristem.errors import MeristemError


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


class Network(nn.Module):
    """A task's own net over a model's states: a recurrent one of two directions, or one dense layer."""

    def __init__(self, width: int, hidden: int, *, recurrent: bool) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(width, hidden // 2, bidirectional=True, batch_first=True) if recurrent else None
        self.dense = None if recurrent else nn.Linear(width, hidden)

    def forward(self, states_BTD: Tensor, present_BT: Tensor | None = None) -> Tensor:
        """[B, T, D] → [B, T, hidden]; padding on the right is not read."""
        if self.recurrent is None:
            assert self.dense is not None
            return torch.relu(self.dense(states_BTD))
        if present_BT is None or states_BTD.is_meta:  # shapes alone have no lengths
            return self.recurrent(states_BTD)[0]  # type: ignore[no-any-return]  # nn.Module.__call__
        packed = pack_padded_sequence(states_BTD, present_BT.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.recurrent(packed)[0], batch_first=True, total_length=states_BTD.shape[1])[0]


class Probes(nn.Module):
    """A linear classifier for each layer, on states brought to one scale, so that layers can be compared."""

    def __init__(self, layers: int, width: int, classes: int, deviation: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(tags(width, classes, deviation) for _ in range(layers))

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Each layer's states [n, D] → [layers, n, classes]."""
        return torch.stack([
            probe(F.layer_norm(layer, layer.shape[-1:])) for probe, layer in zip(self.layers, states, strict=True)
        ])


def embedding(rows: int, width: int) -> nn.Embedding:
    """A table of a task's own, with a row for each token."""
    made = nn.Embedding(rows, width)
    nn.init.normal_(made.weight, std=width**-0.5)
    return made


SHARED = ("pooled", "tags", "scores", "mix", "network", "embedding", "crf", "probes", "leash")


def width_of(backbone: Any, sizes: Mapping[str, int]) -> int:
    """How wide the states are that a head reads: the backbone's or a net's, `times` so often, another `beside` it."""
    width: int = sizes.get("width", backbone.width) * sizes.get("times", 1)
    return width + sizes.get("beside", 0)


def shared_head(backbone: Any, kind: str, sizes: Mapping[str, int], own: tuple[str, ...]) -> nn.Module:
    """A head whose shape all families share, as wide as the model unless its sizes say otherwise.

    `own` are the kinds a family makes itself, for the message when a kind is unknown.
    """
    settings, width = backbone.settings, width_of(backbone, sizes)
    deviation = getattr(settings, "initial", width**-0.5)
    match kind:
        case "pooled":
            return PooledHead(width, sizes["classes"], deviation)
        case "tags" | "scores":
            return tags(width, sizes["classes"], deviation, bias=kind == "tags")
        case "mix":
            return ScalarMix(settings.layers + 1)
        case "network":
            return Network(width, sizes["hidden"], recurrent=bool(sizes.get("recurrent", 1)))
        case "embedding":
            return embedding(sizes["rows"], sizes["width"])
        case "crf":
            return CRF(sizes["classes"])
        case "probes":
            return Probes(settings.layers + 1, width, sizes["classes"], deviation)
        case "leash":
            return Leash()
    known = ", ".join(dict.fromkeys((*own, *SHARED)))
    raise MeristemError(f"the {settings.family} family makes no head {kind!r}; it makes {known}")
