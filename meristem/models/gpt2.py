"""GPT-2 (Radford et al. 2019): a causal transformer, pre-norm; with `window`, GPT-3's alternating local attention."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from meristem.blocks.embeddings.token_embedding import TokenEmbedding
from meristem.blocks.heads.task_heads import build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.transformer_decoder import TransformerIncrementalDecoder
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.stack import StackSettings, TransformerStack
from meristem.blocks.weight_init import OutputInit
from meristem.interfaces.backbone import Backbone, Hidden, State


class GPT2Settings(StackSettings):
    """GPT-2 small unless set otherwise."""

    family: Literal["gpt2"] = "gpt2"
    """The family this model belongs to."""
    max_length: int = Field(1024, ge=4)
    """Maximum input length in tokens."""
    activation: ActivationName = "gelu_tanh"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    output_init: OutputInit = "scaled"
    """Initialization of projections into the residual stream: normal, scaled by 1/√(2·layers) (GPT-2), or zero."""


class GPT2(Backbone):
    """Causal language model: no position attends to a later one."""

    Settings: ClassVar[type[GPT2Settings]] = GPT2Settings
    capabilities = frozenset({"causal"})
    supports_output_positions = True

    def __init__(self, settings: GPT2Settings, vocab_size: int) -> None:
        super().__init__()
        self.settings, self.hidden_size, self.max_length = settings, settings.hidden_size, settings.max_length
        self.embed = TokenEmbedding(
            vocab_size,
            settings.hidden_size,
            settings.max_length,
            position_encoding=settings.position_encoding,
            dropout=settings.dropout,
        )
        self.stack = TransformerStack(settings)
        self.embed.init_weights(settings.init_std)
        self.stack.init_weights()

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        tokens: Tensor,
        causal: bool | Tensor = True,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
        output_positions: Tensor | None = None,
    ) -> Hidden:
        """[B, T] → Hidden; with a state (KV cache) the tokens follow the cached ones."""
        x = self.embed(tokens, first=state["next"] if state else None)
        return self.stack(  # type: ignore[no-any-return]  # nn.Module.__call__
            x,
            causal=causal,
            present=present,
            documents=documents,
            state=state,
            want=want,
            output_positions=output_positions,
        )

    def incremental_decoder(self) -> TransformerIncrementalDecoder:
        """Incremental decoding with a KV cache."""
        return TransformerIncrementalDecoder(self, self.embed, self.stack)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head tied to the embedding, or a shared head."""
        if kind == "vocabulary":
            return VocabularyHead(self.embed.tokens)
        return build_shared_head(self, kind, sizes, ("vocabulary",))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.embed.tokens
