"""One encoder-decoder for text and pictures: MLM, NSP, denoising, CLM, seq2seq and captioning on shared weights.

What it computes follows from its inputs: tokens alone pass the encoder (bidirectional) or, causally, the decoder
without cross-attention; a source text or a picture passes the encoder, and the decoder writes the tokens from it.
"""

# B batch, P pixels of a side, S source tokens, T tokens, D width

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Hidden, State
from meristem.blocks.embedding import SegmentedEmbedding, placed
from meristem.blocks.feed_forward import ActivationName
from meristem.blocks.generator import smaller
from meristem.blocks.heads import PooledHead, Pooler, PoolerName, Scaled, TokenScore, Transform, shared_head, width_of
from meristem.blocks.layer import NormPlace
from meristem.blocks.positions import PositionName
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when
from meristem.models.captioner import Captioner, CaptionerSettings

HEADS = ("vocabulary", "pooled", "pooler", "token_score", "generator")


class MultitaskSettings(CaptionerSettings):
    """BERT-base's encoder and a decoder like it unless set otherwise, so that a BERT can be started from."""

    needs: ClassVar[Dependences] = {
        "scale_output": (when("transform", False),),
    }

    family: Literal["multitask"] = "multitask"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    layers: int = Field(12, ge=1)
    """Encoder layers, and as many decoder layers unless those are set."""
    width: int = Field(768, ge=8)
    """Channels of a hidden state (d_model)."""
    heads: int = Field(12, ge=1)
    """Attention heads; they divide the width."""
    activation: ActivationName = "gelu"
    """gelu, gelu_tanh, relu, relu6, swiglu or geglu."""
    norm_place: NormPlace = "post"
    """Norm before each part (pre) or after its residual (post, as in BERT)."""
    norm_epsilon: float = Field(1e-12, gt=0)
    """What keeps a norm from dividing by zero."""
    positions: PositionName = "learned"
    """learned (a table for each side), sinusoidal, rotary or none."""
    scale_embeddings: bool = False
    """Embeddings times √width, as in the Transformer's paper."""
    embedding_norm: bool = True
    """A norm over embeddings and positions before the first layer (BERT, BART); leave it out with norm_place=pre."""
    segments: int = Field(2, ge=0)
    """How many kinds of segment have an embedding on the encoder's side; 0 leaves segments out."""
    tied: Literal[True] = True
    """One token embedding for encoder, decoder and every vocabulary head."""
    transform: bool = True
    """A dense layer, activation and norm before the vocabulary, as in BERT; without it the tied table alone."""
    pooler: PoolerName = "tanh"
    """What follows the dense layer of a head that reads a whole text: tanh, gelu (ELECTRA) or relu (DistilBERT)."""


class Multitask(Captioner):
    """Text and pictures in one model: each objective uses the halves it needs."""

    Settings = MultitaskSettings
    can = frozenset({"encoder_decoder", "image", "bidirectional", "causal"})
    picks = True
    text_tasks = True
    settings: MultitaskSettings
    encoder_prefixes: ClassVar[Mapping[str, str]] = {
        "backbone.embed.tokens.": "backbone.tokens.",
        "backbone.embed.positions.": "backbone.enter_source.positions.",
        "backbone.embed.norm.": "backbone.enter_source.norm.",
        "backbone.embed.segments.": "backbone.segments.",
        "backbone.stack.": "backbone.encoder.",
    }

    def __init__(self, settings: MultitaskSettings, vocabulary: int) -> None:
        super().__init__(settings, vocabulary)
        self.segments = nn.Embedding(settings.segments, settings.width) if settings.segments else None
        if self.segments is not None:
            nn.init.normal_(self.segments.weight, std=settings.initial)

    def forward(  # type: ignore[override]  # what is read follows from which inputs there are
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
        wanted: Tensor | None = None,
    ) -> Hidden:
        """Tokens [B, T] → Hidden over them.

        With `source` [B, S] or `image` [B, P, P, 3] they are a target that the decoder writes from it; with `causal`
        the decoder reads them alone; otherwise the encoder does, its last layer at the `wanted` positions only.
        """
        if image is not None or source is not None:
            return super().forward(tokens=tokens, image=image, source=source, source_present=source_present, want=want)
        words = self.tokens(tokens)
        if causal:
            return self.decoder(self.enter_target(words), None, documents=documents, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__
        x = placed(words, self.enter_source, self.segments, segments)
        return self.encoder(x, causal=False, present=present, documents=documents, want=want, wanted=wanted)  # type: ignore[no-any-return]  # as above

    def _placed(self, words_BSD: Tensor) -> Tensor:
        """A source's word vectors with positions and the first segment added."""
        return placed(words_BSD, self.enter_source, self.segments, None)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary heads tied to the one embedding, BERT's pooler, a score for each token, ELECTRA's generator."""
        s = self.settings
        match kind:
            case "vocabulary":
                return self._vocabulary()
            case "pooled":
                return PooledHead(width_of(self, sizes), sizes["classes"], s.initial, s.pooler)
            case "pooler":
                return Pooler(s.width, s.initial)
            case "token_score":
                return TokenScore(s.width, s.activation, s.initial)
            case "generator":
                return smaller(SegmentedEmbedding(self.tokens, self.enter_source, self.segments), s, sizes["divide"])
        return shared_head(self, kind, sizes, HEADS)

    def _vocabulary(self) -> VocabularyHead:
        s = self.settings
        if s.transform:
            transform = Transform(s.width, s.activation, s.norm, s.norm_epsilon, s.initial)
            return VocabularyHead(self.tokens, transform=transform, bias=True)
        return VocabularyHead(self.tokens, transform=Scaled(s.width**-0.5) if s.scale_output else None)
