"""XLNet (Yang et al. 2019): a bidirectional encoder that learns from any order, with Transformer-XL's memory."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.heads import TokenScore, shared_head
from meristem.blocks.outlook import Outlook
from meristem.blocks.recurrence import Recurrence
from meristem.blocks.relative import dropped
from meristem.blocks.relative_generator import smaller_relative
from meristem.blocks.relative_stack import RelativeSettings, RelativeStack
from meristem.blocks.two_stream_steps import TwoStreamSteps
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when


class XLNetSettings(RelativeSettings):
    """XLNet-base unless set otherwise."""

    needs: ClassVar[Dependences] = {
        "both_ways": (when("memory", above=0),),
    }

    family: Literal["xlnet"] = "xlnet"
    """The family this model belongs to."""
    norm_epsilon: float = Field(1e-12, gt=0)
    """What keeps a norm from dividing by zero."""
    segments: bool = True
    """Whether two tokens are of one segment or of two is seen, in every layer; off leaves segments out."""
    both_ways: bool = False
    """Half of the lanes are read backwards, so that memory holds what comes after as often as what came before."""

    @model_validator(mode="after")
    def _ways(self) -> Self:
        if self.both_ways and not self.memory:
            raise ValueError(
                "both_ways: set, but memory is 0; without memory the way a text is read makes no difference"
            )
        return self


class XLNet(Backbone):
    """Two streams: content knows each token, queries know only where they stand and what comes before in the order."""

    Settings: ClassVar[type[XLNetSettings]] = XLNetSettings
    can = frozenset({"bidirectional", "two_stream", "memory"})

    def __init__(self, settings: XLNetSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.width, self.length = settings, settings.width, settings.length
        self.tokens = nn.Embedding(vocabulary, settings.width)
        self.query = nn.Parameter(torch.empty(settings.width))
        self.stack = RelativeStack(settings, segments=2 if settings.segments else 0)
        for table in (self.tokens.weight, self.query):
            nn.init.normal_(table, std=settings.initial)
        self.stack.initialise()

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        tokens: Tensor,
        order: Tensor | None = None,
        slots: Tensor | None = None,
        segments: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        fresh: Tensor | None = None,
        backwards: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """[B, T] → Hidden: of the content, or of the query `slots` [B, K] where an `order` [B, T] is given.

        Ranks in the order begin at 1, and 0 is padding; tokens of one rank see each other.
        """
        drop = self.settings.dropout
        x = dropped(self.tokens(tokens), drop, self.training)
        outlook = Outlook(
            time=tokens.shape[1],
            causal=False,
            device=x.device,
            dtype=x.dtype,
            memory=Recurrence.of(state, fresh),
            present=present if order is None else order > 0,
            documents=documents,
            segments=segments if self.settings.segments else None,
            order=order,
        )
        start = None if slots is None else dropped(self.query.expand(*slots.shape, -1), drop, self.training)
        remembers = self.stack.slots > 0 and (fresh is not None or bool(state))
        return self.stack(  # type: ignore[no-any-return]  # nn.Module.__call__
            x, outlook, queries=start, at=slots, remembers=remembers, backwards=backwards, want=want
        )

    def empty_memory(self, rows: int) -> State:
        """The memory of rows that have read nothing yet."""
        return self.stack.empty_memory(rows)

    def writer(self) -> TwoStreamSteps:
        """Incremental decoding from left to right; a token sees as far back as the last one of a segment does."""
        s = self.settings
        memory = s.memory if s.memory_evaluating is None else s.memory_evaluating
        return TwoStreamSteps(self.tokens, self.query, self.stack, reach=self.length + memory, chunk=self.length)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary as a tie with a bias, a score for each token, a smaller self, and what tasks stand on."""
        s = self.settings
        match kind:
            case "vocabulary":
                return VocabularyHead(self.tokens, bias=True)
            case "token_score":
                return TokenScore(s.width, s.activation, s.initial)
            case "generator":
                return smaller_relative(self.tokens, s, sizes["divide"])
        return shared_head(self, kind, sizes, ("vocabulary", "token_score", "generator"))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens
