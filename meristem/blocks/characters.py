"""Words made vectors from their letters: convolutions of several widths, the loudest answer of each, highways."""

# B batch, T words, C letters of a word, N different words, E width of a letter, F filters, D width

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.feed_forward import ActivationName, activate


class Highway(nn.Module):
    """y = g ∘ f(Wx + b) + (1 − g) ∘ x with g = σ(W'x + b'); b' begins at −2, so that at first most of x is carried."""

    def __init__(self, width: int, activation: ActivationName) -> None:
        super().__init__()
        self.activation = activation
        self.transform, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        for linear, bias in ((self.transform, 0.0), (self.gate, -2.0)):
            nn.init.normal_(linear.weight, std=width**-0.5)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., F] → [..., F]."""
        return torch.lerp(x, activate(self.activation, self.transform(x)), self.gate(x).sigmoid())


class Characters(nn.Module):
    """A word's letters [C] → its vector [D]; a word that stands in several places is read once."""

    def __init__(
        self,
        alphabet: int,
        width: int,
        filters: Sequence[tuple[int, int]],
        *,
        letter_width: int,
        highways: int,
        activation: ActivationName = "relu",
        blank: int,
    ) -> None:
        super().__init__()
        self.activation, self.blank = activation, blank
        self.widest = max(span for span, _ in filters)
        self.letters = nn.Embedding(alphabet, letter_width)
        self.filters = nn.ModuleList(nn.Conv1d(letter_width, number, span) for span, number in filters)
        total = sum(number for _, number in filters)
        self.highways = nn.Sequential(*(Highway(total, activation) for _ in range(highways)))
        self.project = nn.Linear(total, width)
        nn.init.uniform_(self.letters.weight, -1.0, 1.0)
        nn.init.normal_(self.project.weight, std=total**-0.5)
        nn.init.zeros_(self.project.bias)

    def forward(self, letters_BTC: Tensor) -> Tensor:
        """[B, T, C] → [B, T, D]."""
        every = letters_BTC.flatten(0, -2)
        if every.is_meta:  # costs are counted without knowing which words are the same
            return self._read(every).view(*letters_BTC.shape[:-1], -1)
        words_NC, which = torch.unique(every, dim=0, return_inverse=True)
        vectors_ND = self._read(self._cut(words_NC))
        return F.embedding(which.view(letters_BTC.shape[:-1]), vectors_ND)

    def _cut(self, words_NC: Tensor) -> Tensor:
        """Without the blanks that no filter can tell from those before them."""
        used = int((words_NC != self.blank).any(0).nonzero().amax()) + 1
        return words_NC[:, : used + self.widest]

    def _read(self, words_NC: Tensor) -> Tensor:
        x_NEC = self.letters(words_NC.long()).mT
        loudest = [convolve(x_NEC).amax(-1) for convolve in self.filters]
        x_NF = activate(self.activation, torch.cat(loudest, 1))
        return self.project(self.highways(x_NF))  # type: ignore[no-any-return]  # nn.Module.__call__
