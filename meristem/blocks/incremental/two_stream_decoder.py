"""Incremental decoding with two-stream attention (XLNet): cached content states, one query per step.

The prompt is context: its tokens attend to each other, as tokens that are not predicted do in training. Generation goes
from left to right. Each step computes and caches the new token's content state, and the query stream, which knows the
next position but not its token, attends to the cache. A full two-stream pass in that order gives the same states.
"""

# B batch, T new positions, S slots of the ring buffer, K visible keys, D hidden size, H heads, C channels of one head

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.blocks.incremental.relative_decoder import ChunkUpdate, OneTokenUpdate, RelativeIncrementalDecoder
from meristem.blocks.transformer.relative_stack import RelativeStack
from meristem.interfaces.backbone import State


class TwoStreamIncrementalDecoder(RelativeIncrementalDecoder):
    """Incremental decoder of XLNet: a content state per new token, and a query for the position after it."""

    def __init__(
        self,
        embed: Callable[[Tensor], Tensor],
        query_D: Tensor,
        stack: RelativeStack,
        *,
        context_length: int,
        chunk: int,
    ) -> None:
        """`context_length` positions are visible; prompts are prefilled in chunks of `chunk`, each bidirectionally."""
        super().__init__(embed, stack, context_length=context_length, chunk=chunk)
        self._query_D, self._lookahead = query_D, self._chunk - 1

    def prefill(self, tokens_BT: Tensor, lengths_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Process prompts in chunks → hidden states [B, D] of the query for the position after each row."""
        for start in range(0, tokens_BT.shape[1], self._chunk):
            chunk_tokens = tokens_BT[:, start : start + self._chunk]
            update = BidirectionalChunkUpdate(
                self.context_length, state["cache"], state["next"] + start, chunk_tokens.shape[1], lengths_B - 1 - start
            )
            self._run_layers(self._embed(chunk_tokens), update)
        next_state = {"cache": state["cache"], "next": state["next"] + lengths_B}
        x = self._run_layers(
            self._queries(len(lengths_B)), QueryOnlyUpdate(self.context_length, next_state["cache"], next_state["next"])
        )
        return x[:, 0], next_state

    def decode_step(self, tokens_B: Tensor, state: State, shared_length: int | None) -> tuple[Tensor, State]:
        """One content state and one query per row in one pass → hidden states [B, D] of the queries."""
        update = TokenAndQueryUpdate(self.context_length, state["cache"], state["next"], shared_length)
        x = self._run_layers(torch.cat([self._embed(tokens_B[:, None]), self._queries(len(tokens_B))], 1), update)
        return x[:, 1], {"cache": state["cache"], "next": state["next"] + 1}

    def _queries(self, batch_size: int) -> Tensor:
        return self._query_D.expand(batch_size, 1, -1)


class TokenAndQueryUpdate(OneTokenUpdate):
    """A new token per row, which enters the ring buffer, and a query one position later, which does not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        distance, masked = self.distance, self.masked
        self.distance = torch.cat([distance, (distance + 1).clamp(max=self.context_length - 1)], 2)
        self.masked = torch.cat([masked, masked | (distance + 1 >= self.context_length)], 2)


@dataclass
class QueryOnlyUpdate:
    """A query per row for the position after the cached ones."""

    context_length: int
    cache: Tensor
    position_B: Tensor
    num_content: int = 0

    def __post_init__(self) -> None:
        slots = torch.arange(self.cache.shape[4], device=self.position_B.device)
        newest = self.position_B[:, None] - 1
        slot_position_BS = newest - (newest - slots) % self.context_length
        distance_BS = self.position_B[:, None] - slot_position_BS
        self.distance = distance_BS.clamp(max=self.context_length - 1)[:, None, None]
        self.masked = ((slot_position_BS < 0) | (distance_BS >= self.context_length))[:, None, None]

    def update(self, layer_index: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, C] of a layer; nothing is written."""
        keys, values = self.cache[:, layer_index].unbind(1)
        return keys, values


class BidirectionalChunkUpdate(ChunkUpdate):
    """Several new tokens per row that attend to each other and to the ring buffer; padding is masked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        offsets = torch.arange(self.num_tokens, device=self.position_B.device)
        offset_distance = (offsets[:, None] - offsets).expand(len(self.position_B), 1, -1, -1)
        padding = (offsets > self.last_index_B[:, None])[:, None, None].expand(-1, -1, self.num_tokens, -1)
        ring_size = self.cache.shape[4]
        self.distance = torch.cat([self.distance[..., :ring_size], offset_distance], 3)
        self.masked = torch.cat([self.masked[..., :ring_size], padding], 3)
