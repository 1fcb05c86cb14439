"""ELECTRA's generator for relative-attention models (XLNet): a smaller relative stack sharing the embeddings."""

# B batch, T tokens, N output positions, D hidden size

from __future__ import annotations

from torch import Tensor, nn

from meristem.blocks.attention.multi_head import select_positions
from meristem.blocks.attention.relative_mask import RelativeMaskSpec
from meristem.blocks.embeddings.token_embedding import embedding_projection
from meristem.blocks.heads.task_heads import PredictionTransform
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.precision import to_compute_dtype
from meristem.blocks.transformer.electra_generator import ElectraGenerator, divided_sizes
from meristem.blocks.transformer.relative_stack import RelativeStack, RelativeStackSettings
from meristem.interfaces.backbone import Hidden


def build_relative_generator(tokens: nn.Embedding, settings: RelativeStackSettings, divisor: int) -> ElectraGenerator:
    """A generator of 1/divisor the hidden size on the same embeddings, without memory and segments."""
    sizes = divided_sizes(settings.hidden_size, settings.heads, settings.ffn_size, divisor, is_even=True)
    small_settings = settings.model_copy(update=sizes)
    transform = PredictionTransform(
        small_settings.hidden_size,
        small_settings.activation,
        "layer",
        small_settings.norm_epsilon,
        small_settings.init_std,
        out_size=tokens.embedding_dim,
    )
    return ElectraGenerator(
        RelativeGeneratorBody(tokens, small_settings), VocabularyHead(tokens, transform=transform, bias=True)
    )


class RelativeGeneratorBody(nn.Module):
    """The discriminator's embeddings, projected to the hidden size of a smaller relative stack."""

    def __init__(self, tokens: nn.Embedding, settings: RelativeStackSettings) -> None:
        super().__init__()
        self.tokens = tokens
        self.project = embedding_projection(tokens.embedding_dim, settings.hidden_size, settings.init_std)
        self.stack = RelativeStack(settings)
        self.stack.init_weights()

    def forward(
        self,
        *,
        tokens: Tensor,
        output_positions: Tensor,
        segments: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → hidden states [N, D] at the flat positions `output_positions`."""
        x = self.project(to_compute_dtype(self.tokens(tokens)))
        mask_spec = RelativeMaskSpec(
            num_tokens=tokens.shape[1],
            causal=False,
            device=x.device,
            dtype=x.dtype,
            present=present,
            documents=documents,
        )
        return Hidden(
            last_hidden_state=select_positions(self.stack(x, mask_spec).last_hidden_state, output_positions),
            output_positions=output_positions,
        )
