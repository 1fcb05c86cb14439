"""Mamba (Gu and Dao 2023): a causal language model of selective state-space layers, without attention or positions."""

# B batch, T tokens, D hidden size, E channels (inner size), N state size, K kernel size, R rank of the time step,
# L layers

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self, cast

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meristem.blocks.fused_linear import FusedLinear
from meristem.blocks.heads.task_heads import build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.recurrent_decoder import RecurrentIncrementalDecoder
from meristem.blocks.precision import at_least_float32, to_compute_dtype
from meristem.blocks.recurrent.selective_scan import SegmentMasks, causal_convolution, last_documents, selective_scan
from meristem.blocks.transformer.norms import build_norm
from meristem.blocks.transformer.segment_memory import EMPTY_SLOT
from meristem.interfaces.backbone import Backbone, Hidden, State
from meristem.models.settings import ModelSettings

MIN_TIME_STEP = 1e-4


class MambaSettings(ModelSettings):
    """Mamba with 130 million parameters unless set otherwise."""

    foreign_names: ClassVar[dict[str, str]] = {
        "d_model": "hidden_size",
        "n_layer": "layers",
        "num_hidden_layers": "layers",
        "d_state": "state_size",
        "d_conv": "kernel_size",
        "conv_kernel": "kernel_size",
        "dt_rank": "time_step_rank",
        "dt_min": "time_step_min",
        "dt_max": "time_step_max",
    }

    family: Literal["mamba"] = "mamba"
    """The family this model belongs to."""
    layers: int = Field(24, ge=1)
    """Number of layers."""
    hidden_size: int = Field(768, ge=8)
    """Hidden size (d_model)."""
    expand: int = Field(2, ge=1)
    """Channels of a layer, as a multiple of the hidden size."""
    state_size: int = Field(16, ge=1)
    """Values in the state of each channel (d_state)."""
    kernel_size: int = Field(4, ge=2)
    """Tokens that the causal convolution reads, including the current one (d_conv)."""
    time_step_rank: int | None = Field(None, ge=1)
    """Rank of the projection to time steps (dt_rank); a sixteenth of the hidden size unless set."""
    time_step_min: float = Field(0.001, gt=0)
    """Smallest initial time step."""
    time_step_max: float = Field(0.1, gt=0)
    """Largest initial time step."""
    max_length: int = Field(1024, ge=4)
    """Maximum input length in training, in tokens; there is no limit at inference."""
    carry_state: bool = False
    """Train on consecutive segments: each starts from the state in which the one before it ended, without gradient."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """Epsilon of the norms."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of embeddings and layer outputs."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of initial embeddings."""

    @model_validator(mode="after")
    def _check_time_steps(self) -> Self:
        if self.time_step_max < self.time_step_min:
            raise ValueError(
                f"time_step_max: {self.time_step_max} is less than time_step_min={self.time_step_min}; "
                "the published models have 0.001 and 0.1"
            )
        return self

    @property
    def inner_size(self) -> int:
        """Channels of a layer (d_inner)."""
        return self.expand * self.hidden_size

    @property
    def rank(self) -> int:
        """Rank of the projection to time steps."""
        return self.time_step_rank or -(-self.hidden_size // 16)

    @property
    def carries_memory(self) -> bool:
        """With `carry_state`."""
        return self.carry_state


class MambaMixer(nn.Module):
    """Projection to inputs and gates, causal convolution, selective scan, gating, and projection back."""

    def __init__(self, settings: MambaSettings) -> None:
        super().__init__()
        s = settings
        self.sizes = s.rank, s.state_size, s.state_size
        self.in_projection = FusedLinear(s.hidden_size, (s.inner_size, s.inner_size), bias=False)
        self.convolution_weight = nn.Parameter(torch.empty(s.inner_size, s.kernel_size))
        self.convolution_bias = nn.Parameter(torch.zeros(s.inner_size))
        self.selection = FusedLinear(s.inner_size, self.sizes, bias=False)
        self.time_step = nn.Linear(s.rank, s.inner_size)
        self.log_decay = nn.Parameter(torch.empty(s.inner_size * s.state_size))
        """log(−A) of [E, N], flat: optimizers do not decay one-dimensional parameters."""
        self.skip = nn.Parameter(torch.ones(s.inner_size))
        self.out_projection = nn.Linear(s.inner_size, s.hidden_size, bias=False)
        self._init_weights(s)

    def _init_weights(self, s: MambaSettings) -> None:
        """As in the paper: A_n = −n (S4D-Real), initial time steps log-uniform between their bounds."""
        nn.init.uniform_(self.convolution_weight, -(s.kernel_size**-0.5), s.kernel_size**-0.5)
        nn.init.uniform_(self.time_step.weight, -(s.rank**-0.5), s.rank**-0.5)
        with torch.no_grad():
            self.log_decay.copy_(torch.arange(1, s.state_size + 1).log().repeat(s.inner_size))
            log_steps = nn.init.uniform_(self.time_step.bias, math.log(s.time_step_min), math.log(s.time_step_max))
            steps = log_steps.exp().clamp(min=MIN_TIME_STEP)
            self.time_step.bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # the inverse of softplus
            self.out_projection.weight.mul_(s.layers**-0.5)

    def forward(
        self, x_BTD: Tensor, window_BKE: Tensor, state_BNE: Tensor, masks: SegmentMasks
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Output [B, T, D], and the convolution window [B, K − 1, E] and state [B, N, E] after the last token."""
        inputs, gates = self.in_projection(x_BTD).chunk(2, -1)
        padded = torch.cat([window_BKE.to(inputs.dtype), inputs], 1)
        weight, bias = self.convolution_weight.to(inputs.dtype), self.convolution_bias.to(inputs.dtype)
        x = F.silu(causal_convolution(padded, weight, bias, masks.visible))
        steps, b, c = self.selection(x).split(self.sizes, -1)
        # softplus and all that follows the product in float32
        dt = F.softplus(at_least_float32(F.linear(steps, self.time_step.weight)) + self.time_step.bias)
        if masks.present_BT is not None:
            dt = dt.masked_fill(~masks.present_BT[..., None], 0)
        a_NE = -self.log_decay.view(x.shape[2], -1).t().exp()
        y, state = selective_scan(x, dt, a_NE.contiguous(), b, c, state_BNE, masks.continues_BT)
        gated = ((y + self.skip * x) * F.silu(gates)).to(x.dtype)
        window = masks.next_window(padded.detach(), self.convolution_weight.shape[1])
        return self.out_projection(gated), at_least_float32(window), state


class MambaLayer(nn.Module):
    """x + mixer(norm(x))."""

    def __init__(self, settings: MambaSettings) -> None:
        super().__init__()
        self.norm = build_norm("rms", settings.hidden_size, settings.norm_epsilon)
        self.mixer = MambaMixer(settings)
        self.dropout = settings.dropout

    def forward(self, x_BTD: Tensor, window: Tensor, state: Tensor, masks: SegmentMasks) -> tuple[Tensor, ...]:
        """Output [B, T, D], convolution window, state."""
        mixed, window, state = self.mixer(self.norm(x_BTD), window, state, masks)
        return x_BTD + F.dropout(mixed, self.dropout, self.training), window, state


class Mamba(Backbone):
    """Causal language model with a state of fixed size instead of a KV cache."""

    Settings: ClassVar[type[MambaSettings]] = MambaSettings
    settings: MambaSettings
    capabilities = frozenset({"causal", "memory"})
    has_attention = False
    float32_layers = frozenset({"time_step"})

    def __init__(self, settings: MambaSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.hidden_size, self.max_length = settings, settings.hidden_size, settings.max_length
        self.tokens = nn.Embedding(vocab_size, settings.hidden_size)
        nn.init.normal_(self.tokens.weight, std=settings.init_std)
        self.layers = nn.ModuleList(MambaLayer(settings) for _ in range(settings.layers))
        self.final_norm = build_norm("rms", settings.hidden_size, settings.norm_epsilon)
        self.recompute = False
        """Gradient checkpointing: recompute activations in the backward pass instead of storing them."""

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
        """[B, T] → Hidden; with a state the tokens follow those it comes from; `fresh` [B, 1] rows clear it first."""
        s = self.settings
        previous = state or self.init_state(len(tokens))
        if fresh is not None:
            previous = _clear_rows(previous, fresh)
        masks = SegmentMasks.build(present, documents, previous["documents"], s.kernel_size)
        x = to_compute_dtype(F.dropout(self.tokens(tokens), s.dropout, self.training))
        layer_outputs, windows, states = [x], [], []
        for index, layer in enumerate(self.layers):
            inputs = x, previous["convolution"][:, index], previous["state"][:, index], masks
            x, window, layer_state = self._run_layer(cast(MambaLayer, layer), *inputs)
            layer_outputs.append(x)
            windows.append(window)
            states.append(layer_state)
        new_state: State = {}
        if state or (s.carry_state and fresh is not None):
            last = previous["documents"].clamp(min=0) if documents is None else last_documents(documents, present)
            new_state = {"convolution": torch.stack(windows, 1), "state": torch.stack(states, 1), "documents": last}
        return Hidden(
            last_hidden_state=self.final_norm(x),
            layers=tuple(layer_outputs) if "layers" in want else (),
            state=new_state,
        )

    def _run_layer(
        self, layer: MambaLayer, x: Tensor, window: Tensor, state: Tensor, masks: SegmentMasks
    ) -> tuple[Tensor, ...]:
        if self.recompute and self.training:
            return checkpoint(layer, x, window, state, masks, use_reentrant=False)  # type: ignore[no-any-return]  # torch's is untyped
        return layer(x, window, state, masks)  # type: ignore[no-any-return]  # nn.Module.__call__

    def init_state(self, batch_size: int) -> State:
        """Zero states: convolution windows [B, L, K − 1, E] and states [B, L, N, E], in float32 or wider."""
        s, weight = self.settings, at_least_float32(self.tokens.weight[:0])
        return {
            "convolution": weight.new_zeros(batch_size, s.layers, s.kernel_size - 1, s.inner_size),
            "state": weight.new_zeros(batch_size, s.layers, s.state_size, s.inner_size),
            "documents": torch.full((batch_size, 1), EMPTY_SLOT, dtype=torch.long, device=weight.device),
        }

    def empty_memory(self, batch_size: int) -> State:
        """Zero states, where training carries them from segment to segment."""
        return self.init_state(batch_size) if self.settings.carry_state else {}

    def incremental_decoder(self) -> RecurrentIncrementalDecoder:
        """Incremental decoding with the recurrent state: its size and the time of a step do not grow."""
        return RecurrentIncrementalDecoder(self, self.init_state)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """A tied vocabulary head without bias, and the heads of tasks."""
        if kind == "vocabulary":
            return VocabularyHead(self.tokens)
        return build_shared_head(self, kind, sizes, ("vocabulary",))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens


def _clear_rows(state: State, fresh_B1: Tensor) -> State:
    """The state with zeros in the rows where `fresh` is true."""
    return {
        "convolution": state["convolution"].masked_fill(fresh_B1[..., None, None], 0),
        "state": state["state"].masked_fill(fresh_B1[..., None, None], 0),
        "documents": state["documents"].masked_fill(fresh_B1, EMPTY_SLOT),
    }
