"""ModernBERT (Warner et al. 2024): a pre-norm encoder with rotary positions, GeGLU, no biases, and local attention."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.attention.position_encoding import PositionName
from meristem.blocks.embeddings.token_embedding import TokenEmbedding
from meristem.blocks.heads.task_heads import (
    PredictionTransform,
    TokenScoreHead,
    TransformedHead,
    build_shared_head,
    head_input_size,
)
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.transformer.electra_generator import build_generator
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.norms import build_norm
from meristem.blocks.transformer.stack import StackSettings, TransformerStack
from meristem.blocks.weight_init import OutputInit
from meristem.interfaces.backbone import Backbone, Hidden, State


class ModernBertSettings(StackSettings):
    """ModernBERT-base unless set otherwise."""

    foreign_names: ClassVar[dict[str, str]] = {
        "global_attn_every_n_layers": "global_attention_every",
        "local_attention": "attention_window is the distance, not the width: half of local_attention, and one more",
        "global_rope_theta": "rotary_base",
        "local_rope_theta": "local_rotary_base",
    }

    family: Literal["modernbert"] = "modernbert"
    """The family this model belongs to."""
    layers: int = Field(22, ge=1)
    """Number of layers."""
    ffn_size: int | None = Field(1152, ge=8)
    """Hidden size of the feed-forward network; 4 × hidden_size if none."""
    max_length: int = Field(8192, ge=4)
    """Maximum input length in tokens."""
    activation: ActivationName = "geglu_erf"
    """gelu, gelu_tanh, relu, relu6, relu2, swiglu, geglu or geglu_erf."""
    position_encoding: PositionName = "rotary"
    """learned, sinusoidal, rotary or none."""
    rotary_base: float = Field(160_000.0, gt=1)
    """Base of rotary positions in layers with global attention (rope_theta)."""
    local_rotary_base: float = Field(10_000.0, gt=1)
    """Base of rotary positions in layers with local attention."""
    attention_window: int | None = Field(65, ge=1)
    """Layers with local attention see keys at a smaller distance, on both sides."""
    global_attention_every: int = Field(3, ge=1)
    """Which layers have global attention: the first and every n-th after it; the others have local attention."""
    attention_window_every: Literal[1] = 1
    """Fixed: `global_attention_every` says which layers use the window."""
    bias: Literal[False] = False
    """Biases in linear layers and norms: none, but for the vocabulary and classifiers."""
    output_init: OutputInit = "scaled"
    """Initialization of projections into the residual stream: normal, scaled by 1/√(2·layers) (GPT-2), or zero."""

    def is_global(self, layer_index: int) -> bool:
        """Whether a layer has global attention."""
        return layer_index % self.global_attention_every == 0

    def window_of(self, layer_index: int) -> int | None:
        """The attention window of a layer; None if it sees all keys."""
        return None if self.is_global(layer_index) else self.attention_window

    def rotary_base_of(self, layer_index: int) -> float:
        """The base of the rotary positions of a layer."""
        return self.rotary_base if self.is_global(layer_index) else self.local_rotary_base


class ModernBert(Backbone):
    """Bidirectional encoder whose layers alternate between global and local attention."""

    Settings: ClassVar[type[ModernBertSettings]] = ModernBertSettings
    settings: ModernBertSettings
    capabilities = frozenset({"bidirectional"})
    supports_output_positions = True

    def __init__(self, settings: ModernBertSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.hidden_size, self.max_length = settings, settings.hidden_size, settings.max_length
        self.embed = TokenEmbedding(
            vocab_size,
            settings.hidden_size,
            settings.max_length,
            position_encoding=settings.position_encoding,
            norm=build_norm(settings.norm, settings.hidden_size, settings.norm_epsilon, bias=settings.bias),
            dropout=settings.dropout,
        )
        self.stack = TransformerStack(settings)
        if settings.norm_position == "pre":  # the embeddings are normalized already
            self.stack.layers[0].attention_norm = nn.Identity()
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
        """[B, T] → Hidden; segments are ignored."""
        return self.stack(  # type: ignore[no-any-return]  # nn.Module.__call__
            self.embed(tokens),
            causal=False,
            present=present,
            documents=documents,
            want=want,
            output_positions=output_positions,
        )

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head and classifier after the same transform, token score, ELECTRA generator, or a shared head."""
        s = self.settings
        match kind:
            case "vocabulary":
                return VocabularyHead(self.embed.tokens, transform=self._transform(s.hidden_size), bias=True)
            case "pooled":
                input_size = head_input_size(self, sizes)
                return TransformedHead(self._transform(input_size), input_size, sizes["classes"], s.init_std)
            case "token_score":
                return TokenScoreHead(s.hidden_size, s.activation, s.init_std)
            case "generator":
                return build_generator(self.embed, s, sizes["divide"])
        return build_shared_head(self, kind, sizes, ("vocabulary", "pooled", "token_score", "generator"))

    def _transform(self, size: int) -> PredictionTransform:
        """Dense layer without bias, GELU and norm."""
        s = self.settings
        return PredictionTransform(size, s.activation, s.norm, s.norm_epsilon, s.init_std, bias=s.bias)

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.embed.tokens
