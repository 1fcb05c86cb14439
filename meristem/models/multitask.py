"""Multitask encoder-decoder for text and images: MLM, NSP, denoising, CLM, seq2seq and captioning on shared weights.

The inputs select the path: tokens alone go through the encoder (bidirectional) or, causally, through the decoder
without cross-attention; a source text or an image goes through the encoder, and the decoder predicts the tokens.
"""

# B batch, P image size in pixels, S source tokens, T tokens, D hidden size

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.attention.position_encoding import PositionName
from meristem.blocks.embeddings.token_embedding import SharedTokenEmbedding, embed_inputs
from meristem.blocks.heads.task_heads import (
    PooledHead,
    Pooler,
    PoolerName,
    PredictionTransform,
    ScaleStates,
    TokenScoreHead,
    build_shared_head,
    head_input_size,
)
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.transformer.electra_generator import build_generator
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.layer import NormPosition
from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.backbone import Hidden, State
from meristem.models.captioner import Captioner, CaptionerSettings

HEAD_KINDS = ("vocabulary", "pooled", "pooler", "token_score", "generator")


class MultitaskSettings(CaptionerSettings):
    """BERT-base's encoder and a decoder of the same size unless set otherwise, so that BERT weights can be loaded."""

    renamed: ClassVar[dict[str, str]] = {
        "transform": "output_transform",
        "pooler": "pooler_activation",
    }

    needs: ClassVar[SettingConditions] = {
        "scale_output": (when("output_transform", False),),
    }

    family: Literal["multitask"] = "multitask"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    layers: int = Field(12, ge=1)
    """Number of encoder layers, and of decoder layers unless decoder_layers is set."""
    hidden_size: int = Field(768, ge=8)
    """Hidden size (d_model)."""
    heads: int = Field(12, ge=1)
    """Number of attention heads; must divide the hidden size."""
    activation: ActivationName = "gelu"
    """gelu, gelu_tanh, relu, relu6, relu2, swiglu or geglu."""
    norm_position: NormPosition = "post"
    """Norm before each sub-layer (pre) or after its residual (post, as in BERT)."""
    norm_epsilon: float = Field(1e-12, gt=0)
    """Epsilon of the norms."""
    position_encoding: PositionName = "learned"
    """learned (one table each for encoder and decoder), sinusoidal, rotary or none."""
    scale_embeddings: bool = False
    """Multiply embeddings by √hidden_size, as in the Transformer's paper."""
    embedding_norm: bool = True
    """A norm over embeddings and positions before the first layer (BERT, BART); off with norm_position=pre."""
    segments: int = Field(2, ge=0)
    """Number of segment embeddings (token types) of the encoder; 0 leaves segments out."""
    tie_embeddings: Literal[True] = True
    """One token embedding for encoder, decoder and every vocabulary head."""
    output_transform: bool = True
    """BERT's transform (dense layer, activation, norm) before the vocabulary; without it only the tied embedding."""
    pooler_activation: PoolerName = "tanh"
    """Activation of the pooler in sequence-level heads: tanh, gelu (ELECTRA) or relu (DistilBERT)."""


class Multitask(Captioner):
    """Text and images in one model: each objective uses the encoder, the decoder or both."""

    Settings = MultitaskSettings
    capabilities = frozenset({"encoder_decoder", "image", "bidirectional", "causal"})
    supports_output_positions = True
    supports_text_tasks = True
    settings: MultitaskSettings
    encoder_prefixes: ClassVar[Mapping[str, str]] = {
        "backbone.embed.tokens.": "backbone.tokens.",
        "backbone.embed.positions.": "backbone.enter_source.positions.",
        "backbone.embed.norm.": "backbone.enter_source.norm.",
        "backbone.embed.segments.": "backbone.segments.",
        "backbone.stack.": "backbone.encoder.",
    }

    def __init__(self, settings: MultitaskSettings, vocab_size: int) -> None:
        super().__init__(settings, vocab_size)
        self.segments = nn.Embedding(settings.segments, settings.hidden_size) if settings.segments else None
        if self.segments is not None:
            nn.init.normal_(self.segments.weight, std=settings.init_std)

    def forward(  # type: ignore[override]  # the inputs select the path
        self,
        *,
        tokens: Tensor,
        image: Tensor | None = None,
        source: Tensor | None = None,
        causal: bool = False,
        segments: Tensor | None = None,
        source_present: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
        output_positions: Tensor | None = None,
    ) -> Hidden:
        """Tokens [B, T] → Hidden of the tokens.

        With `source` [B, S] or `image` [B, P, P, 3] the tokens are the decoder's target; with `causal` they go through
        the decoder alone; otherwise through the encoder, whose last layer is computed only at `output_positions`.
        """
        if image is not None or source is not None:
            return super().forward(tokens=tokens, image=image, source=source, source_present=source_present, want=want)
        embedded = self.tokens(tokens)
        if causal:
            return self.decoder(self.enter_target(embedded), None, documents=documents, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__
        x = embed_inputs(embedded, self.enter_source, self.segments, segments)
        return self.encoder(  # type: ignore[no-any-return]  # as above
            x, causal=False, present=present, documents=documents, want=want, output_positions=output_positions
        )

    def _embed_source(self, words_BSD: Tensor) -> Tensor:
        """Source token vectors with positions and the first segment added."""
        return embed_inputs(words_BSD, self.enter_source, self.segments, None)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Tied vocabulary head, pooled classifier, pooler, token score, ELECTRA generator, or a shared head."""
        s = self.settings
        match kind:
            case "vocabulary":
                return self._vocabulary_head()
            case "pooled":
                return PooledHead(head_input_size(self, sizes), sizes["classes"], s.init_std, s.pooler_activation)
            case "pooler":
                return Pooler(s.hidden_size, s.init_std)
            case "token_score":
                return TokenScoreHead(s.hidden_size, s.activation, s.init_std)
            case "generator":
                return build_generator(
                    SharedTokenEmbedding(self.tokens, self.enter_source, self.segments), s, sizes["divide"]
                )
        return build_shared_head(self, kind, sizes, HEAD_KINDS)

    def _vocabulary_head(self) -> VocabularyHead:
        s = self.settings
        if s.output_transform:
            transform = PredictionTransform(s.hidden_size, s.activation, s.norm, s.norm_epsilon, s.init_std)
            return VocabularyHead(self.tokens, transform=transform, bias=True)
        return VocabularyHead(self.tokens, transform=ScaleStates(s.hidden_size**-0.5) if s.scale_output else None)
