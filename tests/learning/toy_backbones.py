"""Backbones that the toy objectives need and no family offers yet."""

from __future__ import annotations

from torch import nn

from meristem.models.bert import Bert
from meristem.settings import Settings


class ToySettings(Settings):
    """Nothing to choose."""


class Reader(Bert):
    """BERT that can also score places."""

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """A score per place."""
        return nn.Linear(self.width, 1) if kind == "place" else super().makes(kind, **sizes)
