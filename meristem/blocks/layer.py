"""A layer: attention and feed-forward, each with its residual and its norm before or after."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.attention import Attention, Past, picked
from meristem.blocks.feed_forward import FeedForward
from meristem.blocks.sight import Sight

NormPlace = Literal["pre", "post"]


class Layer(nn.Module):
    """x + f(norm(x)) where the norm comes before, norm(x + f(x)) where it comes after."""

    def __init__(
        self,
        attention: Attention,
        feed_forward: FeedForward,
        norms: tuple[nn.Module, nn.Module],
        *,
        place: NormPlace,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = norms
        self.place, self.dropout = place, dropout

    def forward(self, x: Tensor, sight: Sight, past: Past | None = None, wanted: Tensor | None = None) -> Tensor:
        """[B, T, D] → [B, T, D]; with wanted flat positions [N], everything after attention is done at these alone."""
        here = x if wanted is None else picked(x, wanted)
        if self.place == "pre":
            x = here + self._drop(self.attention(self.attention_norm(x), sight, past, wanted))
            return x + self._drop(self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(here + self._drop(self.attention(x, sight, past, wanted)))
        return self.feed_forward_norm(x + self._drop(self.feed_forward(x)))  # type: ignore[no-any-return]  # nn.Module.__call__

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x
