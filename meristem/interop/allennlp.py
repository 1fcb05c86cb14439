"""ELMo's settings and tensors as AllenNLP keeps them: TensorFlow's names, and its gates in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from meristem.interop.lines import LYING, Line, Way
from meristem.interop.published import Carried, Entry, Published

SOFTMAX = ("softmax/W", "softmax/b")
ORDER = [0, 2, 3, 1]  # their gates (input, new, forget, output) in ours: input, forget, output, new
BACK = [0, 3, 1, 2]


class Filter(Way):
    """Theirs is [1, letters, in, out] where ours is [out, in, letters]."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (one,) = theirs
        return one[0].permute(2, 1, 0)

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return [ours.permute(2, 1, 0)[None]]


@dataclass(frozen=True)
class Gates(Way):
    """Both directions together, gates in our order: the rows of theirs that are read from below, or from before."""

    before: bool

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        rows = slice(settings.width, None) if self.before else slice(settings.width)
        return torch.stack([_ordered(one[rows], ORDER) for one in theirs])

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return [_ordered(one, BACK) for one in ours]


class Forgetting(Way):
    """Biases of both directions one after the other; theirs add 1 to the forget gate's while they compute."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        made = torch.stack([_ordered(one, ORDER) for one in theirs]).view(len(theirs), 4, -1)
        made[:, 1] += 1
        return made.flatten()

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        made = ours.clone().view(parts, 4, -1)
        made[:, 1] -= 1
        return [_ordered(one, BACK) for one in made.flatten(1)]


class Stacked(Way):
    """Theirs are two, ours is one that has them along a dimension of its own."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        return torch.stack(list(theirs))

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return list(ours)


def _ordered(gates: Tensor, order: list[int]) -> Tensor:
    """[..., 4 · cells] with its four gates in another order."""
    return gates.view(*gates.shape[:-1], 4, -1)[..., order, :].flatten(-2)


def _cells(name: str) -> tuple[str, ...]:
    return tuple(f"RNN_{way}/RNN/MultiRNNCell/Cell{{}}/LSTMCell/{name}" for way in range(2))


def _dense(ours: str, place: str, name: str) -> tuple[Line, Line]:
    return Line(f"{ours}.weight", f"{place}/W_{name}", LYING), Line(f"{ours}.bias", f"{place}/b_{name}")


class AllenNLP(Published):
    """Letters, convolutions, highways, and two directions of LSTMs that are projected."""

    type, family = "elmo", "elmo"
    entries = (
        Entry("layers", "lstm.n_layers", 2),
        Entry("width", "lstm.projection_dim", 512),
        Entry("cells", "lstm.dim", 4096),
        Entry("cell_clip", "lstm.cell_clip", None),
        Entry("state_clip", "lstm.proj_clip", None),
        Entry("residual", "lstm.use_skip_connections", True),
        Entry("letter_width", "char_cnn.embedding.dim", 16),
        Entry("filters", "char_cnn.filters", ()),
        Entry("highways", "char_cnn.n_highway", 2),
        Entry("activation", "char_cnn.activation", "relu", {"relu": "relu"}),
    )
    demands = {"char_cnn.max_characters_per_token": 50}
    free = frozenset({"length", "dropout"})
    body = (
        Line("backbone.characters.letters.weight", "char_embed"),
        Line("backbone.characters.filters.{}.weight", "CNN/W_cnn_{}", Filter()),
        Line("backbone.characters.filters.{}.bias", "CNN/b_cnn_{}"),
        *_dense("backbone.characters.highways.{}.gate", "CNN_high_{}", "carry"),
        *_dense("backbone.characters.highways.{}.transform", "CNN_high_{}", "transform"),
        *_dense("backbone.characters.project", "CNN_proj", "proj"),
        Line("backbone.layers.{}.read", _cells("W_0"), Gates(before=False)),
        Line("backbone.layers.{}.recur", _cells("W_0"), Gates(before=True)),
        Line("backbone.layers.{}.bias", _cells("B"), Forgetting()),
        Line("backbone.layers.{}.project", _cells("W_P_0"), Stacked()),
        Line("backbone.words.weight", SOFTMAX[0]),
    )
    heads = {"bilm": Carried("vocabulary", (Line("heads.bilm.bias", SOFTMAX[1]),))}
