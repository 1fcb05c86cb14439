"""Character CNN (ELMo): word vectors from characters by convolutions, max pooling and highway layers."""

# B batch, T words, C characters of a word, N distinct words, E character embedding size, F filters, D hidden size

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.transformer.feed_forward import ActivationName, activate


class Highway(nn.Module):
    """y = g ∘ f(Wx + b) + (1 − g) ∘ x, g = σ(W'x + b'); b' starts at −2, so that the layer is close to identity."""

    def __init__(self, hidden_size: int, activation: ActivationName) -> None:
        super().__init__()
        self.activation = activation
        self.transform, self.gate = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        for linear, bias in ((self.transform, 0.0), (self.gate, -2.0)):
            nn.init.normal_(linear.weight, std=hidden_size**-0.5)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., F] → [..., F]."""
        return torch.lerp(x, activate(self.activation, self.transform(x)), self.gate(x).sigmoid())


class CharCNN(nn.Module):
    """Character ids of a word [C] → word vector [D]; a word that occurs several times in a batch is computed once."""

    def __init__(
        self,
        num_chars: int,
        hidden_size: int,
        filters: Sequence[tuple[int, int]],
        *,
        char_embedding_size: int,
        num_highways: int,
        activation: ActivationName = "relu",
        padding_id: int,
    ) -> None:
        super().__init__()
        self.activation, self.padding_id = activation, padding_id
        self.max_filter_width = max(kernel_size for kernel_size, _ in filters)
        self.letters = nn.Embedding(num_chars, char_embedding_size)
        self.filters = nn.ModuleList(
            nn.Conv1d(char_embedding_size, num_filters, kernel_size) for kernel_size, num_filters in filters
        )
        total_filters = sum(num_filters for _, num_filters in filters)
        self.highways = nn.Sequential(*(Highway(total_filters, activation) for _ in range(num_highways)))
        self.project = nn.Linear(total_filters, hidden_size)
        nn.init.uniform_(self.letters.weight, -1.0, 1.0)
        nn.init.normal_(self.project.weight, std=total_filters**-0.5)
        nn.init.zeros_(self.project.bias)

    def forward(self, char_ids_BTC: Tensor) -> Tensor:
        """[B, T, C] → [B, T, D]."""
        flat_words = char_ids_BTC.flatten(0, -2)
        if flat_words.is_meta:  # when counting FLOPs, equal words are not known
            return self._encode_words(flat_words).view(*char_ids_BTC.shape[:-1], -1)
        words_NC, word_index = torch.unique(flat_words, dim=0, return_inverse=True)
        vectors_ND = self._encode_words(self._trim_padding(words_NC))
        return F.embedding(word_index.view(char_ids_BTC.shape[:-1]), vectors_ND)

    def _trim_padding(self, words_NC: Tensor) -> Tensor:
        """Without trailing padding beyond one filter width after the longest word, which changes no maximum."""
        used_C = (words_NC != self.padding_id).any(0)
        longest = int((used_C * torch.arange(1, len(used_C) + 1, device=used_C.device)).amax())
        return words_NC[:, : longest + self.max_filter_width]

    def _encode_words(self, words_NC: Tensor) -> Tensor:
        x_NEC = self.letters(words_NC.long()).mT
        pooled = [convolve(x_NEC).amax(-1) for convolve in self.filters]
        x_NF = activate(self.activation, torch.cat(pooled, 1))
        return self.project(self.highways(x_NF))  # type: ignore[no-any-return]  # nn.Module.__call__
