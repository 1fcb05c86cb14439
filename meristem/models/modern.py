"""What the family looks like today: rotary positions, RMS norm, SwiGLU, no biases; causal or bidirectional."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Hidden
from meristem.blocks.feed_forward import ActivationName
from meristem.blocks.generator import smaller
from meristem.blocks.heads import TokenScore, Transform, shared_head
from meristem.blocks.initial import OutputInitial
from meristem.blocks.norms import NormName
from meristem.blocks.positions import PositionName
from meristem.blocks.vocabulary import VocabularyHead
from meristem.models.gpt2 import GPT2, GPT2Settings


class ModernSettings(GPT2Settings):
    """A small Llama-like stack unless set otherwise."""

    family: Literal["modern"] = "modern"  # type: ignore[assignment]  # a family of its own
    """The family this model belongs to."""
    activation: ActivationName = "swiglu"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    norm: NormName = "rms"
    """layer or rms."""
    norm_epsilon: float = Field(1e-6, gt=0)
    """What keeps a norm from dividing by zero."""
    positions: PositionName = "rotary"
    """learned, sinusoidal, rotary or none."""
    bias: bool = False
    """Biases in projections."""
    output_initial: OutputInitial = "zero"
    """Projections into the residual stream: like the rest, scaled by 1/√(2·layers) (GPT-2), or zero."""
    transform: bool = False
    """A dense layer and a norm before the vocabulary, as BERT has."""
    tied: bool = True
    """The vocabulary is predicted with the table that its tokens are looked up in."""


class Modern(GPT2):
    """GPT-2's body with today's parts; the objective says which way it looks."""

    Settings = ModernSettings
    can = frozenset({"causal", "bidirectional"})
    settings: ModernSettings

    def forward(self, *, causal: bool = False, segments: Tensor | None = None, **inputs: Any) -> Hidden:
        """[B, T] → Hidden; segments are not told apart."""
        return super().forward(causal=causal, **inputs)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary, behind BERT's transform where that is asked for, a score for each token, a smaller self."""
        s = self.settings
        match kind:
            case "vocabulary":
                return VocabularyHead(self._words(), transform=self._transform())
            case "token_score":
                return TokenScore(s.width, s.activation, s.initial)
            case "generator":
                return smaller(self.embed, s, sizes["divide"])
        return shared_head(self, kind, sizes, ("vocabulary", "token_score", "generator"))

    def _transform(self) -> Transform | None:
        s = self.settings
        return Transform(s.width, s.activation, s.norm, s.norm_epsilon, s.initial) if s.transform else None

    def _words(self) -> nn.Embedding:
        """The table words are predicted with."""
        if self.settings.tied:
            return self.embed.tokens
        made = nn.Embedding(self.embed.tokens.num_embeddings, self.width)
        nn.init.normal_(made.weight, std=self.settings.initial)
        return made
