"""Heads shared by all model families: classification, token classification, pooler, probes, task networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from meristem.blocks.embeddings.scalar_mix import ScalarMix
from meristem.blocks.heads.crf import CRF
from meristem.blocks.heads.hashed_linear import HashedLinear
from meristem.blocks.heads.kl_controller import AdaptiveKLController
from meristem.blocks.transformer.feed_forward import GATED_ACTIVATIONS, ActivationName, activate
from meristem.blocks.transformer.norms import NormName, build_norm
from meristem.config.errors import MeristemError


class PredictionTransform(nn.Module):
    """BERT's transform between the last layer and the vocabulary: dense, activation, norm."""

    def __init__(
        self,
        hidden_size: int,
        activation: ActivationName,
        norm_name: NormName,
        eps: float,
        init_std: float,
        *,
        out_size: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation: ActivationName = "gelu" if activation in GATED_ACTIVATIONS else activation
        self.dense = nn.Linear(hidden_size, out_size or hidden_size, bias=bias)
        self.norm = build_norm(norm_name, out_size or hidden_size, eps, bias=bias)
        nn.init.normal_(self.dense.weight, std=init_std)
        if bias:
            nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → [..., out_size], the embedding size where it differs from the hidden size."""
        return self.norm(activate(self.activation, self.dense(states)))  # type: ignore[no-any-return]  # nn.Module.__call__


class ScaleStates(nn.Module):
    """Hidden states times a constant: T5's scaling before an output layer tied to its embeddings."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] → [..., D]."""
        return states * self.factor


PoolerName = Literal["tanh", "gelu", "relu"]


class PooledHead(nn.Module):
    """Sequence classification: BERT's pooler (dense, tanh) at one position, then a linear classifier.

    ELECTRA uses gelu in place of tanh, DistilBERT relu.
    """

    def __init__(self, hidden_size: int, num_classes: int, init_std: float, activation: PoolerName = "tanh") -> None:
        super().__init__()
        self.activation: PoolerName = activation
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, num_classes)
        for linear in (self.dense, self.score):
            nn.init.normal_(linear.weight, std=init_std)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[N, D] → [N, classes]."""
        pooled = self.dense(states)
        pooled = torch.tanh(pooled) if self.activation == "tanh" else activate(self.activation, pooled)
        return self.score(pooled)  # type: ignore[no-any-return]  # nn.Module.__call__


class TransformedHead(nn.Module):
    """Sequence classification of ModernBERT: a transform as in its vocabulary head, then a linear classifier."""

    def __init__(self, transform: PredictionTransform, input_size: int, num_classes: int, init_std: float) -> None:
        super().__init__()
        self.transform = transform
        self.score = build_token_classifier(input_size, num_classes, init_std)

    def forward(self, states: Tensor) -> Tensor:
        """[N, D] → [N, classes]."""
        return self.score(self.transform(states))  # type: ignore[no-any-return]  # nn.Module.__call__


class Pooler(nn.Module):
    """BERT's pooler without a classifier: dense and tanh at one position."""

    def __init__(self, hidden_size: int, init_std: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        nn.init.normal_(self.dense.weight, std=init_std)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[N, D] → [N, D]."""
        return torch.tanh(self.dense(states))


def build_token_classifier(hidden_size: int, num_classes: int, init_std: float, *, bias: bool = True) -> nn.Linear:
    """Linear classifier of every token."""
    linear = nn.Linear(hidden_size, num_classes, bias=bias)
    nn.init.normal_(linear.weight, std=init_std)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


class TokenScoreHead(nn.Module):
    """ELECTRA's discriminator head: dense, activation, one score per token."""

    def __init__(self, hidden_size: int, activation: ActivationName, init_std: float) -> None:
        super().__init__()
        self.activation: ActivationName = "gelu" if activation in GATED_ACTIVATIONS else activation
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1)
        for linear in (self.dense, self.score):
            nn.init.normal_(linear.weight, std=init_std)
            nn.init.zeros_(linear.bias)

    def forward(self, states: Tensor) -> Tensor:
        """[N, D] → [N]."""
        return self.score(activate(self.activation, self.dense(states))).squeeze(-1)  # type: ignore[no-any-return]  # nn.Module.__call__


class TaskNetwork(nn.Module):
    """Task-specific network on top of hidden states: a bidirectional LSTM, or one dense layer with ReLU."""

    def __init__(self, hidden_size: int, output_size: int, *, recurrent: bool) -> None:
        super().__init__()
        self.recurrent = (
            nn.LSTM(hidden_size, output_size // 2, bidirectional=True, batch_first=True) if recurrent else None
        )
        self.dense = None if recurrent else nn.Linear(hidden_size, output_size)

    def forward(self, states_BTD: Tensor, present_BT: Tensor | None = None) -> Tensor:
        """[B, T, D] → [B, T, output size]; padding on the right is ignored."""
        if self.recurrent is None:
            assert self.dense is not None
            return torch.relu(self.dense(states_BTD))
        if present_BT is None or states_BTD.is_meta:  # meta tensors have no lengths
            return self.recurrent(states_BTD)[0]  # type: ignore[no-any-return]  # nn.Module.__call__
        packed = pack_padded_sequence(states_BTD, present_BT.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.recurrent(packed)[0], batch_first=True, total_length=states_BTD.shape[1])[0]


class LayerProbes(nn.Module):
    """One linear probe per layer, on layer-normalized states, so that layers can be compared."""

    def __init__(self, num_layers: int, hidden_size: int, num_classes: int, init_std: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            build_token_classifier(hidden_size, num_classes, init_std) for _ in range(num_layers)
        )

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Each layer's states [N, D] → [layers, N, classes]."""
        return torch.stack(
            [probe(F.layer_norm(layer, layer.shape[-1:])) for probe, layer in zip(self.layers, states, strict=True)]
        )


def build_embedding(num_embeddings: int, hidden_size: int) -> nn.Embedding:
    """A task's own embedding table."""
    table = nn.Embedding(num_embeddings, hidden_size)
    nn.init.normal_(table.weight, std=hidden_size**-0.5)
    return table


SHARED_KINDS = ("pooled", "tags", "scores", "mix", "network", "embedding", "crf", "ngrams", "probes", "leash")


def head_input_size(backbone: Any, sizes: Mapping[str, int]) -> int:
    """Input size of a head: `width` (default: the hidden size) · `times` + `beside` for concatenated states."""
    input_size: int = sizes.get("width", backbone.hidden_size) * sizes.get("times", 1)
    return input_size + sizes.get("beside", 0)


def build_shared_head(backbone: Any, kind: str, sizes: Mapping[str, int], family_kinds: tuple[str, ...]) -> nn.Module:
    """A head that all families build the same way, by default with the hidden size as input size.

    `family_kinds` are the kinds a family builds itself, for the message when a kind is unknown.
    """
    settings, input_size = backbone.settings, head_input_size(backbone, sizes)
    init_std = getattr(settings, "init_std", getattr(settings, "init_range", input_size**-0.5))
    match kind:
        case "pooled":
            return PooledHead(input_size, sizes["classes"], init_std)
        case "tags" | "scores":
            return build_token_classifier(input_size, sizes["classes"], init_std, bias=kind == "tags")
        case "mix":
            return ScalarMix(settings.layers + 1)
        case "network":
            return TaskNetwork(input_size, sizes["hidden"], recurrent=bool(sizes.get("recurrent", 1)))
        case "embedding":
            return build_embedding(sizes["rows"], sizes["width"])
        case "crf":
            return CRF(sizes["classes"])
        case "ngrams":
            return HashedLinear(sizes["rows"], sizes["classes"], sizes["scale"])
        case "probes":
            return LayerProbes(settings.layers + 1, input_size, sizes["classes"], init_std)
        case "leash":
            return AdaptiveKLController()
    known_kinds = ", ".join(dict.fromkeys((*family_kinds, *SHARED_KINDS)))
    raise MeristemError(f"the {settings.family} family has no head {kind!r}; it has {known_kinds}")
