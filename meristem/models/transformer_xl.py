"""Transformer-XL (Dai et al. 2019): a causal transformer with segment memory and relative positions."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.attention.relative_attention import apply_dropout
from meristem.blocks.attention.relative_mask import RelativeMaskSpec
from meristem.blocks.heads.adaptive_softmax import AdaptiveSoftmaxHead
from meristem.blocks.heads.task_heads import build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.relative_decoder import RelativeIncrementalDecoder
from meristem.blocks.precision import to_compute_dtype
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.relative_stack import RelativeStack, RelativeStackSettings
from meristem.blocks.transformer.segment_memory import SegmentMemory
from meristem.config.conditions import SettingConditions, when
from meristem.interfaces.backbone import Backbone, Hidden, State


class TransformerXLSettings(RelativeStackSettings):
    """The base model for WikiText-103 unless set otherwise, without adaptive softmax."""

    renamed: ClassVar[dict[str, str]] = {
        "cutoffs": "adaptive_cutoffs",
        "tied": "tie_embeddings",
    }

    needs: ClassVar[SettingConditions] = {
        "same_length": (when("memory_length", above=0),),
    }

    family: Literal["transformer_xl"] = "transformer_xl"
    """The family this model belongs to."""
    layers: int = Field(16, ge=1)
    """Number of layers."""
    hidden_size: int = Field(410, ge=8)
    """Hidden size (d_model)."""
    heads: int = Field(10, ge=1)
    """Number of attention heads; must divide the hidden size."""
    max_length: int = Field(150, ge=4)
    """Segment length in tokens."""
    memory_length: int = Field(150, ge=0)
    """Memory length: hidden states of previous segments that every layer attends to; 0 is no memory."""
    activation: ActivationName = "relu"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    same_length: bool = False
    """Every position attends to the same number of keys: the memory length, itself included."""
    shared_biases: bool = True
    """Share the biases u and v among all layers (as in the paper); otherwise each layer has its own."""
    adaptive_cutoffs: tuple[int, ...] = ()
    """Cutoffs of the adaptive softmax over ids sorted by falling frequency; empty is a plain softmax."""
    tie_embeddings: bool = True
    """Tie the output layer to the token embedding."""

    @property
    def carries_memory(self) -> bool:
        """With a memory length above 0."""
        return self.memory_length > 0


class TransformerXL(Backbone):
    """Causal language model that also attends to the memory of previous segments."""

    Settings: ClassVar[type[TransformerXLSettings]] = TransformerXLSettings
    settings: TransformerXLSettings
    capabilities = frozenset({"causal", "memory"})

    def __init__(self, settings: TransformerXLSettings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.hidden_size, self.max_length = settings, settings.hidden_size, settings.max_length
        self.tokens = nn.Embedding(vocab_size, settings.hidden_size)
        self.stack = RelativeStack(settings, shared_biases=settings.shared_biases)
        nn.init.normal_(self.tokens.weight, std=settings.init_std)
        self.stack.init_weights()

    def embed(self, tokens: Tensor) -> Tensor:
        """[B, T] → [B, T, D], scaled by √D as in Vaswani et al. 2017, §3.4."""
        scaled = to_compute_dtype(self.tokens(tokens) * self.hidden_size**0.5)
        return apply_dropout(scaled, self.settings.dropout, self.training)

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
        """[B, T] → Hidden; with `fresh` [B, 1] or a state, memory is read and returned; `fresh` rows clear it first."""
        x = self.embed(tokens)
        mask_spec = RelativeMaskSpec(
            num_tokens=tokens.shape[1],
            causal=causal,
            device=x.device,
            dtype=x.dtype,
            memory=SegmentMemory.from_state(state, fresh),
            window=self.stack.memory_length if self.settings.same_length and self.stack.memory_length else None,
            present=present,
            documents=documents,
        )
        remembers = self.stack.memory_length > 0 and (fresh is not None or bool(state))
        return self.stack(x, mask_spec, remembers=remembers, want=want)  # type: ignore[no-any-return]  # nn.Module.__call__

    def incremental_decoder(self) -> RelativeIncrementalDecoder:
        """Incremental decoding with a ring buffer; its context is that of a segment's last token in training."""
        s = self.settings
        memory_length = s.memory_length if s.eval_memory_length is None else s.eval_memory_length
        context_length = memory_length if s.same_length and memory_length else self.max_length + memory_length
        return RelativeIncrementalDecoder(self.embed, self.stack, context_length=context_length, chunk=self.max_length)

    def empty_memory(self, batch_size: int) -> State:
        """Empty segment memory."""
        return self.stack.empty_memory(batch_size)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head with plain or adaptive softmax, or a shared head."""
        s = self.settings
        if kind != "vocabulary":
            return build_shared_head(self, kind, sizes, ("vocabulary",))
        table = self.tokens
        if not s.tie_embeddings:
            table = nn.Embedding(*self.tokens.weight.shape)
            nn.init.normal_(table.weight, std=s.init_std)
        if any(cutoff < table.num_embeddings for cutoff in s.adaptive_cutoffs):
            return AdaptiveSoftmaxHead(table, s.adaptive_cutoffs, init_std=s.init_std)
        return VocabularyHead(table, bias=True)

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.tokens
