"""ELMo's configuration and weight map in AllenNLP's format: TensorFlow's tensor names and gate order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from meristem.interop.model_type import ConfigEntry, HeadMapping, ModelType
from meristem.interop.weight_map import TRANSPOSE, WeightRule, WeightTransform

SOFTMAX = ("softmax/W", "softmax/b")
GATE_ORDER = [0, 2, 3, 1]  # AllenNLP's gates (input, new, forget, output) in our order: input, forget, output, new
INVERSE_GATE_ORDER = [0, 3, 1, 2]


class ConvFilter(WeightTransform):
    """AllenNLP has [1, characters, in, out], we have [out, in, characters]."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (tensor,) = theirs
        return tensor[0].permute(2, 1, 0)

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return [ours.permute(2, 1, 0)[None]]


@dataclass(frozen=True)
class LSTMGates(WeightTransform):
    """LSTM weights of both directions stacked, gates in our order: input or recurrent rows of AllenNLP's matrix."""

    recurrent: bool

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        rows = slice(settings.hidden_size, None) if self.recurrent else slice(settings.hidden_size)
        return torch.stack([_reorder_gates(tensor[rows], GATE_ORDER) for tensor in theirs])

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return [_reorder_gates(direction, INVERSE_GATE_ORDER) for direction in ours]


class LSTMBias(WeightTransform):
    """LSTM biases of both directions concatenated; AllenNLP adds 1 to the forget gate's bias at run time."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        bias = torch.stack([_reorder_gates(tensor, GATE_ORDER) for tensor in theirs]).view(len(theirs), 4, -1)
        bias[:, 1] += 1
        return bias.flatten()

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        bias = ours.clone().view(num_parts, 4, -1)
        bias[:, 1] -= 1
        return [_reorder_gates(direction, INVERSE_GATE_ORDER) for direction in bias.flatten(1)]


class StackDirections(WeightTransform):
    """Two tensors of AllenNLP, one for each direction, stacked along a new first dimension."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        return torch.stack(list(theirs))

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return list(ours)


def _reorder_gates(gates: Tensor, order: list[int]) -> Tensor:
    """[..., 4 · cells] with its four gates in another order."""
    return gates.view(*gates.shape[:-1], 4, -1)[..., order, :].flatten(-2)


def _cell_names(name: str) -> tuple[str, ...]:
    return tuple(f"RNN_{direction}/RNN/MultiRNNCell/Cell{{}}/LSTMCell/{name}" for direction in range(2))


def _dense_rules(ours: str, their_prefix: str, name: str) -> tuple[WeightRule, WeightRule]:
    return WeightRule(f"{ours}.weight", f"{their_prefix}/W_{name}", TRANSPOSE), WeightRule(
        f"{ours}.bias", f"{their_prefix}/b_{name}"
    )


class ElmoModelType(ModelType):
    """Character embeddings, convolutions, highway layers, and a bidirectional LSTM with projections (ELMo)."""

    name, family = "elmo", "elmo"
    config_entries = (
        ConfigEntry("layers", "lstm.n_layers", 2),
        ConfigEntry("hidden_size", "lstm.projection_dim", 512),
        ConfigEntry("cell_size", "lstm.dim", 4096),
        ConfigEntry("cell_clip", "lstm.cell_clip", None),
        ConfigEntry("state_clip", "lstm.proj_clip", None),
        ConfigEntry("residual", "lstm.use_skip_connections", True),
        ConfigEntry("char_embedding_size", "char_cnn.embedding.dim", 16),
        ConfigEntry("char_filters", "char_cnn.filters", ()),
        ConfigEntry("highway_layers", "char_cnn.n_highway", 2),
        ConfigEntry("activation", "char_cnn.activation", "relu", {"relu": "relu"}),
    )
    required_config = {"char_cnn.max_characters_per_token": 50}
    training_settings = frozenset({"max_length", "dropout"})
    body_rules = (
        WeightRule("backbone.characters.letters.weight", "char_embed"),
        WeightRule("backbone.characters.filters.{}.weight", "CNN/W_cnn_{}", ConvFilter()),
        WeightRule("backbone.characters.filters.{}.bias", "CNN/b_cnn_{}"),
        *_dense_rules("backbone.characters.highways.{}.gate", "CNN_high_{}", "carry"),
        *_dense_rules("backbone.characters.highways.{}.transform", "CNN_high_{}", "transform"),
        *_dense_rules("backbone.characters.project", "CNN_proj", "proj"),
        WeightRule("backbone.layers.{}.read", _cell_names("W_0"), LSTMGates(recurrent=False)),
        WeightRule("backbone.layers.{}.recur", _cell_names("W_0"), LSTMGates(recurrent=True)),
        WeightRule("backbone.layers.{}.bias", _cell_names("B"), LSTMBias()),
        WeightRule("backbone.layers.{}.project", _cell_names("W_P_0"), StackDirections()),
        WeightRule("backbone.words.weight", SOFTMAX[0]),
    )
    heads = {"bilm": HeadMapping("vocabulary", (WeightRule("heads.bilm.bias", SOFTMAX[1]),))}
