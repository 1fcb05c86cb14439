"""RNN encoder-decoder (seq2seq): LSTM or GRU, plain (Sutskever et al. 2014) or with Bahdanau or Luong attention."""

# B batch, S source tokens, T target tokens, E embedding size, D hidden size, L layers, K state tensors (LSTM 2, GRU 1)

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from meristem.blocks.heads.task_heads import build_shared_head
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.incremental.state_concat import concat_states
from meristem.blocks.recurrent.rnn import CellName, RecurrentNetwork
from meristem.blocks.recurrent.rnn_attention import EncodedSource, ScoreName, SourceAttention
from meristem.blocks.recurrent.rnn_decoder import BahdanauDecoder, LuongDecoder, RNNDecoder
from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Backbone, Hidden, State
from meristem.models.settings import ModelSettings


class RNNSettings(ModelSettings):
    """Two LSTM layers with Luong's general attention unless set otherwise."""

    renamed: ClassVar[dict[str, str]] = {
        "width": "hidden_size",
        "embedding": "embedding_size",
        "length": "max_length",
        "both_ways": "bidirectional",
        "encoder_width": "encoder_hidden_size",
        "place": "attention_style",
        "feeding": "input_feeding",
        "tied": "tie_embeddings",
        "initial": "init_range",
    }

    needs: ClassVar[SettingConditions] = {
        "attention_style": (when("attention"),),
        "input_feeding": (when("attention"), when("attention_style", "luong")),
    }

    family: Literal["rnn"] = "rnn"
    """The family this model belongs to."""
    cell: CellName = "lstm"
    """lstm or gru."""
    layers: int = Field(2, ge=1)
    """Number of layers of the encoder, and of the decoder."""
    hidden_size: int = Field(512, ge=2)
    """Hidden size of the decoder."""
    embedding_size: int | None = Field(None, ge=2)
    """Embedding size; the hidden size unless set."""
    max_length: int = Field(128, ge=4)
    """Maximum length of source and target in training, in tokens; there is no limit at inference."""
    bidirectional: bool = True
    """Bidirectional encoder."""
    encoder_hidden_size: int | None = Field(None, ge=1)
    """Hidden size of one direction of the encoder; unless set, all directions together have the hidden size."""
    bridge: Literal["copy", "tanh"] = "copy"
    """Initial state of the decoder: the encoder's final states, or tanh of a dense layer on them (Bahdanau)."""
    attention: ScoreName | None = "general"
    """Attention score: dot, general or additive; none is one fixed vector between encoder and decoder."""
    attention_style: Literal["luong", "bahdanau"] = "luong"
    """Attention with the new state, whose context joins the output (luong), or with the previous one (bahdanau)."""
    input_feeding: bool = False
    """Luong's input feeding: the previous output is an input of the cell."""
    tie_embeddings: bool = True
    """Tie the output layer to the token embedding."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate."""
    init_range: float = Field(0.1, gt=0)
    """Initial weights are uniform in ± this."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.bidirectional and self.encoder_hidden_size is None and self.hidden_size % 2:
            raise ValueError(
                f"hidden_size: {self.hidden_size} is odd and cannot be split into two directions; "
                "set encoder_hidden_size"
            )
        if self.input_feeding and (self.attention is None or self.attention_style == "bahdanau"):
            raise ValueError("input_feeding: needs attention with attention_style=luong; set input_feeding to false")
        return self

    @property
    def annotation_size(self) -> int:
        """Size of an encoder state, all directions concatenated."""
        num_directions = 2 if self.bidirectional else 1
        return (self.encoder_hidden_size or self.hidden_size // num_directions) * num_directions


class RNN(Backbone):
    """RNN encoder-decoder; the decoder gets the encoder's final state and, with attention, all its states."""

    Settings: ClassVar[type[RNNSettings]] = RNNSettings
    settings: RNNSettings
    capabilities = frozenset({"encoder_decoder"})
    supports_gradient_checkpointing = False
    gains_from_bfloat16 = False

    def __init__(self, settings: RNNSettings, vocab_size: int) -> None:
        super().__init__()
        s = settings
        self.settings, self.hidden_size, self.max_length = s, s.hidden_size, s.max_length
        self.words = nn.Embedding(vocab_size, s.embedding_size or s.hidden_size)
        input_size, num_directions = self.words.embedding_dim, 2 if s.bidirectional else 1
        self.encoder = RecurrentNetwork(
            s.cell,
            input_size,
            s.annotation_size // num_directions,
            s.layers,
            bidirectional=s.bidirectional,
            dropout=s.dropout,
        )
        is_identity = s.bridge == "copy" and s.annotation_size == s.hidden_size
        self.bridge = (
            nn.Identity() if is_identity else nn.Linear(s.annotation_size, s.hidden_size, bias=s.bridge == "tanh")
        )
        self.decoder = self._build_decoder(input_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -s.init_range, s.init_range)

    def _build_decoder(self, input_size: int) -> RNNDecoder:
        s = self.settings
        if s.attention is None:
            return RNNDecoder(s.cell, input_size, s.hidden_size, s.layers, dropout=s.dropout)
        attention = SourceAttention(s.attention, s.hidden_size, s.annotation_size)
        kwargs: dict[str, Any] = {"source_attention": attention, "annotation": s.annotation_size, "dropout": s.dropout}
        if s.attention_style == "bahdanau":
            return BahdanauDecoder(s.cell, input_size, s.hidden_size, s.layers, **kwargs)
        return LuongDecoder(s.cell, input_size, s.hidden_size, s.layers, input_feeding=s.input_feeding, **kwargs)

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        source: Tensor,
        tokens: Tensor,
        source_present: Tensor | None = None,
        present: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """Source [B, S] and target [B, T] → Hidden; padding follows the target, so `present` is not needed."""
        # one embedding lookup for both: the gradient of an embedding is as large as the embedding
        embedded = self.embed(torch.cat([source.flatten(), tokens.flatten()]))
        source_embedded, target_embedded = embedded[: source.numel()], embedded[source.numel() :]
        encoded, initial_BLKD = self.encode(source_embedded.view(*source.shape, -1), source_present)
        output = self.decoder(target_embedded.view(*tokens.shape, -1), initial_BLKD, encoded)
        attention = (
            (output.attention_weights[:, None],) if "attention" in want and output.attention_weights is not None else ()
        )
        last = F.dropout(output.states, self.settings.dropout, self.training)
        extra = {}
        if "layers" in want:
            source_BSE = source_embedded.view(*source.shape, -1)
            extra["encoder_layers"] = (source_BSE, *self.encoder.layer_outputs(source_BSE, source_present))
        return Hidden(last_hidden_state=last, encoder_hidden_state=encoded.values, attention=attention, extra=extra)

    def embed(self, tokens: Tensor) -> Tensor:
        """Token ids [...] → embeddings [..., E]."""
        return F.dropout(self.words(tokens), self.settings.dropout, self.training)

    def encode(self, source_BSE: Tensor, present: Tensor | None) -> tuple[EncodedSource, Tensor]:
        """Encoder output for attention, and the decoder's initial state [B, L, K, D]."""
        values_BSA, final_BLKA = self.encoder(source_BSE, present)
        initial = self.bridge(final_BLKA)
        initial = initial.tanh() if self.settings.bridge == "tanh" else initial
        if isinstance(self.decoder, LuongDecoder | BahdanauDecoder):
            return self.decoder.look.encode_source(values_BSA, present), initial
        return EncodedSource(values=values_BSA, keys=values_BSA, present=present), initial

    def incremental_decoder(self) -> RNNIncrementalDecoder:
        """Incremental decoding with the recurrent state."""
        return RNNIncrementalDecoder(self)

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """Vocabulary head, with a projection if embedding and hidden size differ, or a shared head."""
        s = self.settings
        if kind in ("probes", "mix"):
            raise MeristemError("the rnn family has no layer outputs to probe or to mix; choose another model.family")
        if kind != "vocabulary":
            return build_shared_head(self, kind, sizes, ("vocabulary",))
        table, width = self.words, self.words.embedding_dim
        if not s.tie_embeddings:
            table, width = nn.Embedding(self.words.num_embeddings, s.hidden_size), s.hidden_size
            nn.init.uniform_(table.weight, -s.init_range, s.init_range)
        projection = None if width == s.hidden_size else nn.Linear(s.hidden_size, width, bias=False)
        return VocabularyHead(table, transform=projection, bias=True)

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.words


class RNNIncrementalDecoder:
    """Incremental decoder of an RNN: the source is encoded once, and the length is unlimited."""

    def __init__(self, model: RNN) -> None:
        self.max_length: int | None = None
        self._model, self._decoder = model, model.decoder

    def init_state(self, batch_size: int, capacity: int, **inputs: Tensor) -> State:
        """Encode the sources; the decoder starts with their final states. `capacity` is not used."""
        source, present = inputs["source"], inputs.get("source_present")
        encoded, initial_BLKD = self._model.encode(self._model.embed(source), present)
        return {
            "state": initial_BLKD,
            "output": torch.zeros_like(initial_BLKD[:, -1, 0]),
            "values": encoded.values,
            "keys": encoded.keys,
            "present": torch.ones_like(source, dtype=torch.bool) if present is None else present,
            "next": torch.zeros(batch_size, dtype=torch.long, device=source.device),
        }

    def prefill(self, tokens_BT: Tensor, lengths_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Process prompts token by token; rows past the end of their prompt keep their state."""
        for position, tokens_B in enumerate(tokens_BT.unbind(1)):
            _, next_state = self.decode_step(tokens_B, state, None)
            in_prompt = position < lengths_B
            state = {
                key: torch.where(in_prompt.view(-1, *[1] * (value.ndim - 1)), value, state[key])
                if key in ("state", "output", "next")
                else value
                for key, value in next_state.items()
            }
        return state["output"], state

    def decode_step(self, tokens_B: Tensor, state: State, shared_length: int | None) -> tuple[Tensor, State]:
        """Process one token per row."""
        net = self._decoder.net
        encoded = EncodedSource(values=state["values"], keys=state["keys"], present=state["present"])
        gates = net.input_gates(self._model.words(tokens_B))
        output, _, cell_states = self._decoder.step(gates, net.unpack_state(state["state"]), state["output"], encoded)
        return output, {**state, "state": net.pack_state(cell_states), "output": output, "next": state["next"] + 1}

    def grow_state(self, state: State, capacity: int) -> State:
        """The same state: a recurrent state has a fixed size."""
        return state

    def concat_states(self, first: State, second: State) -> State:
        """The rows of both states; shorter sources are padded and masked."""
        return concat_states(first, second, pad_dims={"values": 1, "keys": 1, "present": 1})
