"""ELECTRA's generator: a smaller bidirectional stack with masked language modelling, sharing the embeddings."""

from __future__ import annotations

from torch import Tensor, nn

from meristem.blocks.embeddings.token_embedding import SharedTokenEmbedding, TokenEmbedding, embedding_projection
from meristem.blocks.heads.task_heads import PredictionTransform
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.transformer.stack import StackSettings, TransformerStack
from meristem.config.errors import RecipeError
from meristem.interfaces.backbone import Hidden


class ElectraGenerator(nn.Module):
    """Generator of replaced token detection: a body with the backbone's inputs, and a vocabulary head.

    Families without a plain transformer stack pass their own body: called with the backbone's inputs and flat
    positions `output_positions`, it returns the hidden states at those positions.
    """

    def __init__(self, body: nn.Module, vocabulary_head: VocabularyHead) -> None:
        super().__init__()
        self.body, self.words = body, vocabulary_head

    def forward(self, *, output_positions: Tensor, **inputs: Tensor) -> Hidden:
        """[B, T] → Hidden, computed only at the flat positions `output_positions`."""
        return self.body(output_positions=output_positions, **inputs)  # type: ignore[no-any-return]  # nn.Module.__call__


def build_generator(
    embed: TokenEmbedding | SharedTokenEmbedding, settings: StackSettings, divisor: int
) -> ElectraGenerator:
    """A generator of 1/divisor the hidden size on the same embeddings; its head transforms to the embedding size."""
    small_settings = generator_settings(settings, divisor)
    transform = PredictionTransform(
        small_settings.hidden_size,
        small_settings.activation,
        small_settings.norm,
        small_settings.norm_epsilon,
        small_settings.init_std,
        out_size=embed.embedding_size,
    )
    return ElectraGenerator(
        GeneratorBody(embed, small_settings), VocabularyHead(embed.tokens, transform=transform, bias=True)
    )


class GeneratorBody(nn.Module):
    """The discriminator's embeddings, projected to the hidden size of a smaller stack."""

    def __init__(self, embed: TokenEmbedding | SharedTokenEmbedding, settings: StackSettings) -> None:
        super().__init__()
        self.embed = embed
        self.project = embedding_projection(embed.embedding_size, settings.hidden_size, settings.init_std)
        self.stack = TransformerStack(settings)
        self.stack.init_weights()

    def forward(
        self,
        *,
        tokens: Tensor,
        segments: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        output_positions: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → Hidden."""
        x = self.project(self.embed(tokens, segments))
        return self.stack(x, causal=False, present=present, documents=documents, output_positions=output_positions)  # type: ignore[no-any-return]  # nn.Module.__call__


def generator_settings(settings: StackSettings, divisor: int) -> StackSettings:
    """Settings of a stack with 1/divisor the hidden size, heads and feed-forward size, and the same depth."""
    sizes = divided_sizes(settings.hidden_size, settings.heads, settings.ffn_size, divisor)
    heads, head_dim = sizes["heads"], sizes["hidden_size"] // sizes["heads"]
    if settings.position_encoding == "rotary" and head_dim % 2:
        raise RecipeError(
            f"objective.generator_size: 1/{divisor} of the model has {head_dim} channels per head, and rotary "
            "positions need an even number; choose a larger generator"
        )
    kv_heads = settings.kv_heads
    if kv_heads is not None:
        kv_heads = max(g for g in range(1, min(heads, kv_heads) + 1) if heads % g == 0)
    return settings.model_copy(update={**sizes, "kv_heads": kv_heads})


def divided_sizes(
    hidden_size: int, heads: int, ffn_size: int | None, divisor: int, *, is_even: bool = False
) -> dict[str, int]:
    """1/divisor of these sizes; refuses one that gives no integer, or no even one where the hidden size must be."""
    unit = 2 if is_even else 1
    if hidden_size % (unit * divisor):
        valid_fractions = [f"1/{d}" for d in range(1, 9) if hidden_size % (unit * d) == 0]
        raise RecipeError(
            f"objective.generator_size: 1/{divisor} of a hidden size of {hidden_size} is not an "
            f"{'even ' if is_even else ''}integer; choose {' or '.join(valid_fractions)}"
        )
    width = hidden_size // divisor
    num_heads = max(h for h in range(1, max(1, heads // divisor) + 1) if width % h == 0)
    return {"hidden_size": width, "heads": num_heads, "ffn_size": (ffn_size or 4 * hidden_size) // divisor}
