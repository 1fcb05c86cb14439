"""Incremental decoding with two-stream attention (XLNet): cached content states, one query per step.

The prompt is context: its tokens see each other, as the tokens that are not predicted do in training. What is generated
follows from left to right. Per step the new token's content state is computed and cached, and the query stream, which
knows the next position but not its token, reads the cache. A full two-stream pass in that order gives the same states.
"""

# B rows, T new positions, S slots of the ring, K keys in sight, D width, H heads, C channels of one head

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.batch import State
from meristem.blocks.relative_stack import RelativeStack
from meristem.blocks.relative_steps import NewToken, NewTokens, RelativeSteps


class TwoStreamSteps(RelativeSteps):
    """The writer of a two-stream stack: content as in a causal stack, and a query for the position after it."""

    def __init__(
        self, embed: Callable[[Tensor], Tensor], query_D: Tensor, stack: RelativeStack, *, reach: int, chunk: int
    ) -> None:
        """`reach` positions are seen, and prompts are read `chunk` at a time, each chunk bidirectionally."""
        super().__init__(embed, stack, reach=reach, chunk=chunk)
        self._query_D, self._ahead = query_D, self._chunk - 1

    def read(self, tokens_BT: Tensor, sizes_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Prompts, a chunk at a time; the states [B, D] are those of the query for the position after each row."""
        for start in range(0, tokens_BT.shape[1], self._chunk):
            part = tokens_BT[:, start : start + self._chunk]
            new = BidirectionalTokens(
                self.reach, state["cache"], state["next"] + start, part.shape[1], sizes_B - 1 - start
            )
            self._pass(self._embed(part), new)
        after = {"cache": state["cache"], "next": state["next"] + sizes_B}
        x = self._pass(self._queries(len(sizes_B)), NextPosition(self.reach, after["cache"], after["next"]))
        return x[:, 0], after

    def step(self, tokens_B: Tensor, state: State, uniform: int | None) -> tuple[Tensor, State]:
        """One content state and one query a row, side by side → the states [B, D] of the queries."""
        new = TokenAndNext(self.reach, state["cache"], state["next"], uniform)
        x = self._pass(torch.cat([self._embed(tokens_B[:, None]), self._queries(len(tokens_B))], 1), new)
        return x[:, 1], {"cache": state["cache"], "next": state["next"] + 1}

    def _queries(self, rows: int) -> Tensor:
        return self._query_D.expand(rows, 1, -1)


class TokenAndNext(NewToken):
    """A new token per row, which enters the ring, and a query one position further, which does not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        far, hidden = self.far, self.hidden
        self.far = torch.cat([far, (far + 1).clamp(max=self.reach - 1)], 2)
        self.hidden = torch.cat([hidden, hidden | (far + 1 >= self.reach)], 2)


@dataclass
class NextPosition:
    """A query per row for the position after what the ring holds."""

    reach: int
    cache: Tensor
    at_B: Tensor
    content: int = 0

    def __post_init__(self) -> None:
        slots = torch.arange(self.cache.shape[4], device=self.at_B.device)
        newest = self.at_B[:, None] - 1
        held_BS = newest - (newest - slots) % self.reach
        far_BS = self.at_B[:, None] - held_BS
        self.far = far_BS.clamp(max=self.reach - 1)[:, None, None]
        self.hidden = ((held_BS < 0) | (far_BS >= self.reach))[:, None, None]

    def push(self, number: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values [B, H, S, C] of a layer; nothing is added."""
        keys, values = self.cache[:, number].unbind(1)
        return keys, values


class BidirectionalTokens(NewTokens):
    """Several new tokens per row that see each other and what the ring holds; padding is seen by nobody."""

    def __post_init__(self) -> None:
        super().__post_init__()
        here = torch.arange(self.time, device=self.at_B.device)
        among = (here[:, None] - here).expand(len(self.at_B), 1, -1, -1)
        padding = (here > self.ends_B[:, None])[:, None, None].expand(-1, -1, self.time, -1)
        ring = self.cache.shape[4]
        self.far = torch.cat([self.far[..., :ring], among], 3)
        self.hidden = torch.cat([self.hidden[..., :ring], padding], 3)
