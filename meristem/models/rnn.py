"""Recurrent seq2seq: an LSTM or GRU reads the source, another writes, by one vector or by attention (SPEC A1, A2)."""

# B batch, S source tokens, T target tokens, E embedding width, D width, L layers, K tensors a cell keeps

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.heads import shared_head
from meristem.blocks.joining import joined
from meristem.blocks.looking import Bahdanau, Decoder, Luong
from meristem.blocks.recurrent import CellName, Recurrent
from meristem.blocks.scores import Annotated, Look, ScoreName
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.settings import Settings


class RNNSettings(Settings):
    """Two LSTM layers with Luong's general attention unless set otherwise."""

    needs: ClassVar[Dependences] = {
        "place": (when("attention"),),
        "feeding": (when("attention"), when("place", "luong")),
    }

    family: Literal["rnn"] = "rnn"
    """The family this model belongs to."""
    cell: CellName = "lstm"
    """lstm or gru."""
    layers: int = Field(2, ge=1)
    """Layers of the encoder, and of the decoder."""
    width: int = Field(512, ge=2)
    """Channels of a decoder's state."""
    embedding: int | None = Field(None, ge=2)
    """Channels of a token; the width unless set."""
    length: int = Field(128, ge=4)
    """The longest source and the longest target in training, in tokens; in use there is no end."""
    both_ways: bool = True
    """Whether the encoder also reads backwards."""
    encoder_width: int | None = Field(None, ge=1)
    """Channels of an encoder's state in one direction; all directions together have the width unless set."""
    bridge: Literal["copy", "tanh"] = "copy"
    """How the decoder begins: with the encoder's last states, or tanh of a dense layer on them (Bahdanau)."""
    attention: ScoreName | None = "general"
    """dot, general or additive; none leaves one fixed vector between encoder and decoder."""
    place: Literal["luong", "bahdanau"] = "luong"
    """Look with the new state and join what was seen to it, or with the last state and feed the cell with it."""
    feeding: bool = False
    """Luong's input feeding: the cell also reads what the step before said."""
    tied: bool = True
    """Whether words are predicted with the table they are read with."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of activations dropped in training."""
    initial: float = Field(0.1, gt=0)
    """Initial weights are uniform between minus and plus this."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.both_ways and self.encoder_width is None and self.width % 2:
            raise ValueError(f"width: {self.width} cannot be halved between two directions; set encoder_width")
        if self.feeding and (self.attention is None or self.place == "bahdanau"):
            raise ValueError("feeding: input feeding belongs to attention in luong's place; set feeding to false")
        return self

    @property
    def annotation(self) -> int:
        """Channels of an encoder's state, all directions side by side."""
        ways = 2 if self.both_ways else 1
        return (self.encoder_width or self.width // ways) * ways


class RNN(Backbone):
    """The decoder sees its own past, and of the source one vector or whatever it looks at."""

    Settings: ClassVar[type[RNNSettings]] = RNNSettings
    can = frozenset({"encoder_decoder"})
    recomputes = False

    def __init__(self, settings: RNNSettings, vocabulary: int) -> None:
        super().__init__()
        s = settings
        self.settings, self.width, self.length = s, s.width, s.length
        self.words = nn.Embedding(vocabulary, s.embedding or s.width)
        entering, ways = self.words.embedding_dim, 2 if s.both_ways else 1
        self.encoder = Recurrent(
            s.cell, entering, s.annotation // ways, s.layers, both_ways=s.both_ways, dropout=s.dropout
        )
        plain = s.bridge == "copy" and s.annotation == s.width
        self.bridge = nn.Identity() if plain else nn.Linear(s.annotation, s.width, bias=s.bridge == "tanh")
        self.decoder = self._decoder(entering)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -s.initial, s.initial)

    def _decoder(self, entering: int) -> Decoder:
        s = self.settings
        if s.attention is None:
            return Decoder(s.cell, entering, s.width, s.layers, dropout=s.dropout)
        look = Look(s.attention, s.width, s.annotation)
        parts: dict[str, Any] = {"look": look, "annotation": s.annotation, "dropout": s.dropout}
        if s.place == "bahdanau":
            return Bahdanau(s.cell, entering, s.width, s.layers, **parts)
        return Luong(s.cell, entering, s.width, s.layers, feeding=s.feeding, **parts)

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
        """[B, S] and [B, T] → Hidden; nothing looks back on padding after a target, so `present` is not read."""
        # one look into the table for both sides: the gradient of a table is as large as the table
        both = self.embed(torch.cat([source.flatten(), tokens.flatten()]))
        read, told = both[: source.numel()], both[source.numel() :]
        seen, begun_BLKD = self.encode(read.view(*source.shape, -1), source_present)
        said = self.decoder(told.view(*tokens.shape, -1), begun_BLKD, seen)
        shown = (said.weights[:, None],) if "attention" in want and said.weights is not None else ()
        last = F.dropout(said.states, self.settings.dropout, self.training)
        extra = {}
        if "layers" in want:
            words = read.view(*source.shape, -1)
            extra["encoder_layers"] = (words, *self.encoder.each_layer(words, source_present))
        return Hidden(last=last, source=seen.values, attention=shown, extra=extra)

    def embed(self, tokens: Tensor) -> Tensor:
        """[...] → [..., E]."""
        return F.dropout(self.words(tokens), self.settings.dropout, self.training)

    def encode(self, source_BSE: Tensor, present: Tensor | None) -> tuple[Annotated, Tensor]:
        """What the decoder may look at, and the state it begins with [B, L, K, D]."""
        values_BSA, ended_BLKA = self.encoder(source_BSE, present)
        begun = self.bridge(ended_BLKA)
        begun = begun.tanh() if self.settings.bridge == "tanh" else begun
        if isinstance(self.decoder, Luong | Bahdanau):
            return self.decoder.look.annotated(values_BSA, present), begun
        return Annotated(values=values_BSA, keys=values_BSA, present=present), begun

    def writer(self) -> Writing:
        """The way a session takes from token to token."""
        return Writing(self)

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary, behind a dense layer where tokens have another width than states, and what tasks stand on."""
        s = self.settings
        if kind in ("probes", "mix"):
            raise MeristemError("the rnn family keeps no layers to look into or to mix; choose another model.family")
        if kind != "vocabulary":
            return shared_head(self, kind, sizes, ("vocabulary",))
        table, width = self.words, self.words.embedding_dim
        if not s.tied:
            table, width = nn.Embedding(self.words.num_embeddings, s.width), s.width
            nn.init.uniform_(table.weight, -s.initial, s.initial)
        narrow = None if width == s.width else nn.Linear(s.width, width, bias=False)
        return VocabularyHead(table, transform=narrow, bias=True)

    def embedding(self) -> nn.Embedding:
        """The token embedding."""
        return self.words


class Writing:
    """The writer of a recurrent decoder: the source is read once, and a text has no end."""

    def __init__(self, model: RNN) -> None:
        self.length: int | None = None
        self._model, self._decoder = model, model.decoder

    def begin(self, rows: int, slots: int, **inputs: Tensor) -> State:
        """What was read of the sources, and rows that have said nothing; `slots` are not needed."""
        source, present = inputs["source"], inputs.get("source_present")
        seen, begun_BLKD = self._model.encode(self._model.embed(source), present)
        return {
            "state": begun_BLKD,
            "said": torch.zeros_like(begun_BLKD[:, -1, 0]),
            "values": seen.values,
            "keys": seen.keys,
            "present": torch.ones_like(source, dtype=torch.bool) if present is None else present,
            "next": torch.zeros(rows, dtype=torch.long, device=source.device),
        }

    def read(self, tokens_BT: Tensor, sizes_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Token by token; a row whose prompt has ended stays as it is."""
        for at, tokens_B in enumerate(tokens_BT.unbind(1)):
            _, after = self.step(tokens_B, state, None)
            going = at < sizes_B
            state = {
                key: torch.where(going.view(-1, *[1] * (value.ndim - 1)), value, state[key])
                if key in ("state", "said", "next")
                else value
                for key, value in after.items()
            }
        return state["said"], state

    def step(self, tokens_B: Tensor, state: State, uniform: int | None) -> tuple[Tensor, State]:
        """One token more per row."""
        net = self._decoder.net
        seen = Annotated(values=state["values"], keys=state["keys"], present=state["present"])
        gates = net.gates(self._model.words(tokens_B))
        said, _, kept = self._decoder.step(gates, net.apart(state["state"]), state["said"], seen)
        return said, {**state, "state": net.together(kept), "said": said, "next": state["next"] + 1}

    def grow(self, state: State, slots: int) -> State:
        """There is always room."""
        return state

    def join(self, one: State, other: State) -> State:
        """Rows under rows; where a source is shorter than others, the rest of it is hidden."""
        return joined(one, other, along={"values": 1, "keys": 1, "present": 1})
