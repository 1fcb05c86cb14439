"""A smaller self of a bidirectional stack, which guesses hidden words: ELECTRA's generator."""

from __future__ import annotations

from torch import Tensor, nn

from meristem.batch import Hidden
from meristem.blocks.embedding import Embedding, SegmentedEmbedding, projection
from meristem.blocks.heads import Transform
from meristem.blocks.stack import Stack, StackSettings
from meristem.blocks.vocabulary import VocabularyHead
from meristem.errors import RecipeError


class Generator(nn.Module):
    """A body that reads what the backbone reads, and the words it guesses from its states.

    Families that are no plain stack bring a body of their own: called with the backbone's inputs and `wanted`, it
    gives the states at those positions.
    """

    def __init__(self, body: nn.Module, words: VocabularyHead) -> None:
        super().__init__()
        self.body, self.words = body, words

    def forward(self, *, wanted: Tensor, **inputs: Tensor) -> Hidden:
        """[B, T] → Hidden, its last layer at the wanted positions alone."""
        return self.body(wanted=wanted, **inputs)  # type: ignore[no-any-return]  # nn.Module.__call__


def smaller(embed: Embedding | SegmentedEmbedding, settings: StackSettings, divide: int) -> Generator:
    """A stack of 1/divide the width over the same embeddings, words behind a transform to the embeddings' width."""
    small = narrowed(settings, divide)
    transform = Transform(small.width, small.activation, small.norm, small.norm_epsilon, small.initial, out=embed.width)
    return Generator(Smaller(embed, small), VocabularyHead(embed.tokens, transform=transform, bias=True))


class Smaller(nn.Module):
    """Embeddings that belong to a larger model, projected to a narrower stack."""

    def __init__(self, embed: Embedding | SegmentedEmbedding, settings: StackSettings) -> None:
        super().__init__()
        self.embed = embed
        self.project = projection(embed.width, settings.width, settings.initial)
        self.stack = Stack(settings)
        self.stack.initialise()

    def forward(
        self,
        *,
        tokens: Tensor,
        segments: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        wanted: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → Hidden."""
        x = self.project(self.embed(tokens, segments))
        return self.stack(x, causal=False, present=present, documents=documents, wanted=wanted)  # type: ignore[no-any-return]  # nn.Module.__call__


def narrowed(settings: StackSettings, divide: int) -> StackSettings:
    """The settings of a stack of 1/divide the width, heads and inner width, and of the same depth."""
    if settings.width % divide:
        would = [f"1/{d}" for d in range(1, 9) if settings.width % d == 0]
        raise RecipeError(
            f"objective.generator: 1/{divide} of a width of {settings.width} is no whole number; "
            f"{', '.join(would)} would be"
        )
    width, most = settings.width // divide, max(1, settings.heads // divide)
    heads = max(h for h in range(1, most + 1) if width % h == 0)
    groups = None
    if settings.groups is not None:
        groups = max(g for g in range(1, min(heads, settings.groups) + 1) if heads % g == 0)
    inner = (settings.inner or 4 * settings.width) // divide
    if settings.positions == "rotary" and width // heads % 2:
        raise RecipeError(
            f"objective.generator: 1/{divide} of the model has {width // heads} channels a head, and rotary positions "
            "need an even number; choose a larger generator"
        )
    return settings.model_copy(update={"width": width, "heads": heads, "groups": groups, "inner": inner})
