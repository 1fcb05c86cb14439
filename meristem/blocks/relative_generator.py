"""A smaller self of a relative stack: the generator where replaced tokens are to be found by such a one."""

# B rows, T tokens, N wanted positions, D width

from __future__ import annotations

from torch import Tensor, nn

from meristem.batch import Hidden
from meristem.blocks.attention import picked
from meristem.blocks.embedding import projection
from meristem.blocks.generator import Generator
from meristem.blocks.heads import Transform
from meristem.blocks.outlook import Outlook
from meristem.blocks.relative_stack import RelativeSettings, RelativeStack
from meristem.blocks.vocabulary import VocabularyHead
from meristem.errors import RecipeError


def smaller_relative(tokens: nn.Embedding, settings: RelativeSettings, divide: int) -> Generator:
    """A relative stack of 1/divide the width over the same embeddings, without memory and without segments."""
    small = _narrowed(settings, divide)
    transform = Transform(
        small.width, small.activation, "layer", small.norm_epsilon, small.initial, out=tokens.embedding_dim
    )
    return Generator(SmallerRelative(tokens, small), VocabularyHead(tokens, transform=transform, bias=True))


class SmallerRelative(nn.Module):
    """Embeddings that belong to a larger model, projected to a narrower relative stack."""

    def __init__(self, tokens: nn.Embedding, settings: RelativeSettings) -> None:
        super().__init__()
        self.tokens = tokens
        self.project = projection(tokens.embedding_dim, settings.width, settings.initial)
        self.stack = RelativeStack(settings)
        self.stack.initialise()

    def forward(
        self,
        *,
        tokens: Tensor,
        wanted: Tensor,
        segments: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → the states [N, D] at the wanted ones of the B·T positions."""
        x = self.project(self.tokens(tokens))
        outlook = Outlook(
            time=tokens.shape[1], causal=False, device=x.device, dtype=x.dtype, present=present, documents=documents
        )
        return Hidden(last=picked(self.stack(x, outlook).last, wanted), wanted=wanted)


def _narrowed(settings: RelativeSettings, divide: int) -> RelativeSettings:
    if settings.width % (2 * divide):
        would = [f"1/{d}" for d in range(1, 9) if settings.width % (2 * d) == 0]
        raise RecipeError(
            f"objective.generator: 1/{divide} of a width of {settings.width} is no even number; "
            f"{', '.join(would)} would be"
        )
    width, most = settings.width // divide, max(1, settings.heads // divide)
    heads = max(h for h in range(1, most + 1) if width % h == 0)
    inner = (settings.inner or 4 * settings.width) // divide
    return settings.model_copy(update={"width": width, "heads": heads, "inner": inner})
