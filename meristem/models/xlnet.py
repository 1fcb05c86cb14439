"""XLNet (Yang et al. 2019): two-stream attention for permutation language modelling, with Transformer-XL's memory."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from meristem.blocks.attention.relative_attention import apply_dropout
from meristem.blocks.attention.relative_mask import RelativeMaskSpec
from meristem.blocks.heads.task_heads import TokenScoreHead, build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.two_stream_decoder import TwoStreamIncrementalDecoder
from meristem.blocks.precision import to_compute_dtype
from meristem.blocks.transformer.relative_generator import build_relative_generator
from meristem.blocks.transformer.relative_stack import RelativeStack, RelativeStackSettings
from meristem.blocks.transformer.segment_memory import SegmentMemory
from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.backbone import Backbone, Hidden, State


class XLNetSettings(RelativeStackSettings):
    """XLNet-base unless set otherwise."""

    renamed: ClassVar[dict[str, str]] = {
        "both_ways": "bidirectional_data",
    }

    needs: ClassVar[SettingConditions] = {
        "bidirectional_data": (when("memory_length", above=0),),
    }

    family: Literal["xlnet"] = "xlnet"
    """The family this model belongs to."""
    norm_epsilon: float = Field(1e-12, gt=0)
    """Epsilon of the norms."""
    segments: bool = True
    """Relative segment encoding: every layer knows whether two tokens belong to the same segment."""
    bidirectional_data: bool = False
    """Read half of the batch rows backwards, so that memory holds following text as often as preceding text."""

    @model_validator(mode="after")
    def _check_directions(self) -> Self:
        if self.bidirectional_data and not self.memory_length:
            raise ValueError(
                "bidirectional_data: needs memory_length > 0; without memory the reading direction makes no difference"
            )
        return self

    @property
    def reads_both_ways(self) -> bool:
        """Whether half of the rows are read backwards."""
        return self.bidirectional_data

    @property
    def carries_memory(self) -> bool:
        """With a memory length above 0."""
        return self.memory_length > 0


class XLNet(Backbone):
    """Two streams: the content stream knows each token; the query stream knows only positions and earlier tokens."""

    Settings: ClassVar[type[XLNetSettings]] = XLNetSettings
    settings: XLNetSettings
    capabilities = frozenset({"bidirectional", "two_stream", "memory"})

    def __init__(self, settings: XLNetSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.hidden_size, self.max_length = settings, settings.hidden_size, settings.max_length
        self.tokens = nn.Embedding(vocab_size, settings.hidden_size)
        self.query = nn.Parameter(torch.empty(settings.hidden_size))
        self.stack = RelativeStack(settings, num_segments=2 if settings.segments else 0)
        for table in (self.tokens.weight, self.query):
            nn.init.normal_(table, std=settings.init_std)
        self.stack.init_weights()

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
        """[B, T] → Hidden of the content stream, or with `slots` [B, K] of the queries at these positions.

        `order` [B, T] is the factorization order: ranks start at 1, 0 is padding, tokens of equal rank attend to each
        other.
        """
        dropout = self.settings.dropout
        x = apply_dropout(to_compute_dtype(self.tokens(tokens)), dropout, self.training)
        mask_spec = RelativeMaskSpec(
            num_tokens=tokens.shape[1],
            causal=False,
            device=x.device,
            dtype=x.dtype,
            memory=SegmentMemory.from_state(state, fresh),
            present=present if order is None else order > 0,
            documents=documents,
            segments=segments if self.settings.segments else None,
            order=order,
        )
        query_states = (
            None
            if slots is None
            else apply_dropout(to_compute_dtype(self.query).expand(*slots.shape, -1), dropout, self.training)
        )
        remembers = self.stack.memory_length > 0 and (fresh is not None or bool(state))
        return self.stack(  # type: ignore[no-any-return]  # nn.Module.__call__
            x, mask_spec, queries=query_states, at=slots, remembers=remembers, backwards=backwards, want=want
        )

    def empty_memory(self, batch_size: int) -> State:
        """Empty segment memory."""
        return self.stack.empty_memory(batch_size)

    def incremental_decoder(self) -> TwoStreamIncrementalDecoder:
        """Incremental decoding from left to right; its context is that of a segment's last token in training."""
        s = self.settings
        memory_length = s.memory_length if s.eval_memory_length is None else s.eval_memory_length
        return TwoStreamIncrementalDecoder(
            self.tokens, self.query, self.stack, context_length=self.max_length + memory_length, chunk=self.max_length
        )

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Tied vocabulary head with bias, token score, ELECTRA generator, or a shared head."""
        s = self.settings
        match kind:
            case "vocabulary":
                return VocabularyHead(self.tokens, bias=True)
            case "token_score":
                return TokenScoreHead(s.hidden_size, s.activation, s.init_std)
            case "generator":
                return build_relative_generator(self.tokens, s, sizes["divide"])
        return build_shared_head(self, kind, sizes, ("vocabulary", "token_score", "generator"))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens
