"""Incremental decoding of encoder-decoder transformers: the source is encoded once, then one token per row and step.

Without a source the decoder is used alone, as a causal language model.
"""

# B batch, S visible slots or source positions, D hidden size, H heads, G key-value heads, C channels, N distances

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meristem.blocks.embeddings.input_embedding import InputEmbedding
from meristem.blocks.incremental.state_concat import concat_states
from meristem.blocks.incremental.transformer_decoder import (
    CachePosition,
    IncrementalLayer,
    linear_function,
    norm_function,
)
from meristem.blocks.transformer.decoder import TransformerDecoder, TransformerDecoderLayer, source_attention_mask
from meristem.interfaces.backbone import State

EncodeFunction = Callable[..., tuple[Tensor, Tensor | None]]
"""Encoder inputs by name → encoder output [B, S, D] and its padding mask [B, S]."""


class Seq2SeqIncrementalDecoder:
    """Incremental decoder whose state holds the KV cache of generated tokens and the keys and values of the source.

    There is no dropout, and weights must not change.
    """

    def __init__(
        self,
        max_length: int,
        encode: EncodeFunction,
        token_embedding: nn.Embedding,
        input_embedding: InputEmbedding,
        decoder: TransformerDecoder,
    ) -> None:
        self.max_length: int | None = max_length
        self._encode, self._decoder = encode, decoder
        self._token_embedding, self._input_embedding = token_embedding, input_embedding
        self._layers = [
            _IncrementalDecoderLayer(layer, decoder.settings.window_of(layer_index))
            for layer_index, layer in enumerate(decoder.iter_layers())
        ]
        self._final_norm = norm_function(decoder.final_norm)
        self._distance_bias_HN: Tensor | None = None
        if decoder.relative is not None:  # farthest first: the biases of a query are the last ones
            distances = torch.arange(1 - max_length, 1, device=token_embedding.weight.device)
            self._distance_bias_HN = decoder.relative.bias_by_distance(distances).detach().contiguous()

    def init_state(self, batch_size: int, capacity: int, **inputs: Tensor) -> State:
        """Encode the source and allocate an empty KV cache; without inputs there is no source."""
        if not inputs:
            weight = self._token_embedding.weight
            start = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
            return {"cache": self._decoder.empty_slots(batch_size, capacity, weight), "next": start}
        source_BSD, present = self._encode(**inputs)
        state = {
            "cache": self._decoder.empty_slots(batch_size, capacity, source_BSD),
            "cross": self._decoder.project_source(source_BSD),
            "next": torch.zeros(batch_size, dtype=torch.long, device=source_BSD.device),
        }
        return state if present is None else {**state, "present": present}

    def prefill(self, tokens_BT: Tensor, lengths_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Process prompts from position 0; cache slots of padding are overwritten before any query sees them."""
        hidden = self._decoder(
            self._input_embedding(self._token_embedding(tokens_BT)),
            state.get("cross"),
            source_present=state.get("present"),
            cache=state["cache"],
        )
        last = hidden.last_hidden_state[torch.arange(len(lengths_B), device=lengths_B.device), lengths_B - 1]
        return last, {**state, "next": lengths_B}

    def decode_step(self, tokens_B: Tensor, state: State, shared_length: int | None) -> tuple[Tensor, State]:
        """Hidden states [B, D] of new tokens; `shared_length` is the position of all of them where it is the same."""
        position_B, slots, cross = state["next"], state["cache"], state.get("cross")
        cache_position = CachePosition(position_B, shared_length, slots.dtype)
        if self._distance_bias_HN is not None:
            cache_position = _BiasedCachePosition(position_B, shared_length, slots.dtype, self._distance_bias_HN)
        mask = source_attention_mask(state.get("present"), slots.dtype).additive_mask
        x = self._input_embedding.add_positions(F.embedding(tokens_B, self._token_embedding.weight), position_B)
        for layer_index, layer in enumerate(self._layers):
            x = layer.run(
                x, slots[:, layer_index], cache_position, None if cross is None else cross[:, layer_index], mask
            )
        return self._final_norm(x), {**state, "next": position_B + 1}

    def grow_state(self, state: State, capacity: int) -> State:
        """The KV cache with more empty slots."""
        extra_slots = capacity - state["cache"].shape[4]
        return {**state, "cache": F.pad(state["cache"], (0, 0, 0, extra_slots))}

    def concat_states(self, first: State, second: State) -> State:
        """The rows of both states; shorter sources are padded and masked."""
        return concat_states(first, second, pad_dims={"cross": 4, "present": 1})


class _IncrementalDecoderLayer(IncrementalLayer):
    """One decoder layer for one new token per row."""

    def __init__(self, layer: TransformerDecoderLayer, window: int | None) -> None:
        super().__init__(layer, window)
        self._cross, self._cross_norm = layer.cross, norm_function(layer.cross_norm)
        self._query, self._cross_output = linear_function(layer.cross.query), linear_function(layer.cross.output)

    def run(
        self,
        x_BD: Tensor,
        slots_B2GSC: Tensor,
        cache_position: CachePosition,
        source_B2GSC: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        """[B, D] → [B, D]; without a source, cross-attention is skipped."""
        if source_B2GSC is None:
            return self(x_BD, slots_B2GSC, cache_position)
        attention_norm, feed_forward_norm = self.norms
        if self.is_pre_norm:
            x_BD = x_BD + self.attend(attention_norm(x_BD), slots_B2GSC, cache_position)
            x_BD = x_BD + self._cross_attend(self._cross_norm(x_BD), source_B2GSC, mask)
            return x_BD + self.feed_forward(feed_forward_norm(x_BD))
        x_BD = attention_norm(x_BD + self.attend(x_BD, slots_B2GSC, cache_position))
        x_BD = self._cross_norm(x_BD + self._cross_attend(x_BD, source_B2GSC, mask))
        return feed_forward_norm(x_BD + self.feed_forward(x_BD))

    def _cross_attend(self, x_BD: Tensor, source_B2GSC: Tensor, mask: Tensor | None) -> Tensor:
        cross, batch_size = self._cross, len(x_BD)
        keys, values = source_B2GSC.unbind(1)
        attended = F.scaled_dot_product_attention(
            self._query(x_BD).view(batch_size, cross.num_heads, 1, cross.head_dim),
            keys,
            values,
            attn_mask=mask,
            scale=cross.scale,
            enable_gqa=cross.num_kv_heads != cross.num_heads,
        )
        return self._cross_output(attended.reshape(batch_size, -1))


class _BiasedCachePosition(CachePosition):
    """Cache position with T5's relative position bias in its mask."""

    def __init__(
        self, position_B: Tensor, shared_position: int | None, dtype: torch.dtype, distance_bias_HN: Tensor
    ) -> None:
        super().__init__(position_B, shared_position, dtype)
        self._distance_bias_HN = distance_bias_HN
        self._biases: dict[int | None, Tensor] = {}

    def visible_slots(self, window: int | None) -> tuple[slice, Tensor | None]:
        """The visible slots, and bias plus mask [B or 1, H, 1, S]."""
        visible, mask = super().visible_slots(window)
        if mask is None:
            return visible, self._distance_bias_HN[None, :, None, visible.start - visible.stop :]
        if window not in self._biases:
            distance_BS = (
                self.position_B[:, None] - torch.arange(self.num_slots, device=self.position_B.device)
            ).clamp(min=0)
            bias_HBS = self._distance_bias_HN[:, self._distance_bias_HN.shape[1] - 1 - distance_BS]
            self._biases[window] = bias_HBS.transpose(0, 1)[:, :, None] + mask
        return visible, self._biases[window]
