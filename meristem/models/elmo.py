"""ELMo (Peters et al. 2018): words read by their letters, then an LSTM language model from each side."""

# B batch, T words, C letters of a word, D width of one direction

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from meristem.batch import Backbone, Hidden, State
from meristem.blocks.characters import Characters
from meristem.blocks.forward_lstm_steps import ForwardSteps, Spell
from meristem.blocks.heads import shared_head
from meristem.blocks.projected_lstm import Clips, ProjectedLSTM
from meristem.blocks.turning import Turn
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when
from meristem.settings import Settings
from meristem.store.letters import ALPHABET, BLANK

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


class ELMoSettings(Settings):
    """ELMo as published unless set otherwise."""

    needs: ClassVar[Dependences] = {
        "residual": (when("layers", above=1),),
    }

    family: Literal["elmo"] = "elmo"
    """The family this model belongs to."""
    layers: int = Field(2, ge=1)
    """LSTM layers in each direction."""
    width: int = Field(512, ge=4)
    """Channels of a state in one direction, and of a word before it is read."""
    cells: int = Field(4096, ge=4)
    """LSTM cells in one direction, projected to the width."""
    length: int = Field(128, ge=4)
    """The longest input in training, in words; in use there is no end."""
    letter_width: int = Field(16, ge=1)
    """Channels of a letter."""
    filters: tuple[tuple[int, int], ...] = Field(FILTERS, min_length=1)
    """Convolutions over the letters of a word: pairs of letters seen at once and number of filters."""
    highways: int = Field(2, ge=0)
    """Highway layers above the convolutions."""
    activation: Literal["relu", "gelu"] = "relu"
    """What stands behind convolutions and in highways."""
    cell_clip: float | None = Field(3.0, gt=0)
    """How far a cell may go from zero; none sets no limit."""
    state_clip: float | None = Field(3.0, gt=0)
    """How far a projected state may go from zero; none sets no limit."""
    residual: bool = True
    """Whether a layer above the first adds what it read to what it says."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of activations dropped in training, before each layer and after the last."""


class ELMo(Backbone):
    """Each direction sees only its side; what both know of a word stands side by side, forward first."""

    Settings: ClassVar[type[ELMoSettings]] = ELMoSettings
    can = frozenset({"both_directions", "characters"})
    recomputes = False

    def __init__(self, settings: ELMoSettings, vocabulary: int) -> None:
        super().__init__()
        s = settings
        self.settings, self.width, self.length = s, 2 * s.width, s.length
        self.characters = Characters(
            ALPHABET,
            s.width,
            s.filters,
            letter_width=s.letter_width,
            highways=s.highways,
            activation=s.activation,
            blank=BLANK,
        )
        clips = Clips(cell=s.cell_clip, state=s.state_clip)
        self.layers = nn.ModuleList(ProjectedLSTM(2, s.width, s.cells, s.width, clips) for _ in range(s.layers))
        self.words = nn.Embedding(vocabulary, s.width)
        self.spell: Spell | None = None
        """The letters of tokens, once a vocabulary is known: generated words are read by them."""
        nn.init.normal_(self.words.weight, std=s.width**-0.5)

    def forward(  # type: ignore[override]  # the inputs are named
        self,
        *,
        characters: Tensor,
        tokens: Tensor | None = None,
        present: Tensor | None = None,
        documents: Tensor | None = None,
        state: State | None = None,
        want: tuple[str, ...] = (),
    ) -> Hidden:
        """[B, T, C] → Hidden; words are what their letters say, so `tokens` are not read.

        A state, begun with `begin`, goes on where earlier rows ended, on both sides.
        """
        word_BTD = self.characters(characters)
        turn = Turn(len(word_BTD), word_BTD.shape[1], present, documents)
        x = turn.apart(word_BTD)
        kept, ends = [torch.cat([word_BTD, word_BTD], -1)], []
        for number, layer in enumerate(self.layers):
            before = None if state is None else _split(state["state"][:, number], self.settings.width)
            dropped = F.dropout(x, self.settings.dropout, self.training)
            said, cells = layer(dropped, before, turn.going_on)
            ends.append((said, cells))
            x = said + x if self.settings.residual and number else said
            if "layers" in want and number + 1 < len(self.layers):
                kept.append(turn.together(x))
        last = turn.together(F.dropout(x, self.settings.dropout, self.training))
        return Hidden(
            last=last,
            layers=(*kept, last) if "layers" in want else (),
            state={} if state is None else {"state": torch.stack([_joined(turn, *end) for end in ends], 1)},
        )

    def begin(self, rows: int) -> State:
        """The state of rows that have read nothing."""
        s = self.settings
        return {"state": self.words.weight.new_zeros(rows, s.layers, 2, s.width + s.cells)}

    def writer(self) -> ForwardSteps:
        """Incremental decoding with the forward direction."""
        assert self.spell is not None  # what reads words by their letters must know how to spell them
        return ForwardSteps(self.characters, self.layers, self.spell, residual=self.settings.residual)  # type: ignore[arg-type]  # a ModuleList forgets its type

    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary for one direction, and what tasks stand on."""
        if kind == "vocabulary":
            return VocabularyHead(self.words, bias=True)
        return shared_head(self, kind, sizes, ("vocabulary",))

    def embedding(self) -> nn.Embedding:
        """The table words are predicted with; none is looked up."""
        return self.words


def _split(state_B2S: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """State and cell of each direction [2, B, ·]."""
    state_2BS = state_B2S.transpose(0, 1)
    return state_2BS[..., :width], state_2BS[..., width:]


def _joined(turn: Turn, states_2TBD: Tensor, cells_2TBH: Tensor) -> Tensor:
    return torch.cat([turn.ends(states_2TBD), turn.ends(cells_2TBH)], -1)
