"""Incremental decoding of Transformer-XL: a KV cache in a ring buffer, so that generation has no length limit."""

# B batch, T new tokens, S slots of the ring buffer, K visible keys, D hidden size, H heads, C channels of one head

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.attention.relative_attention import sinusoidal_encoding
from meristem.blocks.incremental.state_concat import concat_states
from meristem.blocks.transformer.relative_stack import RelativeLayer, RelativeStack
from meristem.interfaces.backbone import State


class RelativeIncrementalDecoder:
    """Incremental decoder of a causal relative stack: each token attends to the last `context_length`, itself included.

    Position p is in slot p % context_length, so memory is constant and no token is processed twice. There is no
    dropout, and weights must not change.
    """

    max_length: int | None = None

    def __init__(
        self, embed: Callable[[Tensor], Tensor], stack: RelativeStack, *, context_length: int, chunk: int
    ) -> None:
        """`context_length` tokens are visible; prompts are prefilled in chunks of `chunk` tokens."""
        self._embed, self._stack = embed, stack
        self.context_length, self._chunk = context_length, min(chunk, context_length)
        self._lookahead = 0  # number of later tokens a token may attend to
        self._distance_keys_NHLC: list[Tensor] | None = None

    def init_state(self, batch_size: int, capacity: int, **inputs: Tensor) -> State:
        """Empty ring buffer of at most `context_length` slots."""
        s, weight = self._stack.settings, next(self._stack.parameters())
        shape = (batch_size, s.layers, 2, s.heads, min(capacity, self.context_length), s.hidden_size // s.heads)
        return {
            "cache": weight.new_zeros(shape),
            "next": torch.zeros(batch_size, dtype=torch.long, device=weight.device),
        }

    def grow_state(self, state: State, capacity: int) -> State:
        """The ring buffer with more empty slots, up to `context_length`."""
        extra_slots = max(0, min(capacity, self.context_length) - state["cache"].shape[4])
        return {**state, "cache": F.pad(state["cache"], (0, 0, 0, extra_slots))}

    def concat_states(self, first: State, second: State) -> State:
        """The rows of both states."""
        return concat_states(first, second)

    def prefill(self, tokens_BT: Tensor, lengths_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Process prompts in chunks (chunked prefill); padding is never written to the cache."""
        rows = torch.arange(len(lengths_B), device=lengths_B.device)
        last_BD = next(self._stack.parameters()).new_zeros(len(lengths_B), self._stack.settings.hidden_size)
        for start in range(0, tokens_BT.shape[1], self._chunk):
            chunk_tokens = tokens_BT[:, start : start + self._chunk]
            last_index_B = lengths_B - 1 - start
            update = ChunkUpdate(
                self.context_length, state["cache"], state["next"] + start, chunk_tokens.shape[1], last_index_B
            )
            x = self._run_layers(self._embed(chunk_tokens), update)
            chunk_last_BD = x[rows, last_index_B.clamp(0, chunk_tokens.shape[1] - 1)]
            last_BD = torch.where(
                ((last_index_B >= 0) & (last_index_B < chunk_tokens.shape[1]))[:, None], chunk_last_BD, last_BD
            )
        return last_BD, {"cache": state["cache"], "next": state["next"] + lengths_B}

    def decode_step(self, tokens_B: Tensor, state: State, shared_length: int | None) -> tuple[Tensor, State]:
        """Hidden states [B, D] of new tokens."""
        x = self._run_layers(
            self._embed(tokens_B[:, None]),
            OneTokenUpdate(self.context_length, state["cache"], state["next"], shared_length),
        )
        return x[:, 0], {"cache": state["cache"], "next": state["next"] + 1}

    def _run_layers(self, x: Tensor, update: RingCacheUpdate) -> Tensor:
        for layer_index, (layer, distances) in enumerate(
            zip(self._stack.iter_layers(), self._distance_keys(), strict=True)
        ):
            x = layer.finish_layer(
                x, self._attend(layer, layer.norm_attention_input(x), distances, update, layer_index)
            )
        return self._stack.final_norm(x)  # type: ignore[no-any-return]  # nn.Module.__call__

    def _attend(
        self, layer: RelativeLayer, normed: Tensor, distances_HLC: Tensor, update: RingCacheUpdate, layer_index: int
    ) -> Tensor:
        attention, (batch_size, num_tokens, _) = layer.attention, normed.shape
        q_BTHC = attention.query(normed).view(batch_size, num_tokens, attention.num_heads, attention.head_dim)
        new_BT2HC = attention.key_value(normed[:, : update.num_content]).view(
            batch_size, -1, 2, attention.num_heads, attention.head_dim
        )
        keys, values = update.update(layer_index, new_BT2HC)
        distance_scores_BHTL = (q_BTHC + attention.biases.distance).transpose(1, 2) @ distances_HLC.mT
        bias = (
            distance_scores_BHTL.gather(
                3, (update.distance + self._lookahead).expand(batch_size, attention.num_heads, -1, -1)
            )
            * attention.head_dim**-0.5
        )
        bias = bias.masked_fill(update.masked, -torch.inf)
        attended = F.scaled_dot_product_attention(
            (q_BTHC + attention.biases.content).transpose(1, 2), keys, values, attn_mask=bias
        )
        return attention.output(attended.transpose(1, 2).reshape(batch_size, num_tokens, -1))  # type: ignore[no-any-return]  # nn.Module.__call__

    def _distance_keys(self) -> list[Tensor]:
        """Per layer the keys [H, L, C] of distances from −lookahead to context_length − 1; cached."""
        if self._distance_keys_NHLC is None:
            s, weight = self._stack.settings, next(self._stack.parameters())
            distances = torch.arange(-self._lookahead, self.context_length, device=weight.device)
            distances = distances if s.clamp_distance is None else distances.clamp(-s.clamp_distance, s.clamp_distance)
            encoding = sinusoidal_encoding(distances[None], s.hidden_size, weight.dtype)
            self._distance_keys_NHLC = [
                layer.attention.project_distances(encoding)[:, 0] for layer in self._stack.iter_layers()
            ]
        return self._distance_keys_NHLC


class RingCacheUpdate(Protocol):
    """The new positions of a pass, and the keys visible to them."""

    num_content: int
    """Number of positions, the first ones, that become keys and values; the others are only queries."""
    distance: Tensor
    """[B, 1, T, K] distance back to each key; negative for later keys."""
    masked: Tensor
    """[B, 1, T, K] true where a key is masked."""

    def update(self, layer_index: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, K, C] of a layer, the new ones included."""


@dataclass
class OneTokenUpdate:
    """One new token per row: it is written first, into the slot of the token that leaves the context."""

    context_length: int
    cache: Tensor
    position_B: Tensor
    shared_position: int | None
    num_content: int = 1

    def __post_init__(self) -> None:
        self._num_filled = (
            min(
                int(self.position_B.max()) if self.shared_position is None else self.shared_position,
                self.context_length - 1,
            )
            + 1
        )
        self._slot_B = self.position_B % self.context_length
        self._rows = torch.arange(len(self.position_B), device=self.position_B.device)
        distance_BK = (
            self.position_B[:, None] - torch.arange(self._num_filled, device=self.position_B.device)
        ) % self.context_length
        self.distance, self.masked = distance_BK[:, None, None], (distance_BK > self.position_B[:, None])[:, None, None]

    def update(self, layer_index: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, K, C] of a layer, the new ones included."""
        slots = self.cache[:, layer_index]
        slots[self._rows, :, :, self._slot_B] = new_BT2HC[:, 0]
        keys, values = slots[:, :, :, : self._num_filled].unbind(1)
        return keys, values


@dataclass
class ChunkUpdate:
    """Several new tokens per row: concatenated to the ring buffer for attention, then written into it."""

    context_length: int
    cache: Tensor
    position_B: Tensor
    num_tokens: int
    last_index_B: Tensor
    """Index of each row's last token among the new ones; later ones are padding."""

    def __post_init__(self) -> None:
        device = self.position_B.device
        offsets, slots = torch.arange(self.num_tokens, device=device), torch.arange(self.cache.shape[4], device=device)
        newest = self.position_B[:, None] - 1
        slot_position_BS = newest - (newest - slots) % self.context_length
        distance_BTS = (self.position_B[:, None] + offsets)[:, :, None] - slot_position_BS[:, None]
        expired = (slot_position_BS < 0)[:, None] | (distance_BTS >= self.context_length)
        offset_distance = (offsets[:, None] - offsets).expand(len(distance_BTS), -1, -1)
        self.distance = torch.cat([distance_BTS, offset_distance], 2)[:, None].clamp(0, self.context_length - 1)
        self.masked = torch.cat([expired, offset_distance < 0], 2)[:, None]
        self.num_content = self.num_tokens
        self._present = offsets <= self.last_index_B[:, None]
        self._slot_BT = (self.position_B[:, None] + offsets) % self.context_length
        self._rows = torch.arange(len(self.position_B), device=device)[:, None]

    def update(self, layer_index: int, new_BT2HC: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, K, C] of a layer, the new ones last."""
        slots = self.cache[:, layer_index]
        keys, values = torch.cat([slots, new_BT2HC.permute(0, 2, 3, 1, 4)], 3).unbind(1)
        old_values = slots[self._rows, :, :, self._slot_BT]
        is_present = self._present[:, :, None, None, None]
        slots[self._rows, :, :, self._slot_BT] = torch.where(is_present, new_BT2HC, old_values)
        return keys, values
