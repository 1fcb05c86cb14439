"""A bag of words with positions: each token is combined with the mean of its text."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.heads.task_heads import build_shared_head
from meristem.interfaces.backbone import Backbone, Hidden, State
from meristem.models.settings import ModelSettings


class ContextMeanSettings(ModelSettings):
    """A small model by default."""

    family: Literal["context-mean"] = "context-mean"
    """The family this model belongs to."""
    layers: int = Field(1, ge=1)
    """Number of layers."""
    hidden_size: int = Field(32, ge=2)
    """Size of the hidden states."""
    max_length: int = Field(64, ge=4)
    """Maximum input length, in tokens."""


class ContextMean(Backbone):
    """Embeddings, and layers that add a function of each token and of the mean over its text."""

    Settings = ContextMeanSettings
    capabilities = frozenset({"bidirectional"})

    def __init__(self, settings: ContextMeanSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.hidden_size, self.max_length = settings, settings.hidden_size, settings.max_length
        self.tokens = nn.Embedding(vocab_size, settings.hidden_size)
        self.layers = nn.ModuleList(
            nn.Linear(2 * settings.hidden_size, settings.hidden_size) for _ in range(settings.layers)
        )

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        tokens: Tensor,
        present: Tensor | None = None,
        segments: Tensor | None = None,
        state: State | None = None,
    ) -> Hidden:
        """[B, T] → Hidden; `present` [B, T] is false at padding, `segments` are not used."""
        x = self.tokens(tokens)
        weights = (torch.ones_like(tokens) if present is None else present).to(x.dtype)[..., None]
        for layer in self.layers:
            mean = (weights * x).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
            x = x + layer(torch.cat([x, mean.expand_as(x)], -1)).tanh()
        return Hidden(last_hidden_state=x)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """The heads that all families share."""
        return build_shared_head(self, kind, sizes, ())

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens
