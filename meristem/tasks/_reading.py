"""What tasks share that read a text and predict something about it: the way in, the states, the language-model term."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from meristem.batch import Batch, Head, Hidden, Model, Outcome, State
from meristem.blocks.vocabulary import VocabularyHead
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.settings import Settings
from meristem.task import Task
from meristem.tasks._reader import MARKS, Framed, Reader, Way, marked
from meristem.tokenizers.tokenizer import Tokenizer

Pooling = Literal["first", "last", "mean", "max"]


class ReadingSettings(Settings):
    """What every task that reads can be told."""

    needs: ClassVar[Dependences] = {
        "begin": (when("way", None, "encoder_decoder"),),
        "lm": (when("way", None, "causal"),),
        "network_width": (when("network", "linear", "recurrent"),),
        "mix_again": (when("network", "linear", "recurrent"),),
        "word_embedding_size": (when("network", "linear", "recurrent"),),
    }

    way: Way | None = None
    """How the backbone looks at a text; what its family does unless set."""
    length: int | None = Field(None, ge=4)
    """Tokens of one row at the most, special ones included; the model's length unless set."""
    begin: tuple[int, ...] = ()
    """Tokens that the decoder of an encoder-decoder begins after; as it was pretrained unless set."""
    framed: bool = True
    """Whether special tokens stand around texts even where the tokenizer's own file puts none there."""
    lm: float = Field(0.0, ge=0)
    """λ in task + λ · language model, for causal models (Radford et al. 2018: 0.5)."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of the states that is dropped before the head."""
    mix: bool | None = None
    """Layers joined by learned weights, γ Σ s_j h_j, instead of the last one; on for ELMo unless set."""
    network: Literal["none", "linear", "recurrent"] = "none"
    """The task's own net between the states and its head: a dense layer, or an LSTM of two directions."""
    network_width: int = Field(256, ge=2, multiple_of=2)
    """How wide that net is."""
    mix_again: bool = False
    """The mixed layers joined once more to what that net says, with weights of their own (ELMo)."""
    word_embedding_size: int = Field(0, ge=0)
    """Channels of the task's own embedding x of each token, which that net reads beside the states: [x; ELMo]."""


class Reading(Task):
    """A task on the states of a backbone, whichever way it reads."""

    ways = frozenset({"bidirectional", "causal", "both_directions", "encoder_decoder"})

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        if settings.way is None or settings.length is None:
            raise MeristemError(f"task {settings.name}: how the model reads is not known yet; it comes from its family")
        if settings.lm and settings.way != "causal":
            raise MeristemError(
                f"task.lm: only causal models predict words while they learn a task; this one is {settings.way}"
            )
        if settings.mix_again and settings.network == "none":
            raise MeristemError(
                "task.mix_again: there is no net to join the layers to; set task.network=recurrent or linear"
            )
        if settings.word_embedding_size and settings.network == "none":
            raise MeristemError(
                "task.word_embedding_size: there is no net to read these embeddings; set task.network=recurrent or "
                "linear"
            )
        self.settings, self.vocabulary = settings, tokenizer.size
        self.reader = Reader(tokenizer, settings.way, settings.length, settings.begin, framed=settings.framed)
        self.mixes = settings.way == "both_directions" if settings.mix is None else settings.mix

    @classmethod
    def marks(cls, settings: Any, tokenizer: Tokenizer) -> Tokenizer:
        """Start, delimiter and extract for causal models; a run that has them keeps them."""
        known = tokenizer.id(MARKS[-1]) is not None
        return marked(tokenizer) if settings.way == "causal" and not known else tokenizer

    # ------------------------------------------------------------ heads

    def reading_heads(self, width: int | None = None) -> dict[str, Head]:
        """What stands between the backbone and the task's own head."""
        s, heads = self.settings, dict[str, Head]()
        if self.mixes:
            heads["mix"] = Head("mix")
        if s.network != "none":
            sizes = [("hidden", s.network_width), ("recurrent", int(s.network == "recurrent"))]
            if s.word_embedding_size:
                heads["word_embedding"] = Head(
                    "embedding", (("rows", self.vocabulary), ("width", s.word_embedding_size))
                )
                sizes.append(("beside", s.word_embedding_size))
            heads["network"] = Head("network", tuple(sizes))
        if s.mix_again:
            heads["mix_again"] = Head("mix")
        if s.lm:
            heads["clm"] = Head("vocabulary")
        return heads

    def sized(self, kind: str, classes: int) -> Head:
        """A head for so many classes, as wide as what it reads."""
        s = self.settings
        sizes = [("classes", classes)]
        if s.network != "none" and not s.mix_again:
            sizes.append(("width", s.network_width))
        if s.mix_again:
            sizes.append(("beside", s.network_width))
        return Head(kind, tuple(sizes))

    @property
    def weights_with_lm(self) -> dict[str, float]:
        """The task's own term, and the language model's beside it."""
        return {self.name: 1.0, **({"lm": self.settings.lm} if self.settings.lm else {})}

    def lm_goal(self, framed: Framed) -> dict[str, dict[str, Any]]:
        """Every token but the first, for the language-model term."""
        if not self.settings.lm:
            return {}
        tokens = framed.inputs["tokens"]
        return {"lm": {"at": np.arange(len(tokens) - 1), "values": tokens[1:]}}

    # ------------------------------------------------------------ states

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """The backbone, and what the task puts on it; states are [B, T, ·] or only those that are wanted."""
        s = self.settings
        told: dict[str, Any] = {"causal": True} if s.way == "causal" else {}
        if self.mixes or s.mix_again:
            told["want"] = ("layers",)
        elif model.backbone.picks and s.network == "none" and (wanted := self.wanted(batch)) is not None:
            told["wanted"] = wanted
        hidden: Hidden = model.backbone(state=state, **batch.inputs, **told)
        if self.mixes:
            hidden.last = model.heads["mix"](hidden.layers)
        if s.network != "none":
            read = hidden.last
            if s.word_embedding_size:  # [x; ELMo] at the net's input (Peters et al. 2018, section 3.3)
                tokens = batch.inputs["source" if s.way == "encoder_decoder" else "tokens"]
                read = torch.cat([model.heads["word_embedding"](tokens), read], -1)
            said = model.heads["network"](self._dropped(read), batch.inputs.get("present"))
            hidden.last = torch.cat([said, model.heads["mix_again"](hidden.layers)], -1) if s.mix_again else said
        return hidden

    def _dropped(self, states: Tensor) -> Tensor:
        return F.dropout(states, self.settings.dropout, torch.is_grad_enabled())

    def read_at(self, hidden: Hidden, positions: Tensor) -> Tensor:
        """States at flat positions [n] → [n, D], some dropped while it learns."""
        return self._dropped(hidden.at(positions))

    def pooled(self, hidden: Hidden, batch: Batch, pooling: Pooling | None, at: Tensor) -> Tensor:
        """One vector per row [B, D]: the state at `at`, or the mean or maximum of all that are there."""
        if pooling is None:
            return self.read_at(hidden, at)
        states, present = hidden.last, batch.inputs.get("present")
        if present is None:
            present = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        match pooling:
            case "first":
                found = states[:, 0]
            case "last":
                found = states[torch.arange(len(states), device=states.device), present.sum(1) - 1]
            case "mean":
                share = present[..., None].to(states.dtype)
                found = (states * share).sum(1) / share.sum(1)
            case _:
                found = states.masked_fill(~present[..., None], float("-inf")).amax(1)
        return self._dropped(found)

    # ------------------------------------------------------------ the words

    def with_lm(self, model: Model, hidden: Hidden, batch: Batch, outcome: Outcome) -> Outcome:
        """The language model's loss beside the task's, where λ is not 0."""
        if self.settings.lm and "lm" in batch.goals:
            head = model.heads["clm"]
            assert isinstance(head, VocabularyHead)
            goal = batch.goals["lm"]
            outcome.sums["lm"] = head.judge(hidden.at(goal["at"]), goal["values"]).total
        return outcome
