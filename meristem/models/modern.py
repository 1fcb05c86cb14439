"""Llama-like transformer: rotary positions, RMSNorm, SwiGLU, no biases; causal or bidirectional."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.attention.position_encoding import PositionName
from meristem.blocks.heads.task_heads import PredictionTransform, TokenScoreHead, build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.transformer.electra_generator import build_generator
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.norms import NormName
from meristem.blocks.weight_init import OutputInit
from meristem.interfaces.backbone import Hidden
from meristem.models.gpt2 import GPT2, GPT2Settings


class ModernSettings(GPT2Settings):
    """A small Llama-like stack unless set otherwise."""

    renamed: ClassVar[dict[str, str]] = {
        "transform": "output_transform",
        "tied": "tie_embeddings",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "tie_word_embeddings": "tie_embeddings",
    }

    family: Literal["modern"] = "modern"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    activation: ActivationName = "swiglu"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    norm: NormName = "rms"
    """layer or rms."""
    norm_epsilon: float = Field(1e-6, gt=0)
    """Epsilon of the norms."""
    position_encoding: PositionName = "rotary"
    """learned, sinusoidal, rotary or none."""
    bias: bool = False
    """Biases in linear layers and norms."""
    output_init: OutputInit = "zero"
    """Initialization of projections into the residual stream: normal, scaled by 1/√(2·layers) (GPT-2), or zero."""
    output_transform: bool = False
    """BERT's transform (dense layer, activation, norm) before the vocabulary."""
    tie_embeddings: bool = True
    """Tie the output layer to the token embedding."""


class Modern(GPT2):
    """GPT-2's architecture with Llama's components; the objective selects causal or bidirectional attention."""

    Settings = ModernSettings
    capabilities = frozenset({"causal", "bidirectional", "mixed_rows"})
    settings: ModernSettings

    def forward(self, *, causal: bool | Tensor = False, segments: Tensor | None = None, **inputs: Any) -> Hidden:
        """[B, T] → Hidden; segments are ignored."""
        return super().forward(causal=causal, **inputs)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head (optionally with BERT's transform), token score, ELECTRA generator, or a shared head."""
        s = self.settings
        match kind:
            case "vocabulary":
                return VocabularyHead(self._output_embedding(), transform=self._transform(), soft_cap=s.logit_soft_cap)
            case "token_score":
                return TokenScoreHead(s.hidden_size, s.activation, s.init_std)
            case "generator":
                return build_generator(self.embed, s, sizes["divide"])
        return build_shared_head(self, kind, sizes, ("vocabulary", "token_score", "generator"))

    def _transform(self) -> PredictionTransform | None:
        s = self.settings
        return (
            PredictionTransform(s.hidden_size, s.activation, s.norm, s.norm_epsilon, s.init_std)
            if s.output_transform
            else None
        )

    def _output_embedding(self) -> nn.Embedding:
        """The output embedding: the token embedding if tied."""
        if self.settings.tie_embeddings:
            return self.embed.tokens
        table = nn.Embedding(self.embed.tokens.num_embeddings, self.hidden_size)
        nn.init.normal_(table.weight, std=self.settings.init_std)
        return table
