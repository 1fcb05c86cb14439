"""BERT (Devlin et al. 2018): a bidirectional encoder over tokens, positions and segments."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.embedding import Embedding, projection
from meristem.blocks.generator import smaller
from meristem.blocks.heads import PooledHead, Pooler, PoolerName, TokenScore, Transform, shared_head, width_of
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
    embedding: int | None = Field(None, ge=8)
    """Width of the embeddings where it is not the model's; they are then projected to it."""
    pooler: PoolerName = "tanh"
    """What follows the dense layer of a head that reads a whole text: tanh, gelu (ELECTRA) or relu (DistilBERT)."""


class Bert(Backbone):
    """Every position sees every other."""

    Settings: ClassVar[type[BertSettings]] = BertSettings
    can = frozenset({"bidirectional"})
    picks = True

    def __init__(self, settings: BertSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.width, self.length = settings, settings.width, settings.length
        narrow = settings.embedding or settings.width
        # a pre-norm stack normalises what it reads, so only post-norm ones normalise the embeddings
        first = norm(settings.norm, narrow, settings.norm_epsilon) if settings.norm_place == "post" else None
        self.embed = Embedding(
            vocabulary,
            narrow,
            settings.length,
            positions=settings.positions,
            segments=settings.segments,
            norm=first,
            dropout=settings.dropout,
        )
        self.project = projection(narrow, settings.width, settings.initial)
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
        x = self.project(self.embed(tokens, segments))
        return self.stack(x, causal=False, present=present, documents=documents, want=want, wanted=wanted)  # type: ignore[no-any-return]  # nn.Module.__call__

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary behind a transform, classes behind its pooler, a score for each token, a smaller self."""
        s = self.settings
        match kind:
            case "vocabulary":
                transform = Transform(s.width, s.activation, s.norm, s.norm_epsilon, s.initial, out=self.embed.width)
                return VocabularyHead(self.embed.tokens, transform=transform, bias=True)
            case "pooled":
                return PooledHead(width_of(self, sizes), sizes["classes"], s.initial, s.pooler)
            case "pooler":
                return Pooler(s.width, s.initial)
            case "token_score":
                return TokenScore(s.width, s.activation, s.initial)
            case "generator":
                return smaller(self.embed, s, sizes["divide"])
        return shared_head(self, kind, sizes, ("vocabulary", "pooled", "pooler", "token_score", "generator"))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.embed.tokens
