"""Layers of relative attention one above the other, with memory and, where it is asked for, a second stream."""

# B rows, T tokens, K query slots, M slots of memory, L distances, D width

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meristem.batch import Hidden, State
from meristem.blocks.feed_forward import ActivationName, FeedForward
from meristem.blocks.initial import OutputInitial, damp, refuse_uneven_heads
from meristem.blocks.layer import NormPlace
from meristem.blocks.norms import norm
from meristem.blocks.outlook import Outlook
from meristem.blocks.recurrence import Recurrence
from meristem.blocks.relative import Biases, Look, RelativeAttention, dropped, waves
from meristem.dependences import Dependences, when
from meristem.settings import Settings


class RelativeSettings(Settings):
    """Width, depth and memory of a stack with relative attention."""

    needs: ClassVar[Dependences] = {
        "memory_evaluating": (when("memory", above=0),),
    }

    layers: int = Field(12, ge=1)
    """How many layers."""
    width: int = Field(768, ge=8)
    """Channels of a hidden state (d_model)."""
    heads: int = Field(12, ge=1)
    """Attention heads; they divide the width."""
    inner: int | None = Field(None, ge=8)
    """Channels inside the feed-forward part; 4 × width unless set."""
    length: int = Field(512, ge=4)
    """Tokens of one segment."""
    memory: int = Field(0, ge=0)
    """How many states before the segment every layer looks back at; 0 is no memory."""
    memory_evaluating: int | None = Field(None, ge=1)
    """The same when not training, where longer may be better; as in training unless set."""
    clamp: int | None = Field(None, ge=1)
    """Distances beyond this count as this."""
    activation: ActivationName = "gelu"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    norm_place: NormPlace = "post"
    """Norm before each part (pre) or after its residual (post, as in the papers)."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """What keeps a norm from dividing by zero."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of activations dropped in training."""
    initial: float = Field(0.02, gt=0)
    """Standard deviation of initial weights."""
    output_initial: OutputInitial = "normal"
    """Projections into the residual stream: like the rest, scaled by 1/√(2·layers), or zero."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        refuse_uneven_heads(self.width, self.heads)
        if self.width % 2:
            raise ValueError(f"width: {self.width} must be even, one half for sines of distances, one for cosines")
        if self.memory_evaluating is not None and not self.memory:
            raise ValueError("memory_evaluating: set, but memory is 0; a model that never learned to look back cannot")
        return self


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What every layer of one forward pass is given alike."""

    distances: Tensor
    """[1 or B, L, D]"""
    content: Look
    query: Look | None = None


class RelativeLayer(nn.Module):
    """Attention and feed-forward for the content stream, and with the same weights for the query stream."""

    def __init__(
        self, attention: RelativeAttention, feed_forward: FeedForward, norms: tuple[nn.Module, nn.Module],
        *, place: NormPlace, dropout: float,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = norms
        self.place, self.dropout = place, dropout

    def forward(
        self, x_BTD: Tensor, g_BKD: Tensor | None, memory_BMD: Tensor | None, given: Pass, only_query: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Both streams a layer further, and the weights of the one that is read; content may end here."""
        context = x_BTD if memory_BMD is None else torch.cat([memory_BMD, x_BTD], 1)
        ready = self.ready(context)
        keys, distances = self.attention.keys(ready), self.attention.distances(given.distances)
        asked = None
        if g_BKD is not None:
            assert given.query is not None
            found, asked = self.attention(self.ready(g_BKD), keys, distances, given.query)
            g_BKD = self.after(g_BKD, found)
        if only_query and asked is not None:
            return x_BTD, g_BKD, asked
        found, weights = self.attention(ready[:, -x_BTD.shape[1] :], keys, distances, given.content)
        return self.after(x_BTD, found), g_BKD, weights if asked is None else asked

    def ready(self, x: Tensor) -> Tensor:
        """What attention reads of a state."""
        return self.attention_norm(x) if self.place == "pre" else x

    def after(self, x: Tensor, found: Tensor) -> Tensor:
        """Everything behind attention, with both residuals."""
        x = x + dropped(found, self.dropout, self.training)
        if self.place == "pre":
            return x + dropped(self.feed_forward(self.feed_forward_norm(x)), self.dropout, self.training)
        x = self.attention_norm(x)
        return self.feed_forward_norm(x + dropped(self.feed_forward(x), self.dropout, self.training))  # type: ignore[no-any-return]  # nn.Module.__call__


class RelativeStack(nn.Module):
    """The layers, their memory, and the final norm that pre-norm stacks end with."""

    def __init__(self, settings: RelativeSettings, *, segments: int = 0, shared_biases: bool = False) -> None:
        super().__init__()
        self.settings = settings
        channels = settings.width // settings.heads
        every = [Biases(settings.heads, channels, segments=segments > 0) for _ in range(settings.layers)]
        self.layers = nn.ModuleList(self._layer(every[0] if shared_biases else own, segments) for own in every)
        self.final_norm = self._norm() if settings.norm_place == "pre" else nn.Identity()
        self.recompute = False
        """Activations are computed again in the backward pass instead of kept."""

    def _norm(self) -> nn.Module:
        return norm("layer", self.settings.width, self.settings.norm_epsilon)

    def _layer(self, biases: Biases, segments: int) -> RelativeLayer:
        s = self.settings
        return RelativeLayer(
            RelativeAttention(s.width, s.heads, biases, segments=segments, dropout=s.dropout),
            FeedForward(s.width, s.inner or 4 * s.width, s.activation),
            (self._norm(), self._norm()),
            place=s.norm_place,
            dropout=s.dropout,
        )

    def initialise(self) -> None:
        """Normal weights, u, v and segments among them, zero biases, and the residual projections as set."""
        s = self.settings
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=s.initial)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Biases | RelativeAttention):
                for own in module.parameters(recurse=False):
                    nn.init.normal_(own, std=s.initial)
        outputs = (out for layer in self.each() for out in (layer.attention.output, layer.feed_forward.narrow))
        damp(outputs, s.output_initial)

    def empty_memory(self, rows: int) -> State:
        """The memory of rows that have read nothing yet; {} where there is none."""
        s = self.settings
        like = next(self.parameters()).new_zeros(rows, 0, s.width)
        return Recurrence.empty(like, s.layers, s.memory).state if s.memory else {}

    @property
    def slots(self) -> int:
        """How much is remembered in the present mode."""
        s = self.settings
        return s.memory if self.training or s.memory_evaluating is None else s.memory_evaluating

    def forward(
        self, x_BTD: Tensor, outlook: Outlook, *, queries: Tensor | None = None, at: Tensor | None = None,
        remembers: bool = False, backwards: Tensor | None = None, want: tuple[str, ...] = (),
    ) -> Hidden:  # fmt: skip
        """[B, T, D] → Hidden; `queries` [B, K, D] stand `at` [B, K] and are read where there are any."""
        x, g, memory = x_BTD, queries, outlook.memory
        given = Pass(
            distances=self.waves(outlook, backwards),
            content=outlook.content(),
            query=None if at is None else outlook.query(at),
        )
        read, kept, weights = [], [x if g is None else g], []
        for number, layer in enumerate(self.each()):
            read.append(x)
            before = None if memory is None else memory.states[:, number]
            last = g is not None and number == self.settings.layers - 1
            x, g, found = self._through(layer, x, g, before, given, last)
            if "layers" in want:
                kept.append(x if g is None else g)
            if "attention" in want:
                weights.append(found.transpose(0, 1))
        return Hidden(
            last=self.final_norm(x if g is None else g),
            layers=tuple(kept) if "layers" in want else (),
            attention=tuple(weights),
            state=self._followed(read, outlook) if remembers else {},
        )

    def waves(self, outlook: Outlook, backwards_B1: Tensor | None = None) -> Tensor:
        """[1 or B, L, D] the distances as sines and cosines; rows that are read backwards have theirs turned round."""
        s = self.settings
        far = outlook.distances if s.clamp is None else outlook.distances.clamp(-s.clamp, s.clamp)
        signed = far[None] if backwards_B1 is None else torch.where(backwards_B1, -far, far)
        return dropped(waves(signed, s.width, outlook.dtype), s.dropout, self.training)

    def each(self) -> Iterator[RelativeLayer]:
        """The layers with their type, which a ModuleList forgets."""
        return (cast(RelativeLayer, layer) for layer in self.layers)

    def _followed(self, read: list[Tensor], outlook: Outlook) -> State:
        before = outlook.memory or Recurrence.empty(read[0], self.settings.layers, self.slots)
        return before.followed(read, outlook.present, outlook.documents, self.slots)

    def _through(
        self, layer: RelativeLayer, x: Tensor, g: Tensor | None, before: Tensor | None, given: Pass, last: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        if self.recompute and self.training:
            return checkpoint(layer, x, g, before, given, last, use_reentrant=False)  # type: ignore[no-any-return]  # torch's is untyped
        return layer(x, g, before, given, last)  # type: ignore[no-any-return]  # nn.Module.__call__
