"""Transformer encoder-decoder (Vaswani et al. 2017); BART and T5 by settings."""

# B batch, S source tokens, T target tokens, D hidden size

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.attention.cross_attention import CrossAttention
from meristem.blocks.attention.multi_head import MultiHeadAttention
from meristem.blocks.attention.position_encoding import PositionName
from meristem.blocks.attention.relative_bias import RelativeBias
from meristem.blocks.embeddings.input_embedding import InputEmbedding
from meristem.blocks.heads.task_heads import ScaleStates, build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.encoder_decoder import Seq2SeqIncrementalDecoder
from meristem.blocks.transformer.decoder import TransformerDecoder
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.layer import NormPosition
from meristem.blocks.transformer.norms import build_norm
from meristem.blocks.transformer.stack import StackSettings, TransformerStack
from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.backbone import Backbone, Hidden, State


class TransformerSettings(StackSettings):
    """The paper's base model unless set otherwise."""

    renamed: ClassVar[dict[str, str]] = {
        "embedding_initial": "embedding_init_std",
        "relative_farthest": "relative_max_distance",
        "scale_scores": "scale_attention",
        "tied": "tie_embeddings",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "tie_word_embeddings": "tie_embeddings",
    }

    needs: ClassVar[SettingConditions] = {
        "relative_max_distance": (when("relative_buckets", above=0),),
    }

    family: Literal["transformer"] = "transformer"
    """The family this model belongs to."""
    layers: int = Field(6, ge=1)
    """Number of encoder layers, and of decoder layers unless decoder_layers is set."""
    decoder_layers: int | None = Field(None, ge=1)
    """Number of decoder layers where it differs from the encoder's."""
    hidden_size: int = Field(512, ge=8)
    """Hidden size (d_model)."""
    heads: int = Field(8, ge=1)
    """Number of attention heads; must divide the hidden size."""
    max_length: int = Field(512, ge=4)
    """Maximum length of source and of target, in tokens."""
    activation: ActivationName = "relu"
    """gelu, gelu_tanh, relu, relu6, relu2, swiglu or geglu."""
    norm_position: NormPosition = "post"
    """Norm before each sub-layer (pre) or after its residual (post, as in the paper)."""
    position_encoding: PositionName = "sinusoidal"
    """learned (one table each for encoder and decoder), sinusoidal, rotary or none."""
    scale_embeddings: bool = True
    """Multiply embeddings by √hidden_size, as in the paper."""
    embedding_norm: bool = False
    """A norm over embeddings and positions before the first layer (BART)."""
    embedding_init_std: float | None = Field(None, gt=0)
    """Standard deviation of initial embeddings; unless set 1/√hidden_size where they are scaled, else `init_std`."""
    relative_buckets: int = Field(0, ge=0)
    """Buckets of T5's relative position bias, shared by all layers (T5 has 32); 0 is no bias."""
    relative_max_distance: int = Field(128, ge=2)
    """Larger distances share the last bucket (relative_attention_max_distance)."""
    scale_attention: bool = True
    """Divide attention scores by √head_dim; T5 initializes queries that much smaller instead."""
    tie_embeddings: bool = True
    """One embedding for source, target and output; otherwise the output has its own (T5 1.1)."""
    scale_output: bool = False
    """Divide hidden states by √hidden_size before the output layer (T5's tied output)."""


class Transformer(Backbone):
    """Encoder-decoder: bidirectional over the source, causal over the target."""

    Settings: ClassVar[type[TransformerSettings]] = TransformerSettings
    settings: TransformerSettings
    capabilities = frozenset({"encoder_decoder"})

    def __init__(self, settings: TransformerSettings, vocab_size: int) -> None:
        super().__init__()
        s = settings
        self.settings, self.hidden_size, self.max_length = s, s.hidden_size, s.max_length
        self.tokens = nn.Embedding(vocab_size, s.hidden_size)
        self.enter_source, self.enter_target = self._input_embedding(), self._input_embedding()
        scale = None if s.scale_attention else 1.0
        self.encoder = TransformerStack(
            self._encoder_settings(), scale=scale, relative=self._relative_bias(bidirectional=True)
        )
        self.decoder = TransformerDecoder(
            s, s.decoder_layers or s.layers, scale=scale, relative=self._relative_bias(bidirectional=False)
        )
        self._init_weights()

    def _input_embedding(self) -> InputEmbedding:
        s = self.settings
        return InputEmbedding(
            s.hidden_size,
            s.max_length,
            position_encoding=s.position_encoding,
            scale=s.hidden_size**0.5 if s.scale_embeddings else 1.0,
            norm=build_norm(s.norm, s.hidden_size, s.norm_epsilon, bias=s.bias) if s.embedding_norm else None,
            dropout=s.dropout,
        )

    def _encoder_settings(self) -> StackSettings:
        """Settings of the encoder stack."""
        return self.settings

    def _relative_bias(self, *, bidirectional: bool) -> RelativeBias | None:
        s = self.settings
        if not s.relative_buckets:
            return None
        return RelativeBias(s.heads, s.relative_buckets, s.relative_max_distance, bidirectional=bidirectional)

    def _init_weights(self) -> None:
        nn.init.normal_(self.tokens.weight, std=self._embedding_init_std)
        for input_embedding in (self.enter_source, self.enter_target):
            input_embedding.init_weights(self.settings.init_std)
        for stack in (self.encoder, self.decoder):
            stack.init_weights()
            if stack.relative is not None:
                nn.init.normal_(stack.relative.table.weight, std=self.settings.init_std)
        if not self.settings.scale_attention:
            self._scale_queries()

    @torch.no_grad()
    def _scale_queries(self) -> None:
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.project.weight[: self.hidden_size] *= module.head_dim**-0.5
            elif isinstance(module, CrossAttention):
                module.query.weight *= module.head_dim**-0.5

    @property
    def _embedding_init_std(self) -> float:
        s = self.settings
        return s.embedding_init_std or (s.hidden_size**-0.5 if s.scale_embeddings else s.init_std)

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
        """Source [B, S] and target [B, T] → Hidden of the target.

        `attention` is the cross-attention; `extra` has `encoder_attention` and `decoder_attention`.
        """
        # one embedding lookup for both: the gradient of an embedding is as large as the embedding
        embedded = self.tokens(torch.cat([source, tokens], 1))
        source_embedded, target_embedded = torch.split(embedded, [source.shape[1], tokens.shape[1]], 1)
        encoded = self.encoder(self._embed_source(source_embedded), causal=False, present=source_present, want=want)
        return self._decode(target_embedded, encoded, source_present, want)

    def _embed_source(self, words_BSD: Tensor) -> Tensor:
        """Source token vectors with positions added, the encoder's input."""
        return self.enter_source(words_BSD)  # type: ignore[no-any-return]  # nn.Module.__call__

    def _decode(self, target_BTD: Tensor, encoded: Hidden, present: Tensor | None, want: tuple[str, ...]) -> Hidden:
        """Hidden of the target, given the encoder's output."""
        hidden: Hidden = self.decoder(
            self.enter_target(target_BTD), encoded.last_hidden_state, source_present=present, want=want
        )
        hidden.encoder_hidden_state = encoded.last_hidden_state
        hidden.extra |= {f"encoder_{name}": getattr(encoded, name) for name in ("attention", "layers") if name in want}
        return hidden

    def encode(self, *, source: Tensor, source_present: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encoder output [B, S, D] and its padding mask."""
        x = self._embed_source(self.tokens(source))
        return self.encoder(x, causal=False, present=source_present).last_hidden_state, source_present

    def incremental_decoder(self) -> Seq2SeqIncrementalDecoder:
        """Incremental decoding with a KV cache and precomputed cross-attention keys and values."""
        return Seq2SeqIncrementalDecoder(self.max_length, self.encode, self.tokens, self.enter_target, self.decoder)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head, tied or with its own embedding, or a shared head."""
        s = self.settings
        if kind == "vocabulary":
            output_scale = ScaleStates(s.hidden_size**-0.5) if s.scale_output else None
            return VocabularyHead(self.tokens if s.tie_embeddings else self._output_embedding(), transform=output_scale)
        return build_shared_head(self, kind, sizes, ("vocabulary",))

    def _output_embedding(self) -> nn.Embedding:
        table = nn.Embedding(self.tokens.num_embeddings, self.hidden_size)
        nn.init.normal_(table.weight, std=self.settings.init_std)
        return table

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens
