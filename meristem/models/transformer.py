"""The Transformer (Vaswani et al. 2017): an encoder reads the source, a decoder writes; BART and T5 by settings."""

# B batch, S source tokens, T tokens written, D width

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.attention import Attention
from meristem.blocks.cross import CrossAttention
from meristem.blocks.decoder import Decoder
from meristem.blocks.decoding import Decoding
from meristem.blocks.entrance import Entrance
from meristem.blocks.feed_forward import ActivationName
from meristem.blocks.heads import Scaled, shared_head
from meristem.blocks.layer import NormPlace
from meristem.blocks.norms import norm
from meristem.blocks.positions import PositionName
from meristem.blocks.relative_bias import RelativeBias
from meristem.blocks.stack import Stack, StackSettings
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when


class TransformerSettings(StackSettings):
    """The paper's base model unless set otherwise."""

    needs: ClassVar[Dependences] = {
        "relative_farthest": (when("relative_buckets", above=0),),
    }

    family: Literal["transformer"] = "transformer"
    """The family this model belongs to."""
    layers: int = Field(6, ge=1)
    """Encoder layers, and as many decoder layers unless those are set."""
    decoder_layers: int | None = Field(None, ge=1)
    """Decoder layers where they differ from the encoder's."""
    width: int = Field(512, ge=8)
    """Channels of a hidden state (d_model)."""
    heads: int = Field(8, ge=1)
    """Attention heads; they divide the width."""
    length: int = Field(512, ge=4)
    """The longest source and the longest target, in tokens each."""
    activation: ActivationName = "relu"
    """gelu, gelu_tanh, relu, relu6, swiglu or geglu."""
    norm_place: NormPlace = "post"
    """Norm before each part (pre) or after its residual (post, as in the paper)."""
    positions: PositionName = "sinusoidal"
    """learned (a table for each side), sinusoidal, rotary or none."""
    scale_embeddings: bool = True
    """Embeddings times √width, as in the paper."""
    embedding_norm: bool = False
    """A norm over embeddings and positions before the first layer (BART)."""
    embedding_initial: float | None = Field(None, gt=0)
    """Standard deviation of initial embeddings; unless set 1/√width where they are scaled, else `initial`."""
    relative_buckets: int = Field(0, ge=0)
    """Buckets of distance, each a learned bias on attention shared by all layers (T5 has 32); 0 has none."""
    relative_farthest: int = Field(128, ge=2)
    """Distances from here on share the last bucket."""
    scale_scores: bool = True
    """Attention scores divided by √channels; T5 begins with queries that much smaller instead."""
    tied: bool = True
    """One table for source, target and output; otherwise the output has its own (T5 1.1)."""
    scale_output: bool = False
    """States divided by √width before the vocabulary (T5's tied output)."""


class Transformer(Backbone):
    """The source is seen whole; of the target, no position sees a later one."""

    Settings: ClassVar[type[TransformerSettings]] = TransformerSettings
    can = frozenset({"encoder_decoder"})

    def __init__(self, settings: TransformerSettings, vocabulary: int) -> None:
        super().__init__()
        s = settings
        self.settings, self.width, self.length = s, s.width, s.length
        self.tokens = nn.Embedding(vocabulary, s.width)
        self.enter_source, self.enter_target = self._entrance(), self._entrance()
        scale = None if s.scale_scores else 1.0
        self.encoder = Stack(self._encoding(), scale=scale, relative=self._relative(both_ways=True))
        self.decoder = Decoder(s, s.decoder_layers or s.layers, scale=scale, relative=self._relative(both_ways=False))
        self._initialise()

    def _entrance(self) -> Entrance:
        s = self.settings
        return Entrance(
            s.width,
            s.length,
            positions=s.positions,
            scale=s.width**0.5 if s.scale_embeddings else 1.0,
            norm=norm(s.norm, s.width, s.norm_epsilon, bias=s.bias) if s.embedding_norm else None,
            dropout=s.dropout,
        )

    def _encoding(self) -> StackSettings:
        """What the encoder is made from."""
        return self.settings

    def _relative(self, *, both_ways: bool) -> RelativeBias | None:
        s = self.settings
        if not s.relative_buckets:
            return None
        return RelativeBias(s.heads, s.relative_buckets, s.relative_farthest, both_ways=both_ways)

    def _initialise(self) -> None:
        nn.init.normal_(self.tokens.weight, std=self._deviation)
        for entrance in (self.enter_source, self.enter_target):
            entrance.initialise(self.settings.initial)
        for stack in (self.encoder, self.decoder):
            stack.initialise()
            if stack.relative is not None:
                nn.init.normal_(stack.relative.table.weight, std=self.settings.initial)
        if not self.settings.scale_scores:
            self._shrink_queries()

    @torch.no_grad()
    def _shrink_queries(self) -> None:
        for module in self.modules():
            if isinstance(module, Attention):
                module.project.weight[: self.width] *= module.channels**-0.5
            elif isinstance(module, CrossAttention):
                module.query.weight *= module.channels**-0.5

    @property
    def _deviation(self) -> float:
        s = self.settings
        return s.embedding_initial or (s.width**-0.5 if s.scale_embeddings else s.initial)

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        source: Tensor,
        tokens: Tensor,
        source_present: Tensor | None = None,
        present: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """Source [B, S] and target so far [B, T] → Hidden over the target.

        `attention` is what the target sees of the source; `extra` has `encoder_attention` and `decoder_attention`.
        """
        # one look into the table for both sides: the gradient of a table is as large as the table
        both = self.tokens(torch.cat([source, tokens], 1))
        read, written = torch.split(both, [source.shape[1], tokens.shape[1]], 1)
        found = self.encoder(self._placed(read), causal=False, present=source_present, want=want)
        return self._write(written, found, source_present, want)

    def _placed(self, words_BSD: Tensor) -> Tensor:
        """A source's word vectors with positions added: what the encoder's first layer reads."""
        return self.enter_source(words_BSD)  # type: ignore[no-any-return]  # nn.Module.__call__

    def _write(self, written_BTD: Tensor, found: Hidden, present: Tensor | None, want: tuple[str, ...]) -> Hidden:
        """The decoder's side, given the encoder's."""
        hidden: Hidden = self.decoder(self.enter_target(written_BTD), found.last, source_present=present, want=want)
        hidden.source = found.last
        hidden.extra |= {f"encoder_{name}": getattr(found, name) for name in ("attention", "layers") if name in want}
        return hidden

    def encode(self, *, source: Tensor, source_present: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The encoder's states [B, S, D] alone, and which of them exist."""
        x = self._placed(self.tokens(source))
        return self.encoder(x, causal=False, present=source_present).last, source_present

    def writer(self) -> Decoding:
        """The way a session takes from token to token."""
        return Decoding(self.length, self.encode, self.tokens, self.enter_target, self.decoder)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary as a bare tie or a table of its own, and what tasks stand on."""
        s = self.settings
        if kind == "vocabulary":
            scaled = Scaled(s.width**-0.5) if s.scale_output else None
            return VocabularyHead(self.tokens if s.tied else self._output(), transform=scaled)
        return shared_head(self, kind, sizes, ("vocabulary",))

    def _output(self) -> nn.Embedding:
        table = nn.Embedding(self.tokens.num_embeddings, self.width)
        nn.init.normal_(table.weight, std=self.settings.initial)
        return table

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens
