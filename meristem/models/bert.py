"""BERT (Devlin et al. 2018): a bidirectional transformer encoder with token, position and segment embeddings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.embeddings.token_embedding import TokenEmbedding, embedding_projection
from meristem.blocks.heads.task_heads import (
    PooledHead,
    Pooler,
    PoolerName,
    PredictionTransform,
    TokenScoreHead,
    build_shared_head,
    head_input_size,
)
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.transformer.electra_generator import build_generator
from meristem.blocks.transformer.layer import NormPosition
from meristem.blocks.transformer.norms import build_norm
from meristem.blocks.transformer.stack import StackSettings, TransformerStack
from meristem.interfaces.backbone import Backbone, Hidden, State


class BertSettings(StackSettings):
    """BERT-base unless set otherwise."""

    renamed: ClassVar[dict[str, str]] = {
        "embedding": "embedding_size",
        "pooler": "pooler_activation",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "type_vocab_size": "segments",
    }

    family: Literal["bert"] = "bert"
    """The family this model belongs to."""
    norm_position: NormPosition = "post"
    """Norm before each sub-layer (pre) or after its residual (post, as in the paper)."""
    norm_epsilon: float = Field(1e-12, gt=0)
    """Epsilon of the norms."""
    segments: int = Field(2, ge=0)
    """Number of segment embeddings (token types); 0 leaves segments out."""
    embedding_size: int | None = Field(None, ge=8)
    """Embedding size, projected to the hidden size where it differs; the hidden size unless set."""
    pooler_activation: PoolerName = "tanh"
    """Activation of the pooler in sequence-level heads: tanh, gelu (ELECTRA) or relu (DistilBERT)."""


class Bert(Backbone):
    """Bidirectional encoder: every position attends to every other."""

    Settings: ClassVar[type[BertSettings]] = BertSettings
    settings: BertSettings
    capabilities = frozenset({"bidirectional"})
    supports_output_positions = True

    def __init__(self, settings: BertSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.hidden_size, self.max_length = settings, settings.hidden_size, settings.max_length
        embedding_size = settings.embedding_size or settings.hidden_size
        # a pre-norm stack normalizes its input, so only post-norm ones normalize the embeddings
        embedding_norm = (
            build_norm(settings.norm, embedding_size, settings.norm_epsilon)
            if settings.norm_position == "post"
            else None
        )
        self.embed = TokenEmbedding(
            vocab_size,
            embedding_size,
            settings.max_length,
            position_encoding=settings.position_encoding,
            num_segments=settings.segments,
            norm=embedding_norm,
            dropout=settings.dropout,
        )
        self.project = embedding_projection(embedding_size, settings.hidden_size, settings.init_std)
        self.stack = TransformerStack(settings)
        self.embed.init_weights(settings.init_std)
        self.stack.init_weights()

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        tokens: Tensor,
        segments: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
        output_positions: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → Hidden."""
        x = self.project(self.embed(tokens, segments))
        return self.stack(  # type: ignore[no-any-return]  # nn.Module.__call__
            x, causal=False, present=present, documents=documents, want=want, output_positions=output_positions
        )

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """MLM head with BERT's transform, classifier, pooler, token score, ELECTRA generator, or a shared head."""
        s = self.settings
        match kind:
            case "vocabulary":
                transform = PredictionTransform(
                    s.hidden_size, s.activation, s.norm, s.norm_epsilon, s.init_std, out_size=self.embed.embedding_size
                )
                return VocabularyHead(self.embed.tokens, transform=transform, bias=True)
            case "pooled":
                return PooledHead(head_input_size(self, sizes), sizes["classes"], s.init_std, s.pooler_activation)
            case "pooler":
                return Pooler(s.hidden_size, s.init_std)
            case "token_score":
                return TokenScoreHead(s.hidden_size, s.activation, s.init_std)
            case "generator":
                return build_generator(self.embed, s, sizes["divide"])
        return build_shared_head(self, kind, sizes, ("vocabulary", "pooled", "pooler", "token_score", "generator"))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.embed.tokens
