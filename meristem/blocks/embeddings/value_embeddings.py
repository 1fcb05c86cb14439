"""Value embeddings: tables of token vectors that are mixed into the values of attention in some layers.

Modded-nanogpt's form (Jordan et al. 2024) of the value residual of ResFormer (Zhou et al. 2024): the first and the last
layers share tables, one for each pair, and each layer learns two weights of the mixture.
"""

# B batch, T tokens, G key-value heads, C channels of one head

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from meristem.blocks.precision import to_compute_dtype

INITIAL_SCALE = 0.5


@dataclass(frozen=True, kw_only=True)
class ExtraValues:
    """What one layer adds to the values of its attention."""

    own_scale: Tensor
    """Weight of the values that the layer computes."""
    scaled: Tensor
    """[B, T, G·C] the embedding times its weight."""

    def mix(self, values: Tensor) -> Tensor:
        """Values [B, T, G, C], or those of one token [B, G, C], with the embedding added."""
        return values * self.own_scale.to(values.dtype) + self.scaled.view_as(values).to(values.dtype)


class ValueEmbeddings(nn.Module):
    """Table i belongs to layer i and to layer L − n + i, of L layers and n tables."""

    def __init__(self, vocab_size: int, values_size: int, num_tables: int, num_layers: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(vocab_size, values_size) for _ in range(num_tables))
        self.table_of_layer = {
            layer: table for table in range(num_tables) for layer in (table, num_layers - num_tables + table)
        }
        self.own_scales, self.embedding_scales = (
            nn.Parameter(torch.full((len(self.table_of_layer),), INITIAL_SCALE)) for _ in range(2)
        )

    def init_weights(self, init_std: float) -> None:
        """Initialize the tables from a normal distribution."""
        for table in self.tables:
            nn.init.normal_(table.weight, std=init_std)  # type: ignore[arg-type]  # embeddings

    def forward(self, tokens: Tensor) -> dict[int, ExtraValues]:
        """Token ids [B, T] or [B] → layer → what it adds to its values."""
        vectors = [to_compute_dtype(table(tokens)) for table in self.tables]
        return {
            layer: ExtraValues(
                own_scale=self.own_scales[index],
                scaled=vectors[table] * self.embedding_scales[index].to(vectors[table].dtype),
            )
            for index, (layer, table) in enumerate(self.table_of_layer.items())
        }
