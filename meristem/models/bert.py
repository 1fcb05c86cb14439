"""BERT (Devlin et al. 2018): a bidirectional encoder over tokens, positions and segments."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.embedding import Embedding
from meristem.blocks.heads import PooledHead, Transform, no_such_head
from meristem.blocks.layer import NormPlace
from meristem.blocks.norms import norm
from meristem.blocks.stack import Stack, StackSettings
from meristem.blocks.vocabulary import VocabularyHead


class BertSettings(StackSettings):
    """BERT-base unless set otherwise."""

    family: Literal["bert"] = "bert"
    """The family this model belongs to."""
    norm_place: NormPlace = "post"
    """Norm before each part (pre) or after its residual (post, as in the paper)."""
    norm_epsilon: float = Field(1e-12, gt=0)
    """What keeps a norm from dividing by zero."""
    segments: int = Field(2, ge=0)
    """How many kinds of segment have an embedding; 0 leaves segments out."""


class Bert(Backbone):
    """Every position sees every other."""

    Settings: ClassVar[type[BertSettings]] = BertSettings
    can = frozenset({"bidirectional"})
    picks = True

    def __init__(self, settings: BertSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.width, self.length = settings, settings.width, settings.length
        # a pre-norm stack normalises what it reads, so only post-norm ones normalise the embeddings
        first = norm(settings.norm, settings.width, settings.norm_epsilon) if settings.norm_place == "post" else None
        self.embed = Embedding(
            vocabulary,
            settings.width,
            settings.length,
            positions=settings.positions,
            segments=settings.segments,
            norm=first,
            dropout=settings.dropout,
        )
        self.stack = Stack(settings)
        self.embed.initialise(settings.initial)
        self.stack.initialise()

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        tokens: Tensor,
        segments: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
        wanted: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → Hidden."""
        x = self.embed(tokens, segments)
        return self.stack(x, causal=False, present=present, documents=documents, want=want, wanted=wanted)  # type: ignore[no-any-return]  # nn.Module.__call__

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary behind a transform, classes behind a pooler."""
        s = self.settings
        match kind:
            case "vocabulary":
                transform = Transform(s.width, s.activation, s.norm, s.norm_epsilon, s.initial)
                return VocabularyHead(self.embed.tokens, transform=transform, bias=True)
            case "pooled":
                return PooledHead(s.width, sizes["classes"], s.initial)
        raise no_such_head(s.family, kind, ("vocabulary", "pooled"))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.embed.tokens
