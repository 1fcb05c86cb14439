"""Transformer-XL (Dai et al. 2019): a causal decoder that remembers the segments before, with relative positions."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.adaptive import AdaptiveHead
from meristem.blocks.feed_forward import ActivationName
from meristem.blocks.heads import shared_head
from meristem.blocks.outlook import Outlook
from meristem.blocks.recurrence import Recurrence
from meristem.blocks.relative import dropped
from meristem.blocks.relative_stack import RelativeSettings, RelativeStack
from meristem.blocks.relative_steps import RelativeSteps
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when


class TransformerXLSettings(RelativeSettings):
    """The base model for WikiText-103 unless set otherwise, its vocabulary in one piece."""

    needs: ClassVar[Dependences] = {
        "same_length": (when("memory", above=0),),
    }

    family: Literal["transformer_xl"] = "transformer_xl"
    """The family this model belongs to."""
    layers: int = Field(16, ge=1)
    """How many layers."""
    width: int = Field(410, ge=8)
    """Channels of a hidden state (d_model)."""
    heads: int = Field(10, ge=1)
    """Attention heads; they divide the width."""
    length: int = Field(150, ge=4)
    """Tokens of one segment."""
    memory: int = Field(150, ge=0)
    """How many states before the segment every layer looks back at; 0 is no memory."""
    activation: ActivationName = "relu"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    same_length: bool = False
    """Every position sees equally many keys, as many as there is memory, itself among them."""
    shared_biases: bool = True
    """One u and one v for all layers (as in the paper), or each layer its own."""
    cutoffs: tuple[int, ...] = ()
    """Adaptive softmax: ids, the most frequent first, are cut here; none is one plain softmax."""
    tied: bool = True
    """The output layer is the embedding, or has weights of its own."""


class TransformerXL(Backbone):
    """No position sees a later one, and each sees further back than its segment."""

    Settings: ClassVar[type[TransformerXLSettings]] = TransformerXLSettings
    can = frozenset({"causal", "memory"})

    def __init__(self, settings: TransformerXLSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.width, self.length = settings, settings.width, settings.length
        self.tokens = nn.Embedding(vocabulary, settings.width)
        self.stack = RelativeStack(settings, shared_biases=settings.shared_biases)
        nn.init.normal_(self.tokens.weight, std=settings.initial)
        self.stack.initialise()

    def embed(self, tokens: Tensor) -> Tensor:
        """[B, T] → [B, T, D], scaled up as in Vaswani et al. §3.4."""
        return dropped(self.tokens(tokens) * self.width**0.5, self.settings.dropout, self.training)

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        tokens: Tensor,
        causal: bool = True,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        fresh: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """[B, T] → Hidden; rows that come with `fresh` leave memory behind, and find what an earlier call left."""
        x = self.embed(tokens)
        outlook = Outlook(
            time=tokens.shape[1],
            causal=causal,
            device=x.device,
            dtype=x.dtype,
            memory=Recurrence.of(state, fresh),
            window=self.stack.slots if self.settings.same_length and self.stack.slots else None,
            present=present,
            documents=documents,
        )
        remembers = self.stack.slots > 0 and (fresh is not None or bool(state))
        return self.stack(x, outlook, remembers=remembers, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__

    def writer(self) -> RelativeSteps:
        """The way a session takes from token to token; it sees as far as the last token of a segment does."""
        s = self.settings
        memory = s.memory if s.memory_evaluating is None else s.memory_evaluating
        reach = memory if s.same_length and memory else self.length + memory
        return RelativeSteps(self.embed, self.stack, reach=reach, chunk=self.length)

    def empty_memory(self, rows: int) -> State:
        """The memory of rows that have read nothing yet."""
        return self.stack.empty_memory(rows)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary in one piece or by frequency, and what tasks stand on."""
        s = self.settings
        if kind != "vocabulary":
            return shared_head(self, kind, sizes, ("vocabulary",))
        table = self.tokens
        if not s.tied:
            table = nn.Embedding(*self.tokens.weight.shape)
            nn.init.normal_(table.weight, std=s.initial)
        if any(cut < table.num_embeddings for cut in s.cutoffs):
            return AdaptiveHead(table, s.cutoffs, deviation=s.initial)
        return VocabularyHead(table, bias=True)

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens
