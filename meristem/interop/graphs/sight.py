"""Who sees whom in a graph: masks made of tensors alone, whatever the sizes are."""

# B batch, T queries, S keys, H heads

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.blocks.attention import Past
from meristem.blocks.relative_bias import RelativeBias
from meristem.blocks.sight import Sight


@dataclass(frozen=True, kw_only=True)
class Grown(Past):
    """Keys and values that become longer by being joined, where a session writes them into slots."""

    kept: list[Tensor]
    """Keys and values of all layers so far, in their order."""

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, at_BT: Tensor, kept: list[Tensor]) -> Grown:
        """One layer's past."""
        return cls(keys=keys, values=values, at=at_BT, uniform=None, filled=0, kept=kept)

    def push(self, k_BGTC: Tensor, v_BGTC: Tensor) -> tuple[Tensor, Tensor]:
        """Everything so far, which is also what comes out."""
        keys, values = torch.cat([self.keys, k_BGTC], 2), torch.cat([self.values, v_BGTC], 2)
        self.kept.extend([keys, values])
        return keys, values


class Backwards:
    """What the last T of S tokens see: of those that exist, themselves and earlier ones.

    A token's position is how many tokens that exist stand before it, so that padding may stand on either side, and
    between a prompt and what was written after it.
    """

    def __init__(self, present_BS: Tensor, time: int) -> None:
        exist_BS = present_BS > 0
        self.all_BS = (exist_BS.to(torch.int64).cumsum(1) - 1).clamp(min=0)
        self.at_BT = self.all_BS[:, -time:]
        self.far_BTS = self.at_BT[:, :, None] - self.all_BS[:, None]
        slot_S = torch.arange(present_BS.shape[1], device=present_BS.device)
        before_TS = slot_S[-time:, None] - slot_S
        self._itself = before_TS == 0
        self._visible = (before_TS >= 0) & exist_BS[:, None]

    def hidden(self, window: int | None = None) -> Tensor:
        """[B, 1, T, S] what is out of sight; padding sees itself, since it needs a finite softmax too."""
        visible = self._visible if window is None else self._visible & (self.far_BTS < window)
        return ~(visible | self._itself)[:, None]

    def sight(self, window: int | None, dtype: torch.dtype) -> Sight:
        """The mask of a layer."""
        return Sight(mask=shut(self.hidden(window), dtype))


def shut(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """−∞ where something is hidden, else 0."""
    return torch.zeros_like(hidden, dtype=dtype).masked_fill(hidden, -torch.inf)


class Buckets(RelativeBias):
    """A relative bias whose buckets were looked up beforehand, so that no rounding of a logarithm can move one."""

    line: Tensor

    def __init__(self, relative: RelativeBias) -> None:
        super().__init__(
            relative.table.embedding_dim, relative.buckets, relative.farthest, both_ways=relative.both_ways
        )
        self.table = relative.table
        every = torch.arange(-self.farthest, self.farthest + 1, device=self.table.weight.device)
        self.register_buffer("line", relative.bucket(every), persistent=False)

    def bucket(self, distance: Tensor) -> Tensor:
        """The same; from the farthest on all distances are alike."""
        return self.line[distance.clamp(-self.farthest, self.farthest) + self.farthest]

    def between(self, distance_TS: Tensor) -> Tensor:
        """[1, H, T, S] the bias of each key for each query."""
        return self.table(self.bucket(distance_TS)).permute(2, 0, 1)[None]  # type: ignore[no-any-return]  # nn.Module.__call__

    def forward(self, sight: Sight, queries: int, keys: int) -> Sight:
        """The same for a sight that has a mask, from every distance on its own instead of views of one line."""
        assert sight.mask is not None
        key_S = torch.arange(keys, device=sight.mask.device)
        return Sight(mask=self.between(key_S - key_S[:queries, None]) + sight.mask)
