"""Backbones that the toy objectives need and no family offers yet."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.vocabulary import VocabularyHead
from meristem.models.bert import Bert, BertSettings
from meristem.settings import Settings

WIDTH = 16


class ToySettings(Settings):
    """Nothing to choose."""


class Generator(nn.Module):
    """A smaller self that guesses masked words; its embeddings are the discriminator's."""

    def __init__(self, embedding: nn.Embedding, length: int) -> None:
        super().__init__()
        self.body = Bert(BertSettings(layers=1, width=8, heads=2, length=length), embedding.num_embeddings)
        self.words = VocabularyHead(embedding, transform=nn.Linear(8, embedding.embedding_dim))


class Discriminator(Bert):
    """BERT that can also make a generator and a score per token."""

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """ELECTRA's generator is a head."""
        match kind:
            case "generator":
                return Generator(self.embedding(), self.length)
            case "score":
                return nn.Linear(self.width, 1)
        return super().makes(kind, **sizes)


class TwoStream(Backbone):
    """Query slots read the content of tokens earlier in the order, and what the segment before left behind."""

    Settings = ToySettings
    can = frozenset({"two_stream", "memory"})

    def __init__(self, vocabulary: int, length: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.length, self.dropout = WIDTH, length, dropout
        self.words, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(length, WIDTH)
        self.read, self.mix = nn.Linear(WIDTH, WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, *, state: State | None = None, **inputs: Any) -> Hidden:
        """`slots` are the positions to predict, `rank` is each token's place in the order."""
        tokens, rank, slots, fresh = (inputs[key] for key in ("tokens", "rank", "slots", "fresh"))
        before = state["memory"] if state else self.words.weight.new_zeros(len(tokens), WIDTH)
        memory = before * ~fresh
        content = self.read(self.words(tokens) + self.places.weight[: tokens.shape[1]])
        earlier = rank[:, None, :] < rank.gather(1, slots)[:, :, None]
        context = (earlier.to(content.dtype) / earlier.sum(-1, keepdim=True).clamp(min=1)) @ content
        query = torch.cat([self.places(slots), context, memory[:, None].expand_as(context)], -1)
        last = F.dropout(torch.tanh(self.mix(query)), self.dropout, self.training)
        return Hidden(last=last, state={"memory": torch.tanh(memory / 2 + content.mean(1)).detach()})

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """Words, tied."""
        return VocabularyHead(self.words)

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.words


class BothWays(Backbone):
    """A recurrent net from each side; what they know of a position stands side by side."""

    Settings = ToySettings
    can = frozenset({"both_directions"})

    def __init__(self, vocabulary: int, length: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.length, self.dropout = 2 * WIDTH, length, dropout
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.cells = nn.ModuleList(nn.GRUCell(WIDTH, WIDTH) for _ in range(2))

    def forward(self, *, state: State | None = None, **inputs: Any) -> Hidden:
        """Padding leaves a state as it is, so that a short row reads the same from its end."""
        tokens = inputs["tokens"]
        present = inputs.get("present", torch.ones_like(tokens, dtype=torch.bool))
        x = F.dropout(self.words(tokens), self.dropout, self.training)
        ways = [self._run(cell, x, present, order) for cell, order in zip(
            self.cells, (range(x.shape[1]), range(x.shape[1] - 1, -1, -1)), strict=True)]
        return Hidden(last=torch.cat(ways, -1), layers=(x,))

    def _run(self, cell: nn.Module, x: Tensor, present: Tensor, order: range) -> Tensor:
        state, out = x.new_zeros(len(x), WIDTH), {}
        for at in order:
            state = torch.where(present[:, at, None], cell(x[:, at], state), state)
            out[at] = state
        return torch.stack([out[at] for at in range(x.shape[1])], 1)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """Words, tied, for either half."""
        return VocabularyHead(self.words)

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.words


class Reader(Bert):
    """BERT that can also score places."""

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """A score per place."""
        return nn.Linear(self.width, 1) if kind == "place" else super().makes(kind, **sizes)
