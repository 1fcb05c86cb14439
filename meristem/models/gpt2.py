"""GPT-2 (Radford et al. 2019): a causal decoder, norm before each part; with `window`, GPT-3's alternation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.embedding import Embedding
from meristem.blocks.feed_forward import ActivationName
from meristem.blocks.heads import shared_head
from meristem.blocks.initial import OutputInitial
from meristem.blocks.stack import Stack, StackSettings
from meristem.blocks.steps import Steps
from meristem.blocks.vocabulary import VocabularyHead


class GPT2Settings(StackSettings):
    """GPT-2 small unless set otherwise."""

    family: Literal["gpt2"] = "gpt2"
    """The family this model belongs to."""
    length: int = Field(1024, ge=4)
    """The longest input, in tokens."""
    activation: ActivationName = "gelu_tanh"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    output_initial: OutputInitial = "scaled"
    """Projections into the residual stream: like the rest, scaled by 1/√(2·layers) (GPT-2), or zero."""


class GPT2(Backbone):
    """No position sees a later one."""

    Settings: ClassVar[type[GPT2Settings]] = GPT2Settings
    can = frozenset({"causal"})
    picks = True

    def __init__(self, settings: GPT2Settings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.width, self.length = settings, settings.width, settings.length
        self.embed = Embedding(
            vocabulary, settings.width, settings.length, positions=settings.positions, dropout=settings.dropout
        )
        self.stack = Stack(settings)
        self.embed.initialise(settings.initial)
        self.stack.initialise()

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        tokens: Tensor,
        causal: bool = True,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
        wanted: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → Hidden; with a state the tokens go on where it ended."""
        x = self.embed(tokens, first=state["next"] if state else None)
        return self.stack(  # type: ignore[no-any-return]  # nn.Module.__call__
            x, causal=causal, present=present, documents=documents, state=state, want=want, wanted=wanted
        )

    def writer(self) -> Steps:
        """The way a session takes from token to token."""
        return Steps(self, self.embed, self.stack)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary as a bare tie, and what tasks stand on."""
        if kind == "vocabulary":
            return VocabularyHead(self.embed.tokens)
        return shared_head(self, kind, sizes, ("vocabulary",))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.embed.tokens
