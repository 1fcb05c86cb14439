"""GPT-2 (Radford et al. 2019): a causal transformer, pre-norm; with `window`, GPT-3's alternating local attention."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from meristem.blocks.embeddings.token_embedding import TokenEmbedding
from meristem.blocks.embeddings.value_embeddings import ValueEmbeddings
from meristem.blocks.heads.task_heads import build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.transformer_decoder import TransformerIncrementalDecoder
from meristem.blocks.transformer.embedding_shortcut import EmbeddingShortcut
from meristem.blocks.transformer.feed_forward import ActivationName
from meristem.blocks.transformer.stack import StackSettings, TransformerStack
from meristem.blocks.weight_init import OutputInit
from meristem.interfaces.backbone import Backbone, Hidden, State


class GPT2Settings(StackSettings):
    """GPT-2 small unless set otherwise."""

    added = frozenset({"logit_soft_cap", "embedding_shortcut", "value_embeddings"})

    family: Literal["gpt2"] = "gpt2"
    """The family this model belongs to."""
    max_length: int = Field(1024, ge=4)
    """Maximum input length in tokens."""
    activation: ActivationName = "gelu_tanh"
    """gelu, gelu_tanh, relu, relu6 or swiglu."""
    output_init: OutputInit = "scaled"
    """Initialization of projections into the residual stream: normal, scaled by 1/√(2·layers) (GPT-2), or zero."""
    logit_soft_cap: float | None = Field(None, gt=0)
    """Soft cap of the vocabulary logits, c · tanh(logit / c), usually 30 (Gemma 2); none leaves them as they are."""
    embedding_shortcut: bool = False
    """Each layer reads a learned mixture of the residual stream and the embeddings (modded-nanogpt)."""
    value_embeddings: int = Field(0, ge=0)
    """Tables of token vectors mixed into attention values, in as many of the first and last layers (modded-nanogpt)."""

    @model_validator(mode="after")
    def _check_value_embeddings(self) -> Self:
        if 2 * self.value_embeddings > self.layers:
            raise ValueError(
                f"value_embeddings: {self.value_embeddings} tables belong to {2 * self.value_embeddings} layers, and "
                f"there are {self.layers}; choose at most {self.layers // 2}"
            )
        return self


class GPT2(Backbone):
    """Causal language model: no position attends to a later one."""

    Settings: ClassVar[type[GPT2Settings]] = GPT2Settings
    settings: GPT2Settings
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
        values_size = (settings.kv_heads or settings.heads) * (settings.hidden_size // settings.heads)
        self.stack = TransformerStack(
            settings,
            shortcut=EmbeddingShortcut(settings.layers) if settings.embedding_shortcut else None,
            value_embeddings=ValueEmbeddings(vocab_size, values_size, settings.value_embeddings, settings.layers)
            if settings.value_embeddings
            else None,
        )
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
            tokens=tokens,
        )

    def incremental_decoder(self) -> TransformerIncrementalDecoder:
        """Incremental decoding with a KV cache."""
        return TransformerIncrementalDecoder(self, self.embed, self.stack)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head tied to the embedding, or a shared head."""
        if kind == "vocabulary":
            return VocabularyHead(self.embed.tokens, soft_cap=self.settings.logit_soft_cap)
        return build_shared_head(self, kind, sizes, ("vocabulary",))

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.embed.tokens
