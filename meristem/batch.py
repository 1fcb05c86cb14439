"""What travels (Row, Batch, Hidden, Outcome) and what it meets (Backbone, Objective, Model)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from meristem.settings import Settings

Array = NDArray[Any]
State = dict[str, Tensor]
"""Memory, key-value cache, recurrent state: tensors whose first dimension is the row."""

TEXT_INPUTS = ("tokens", "source")
"""Inputs that hold tokens of text."""
WAYS = ("causal", "bidirectional", "two_stream", "both_directions", "encoder_decoder")
"""How a backbone may look at its input; with `memory`, `image` and `characters` the abilities there are."""


@dataclass(kw_only=True)
class Row:
    """One row on its way to a batch: what the backbone will read, and what each loss term will want."""

    inputs: dict[str, Array]
    """The backbone's keyword arguments, one row of each; the first dimension is time."""
    goals: dict[str, dict[str, Array]] = field(default_factory=dict)
    """Per loss term `at` (positions on the row's prediction axis) and arrays of the same length (`values`, …)."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Plain data that never goes to the device: offsets, original text, which tokens are special."""
    sample: int = 0


@dataclass(kw_only=True)
class Batch:
    """Rows made one: tensors for the backbone, flat targets for the losses, counts known before the forward pass."""

    inputs: dict[str, Any]
    goals: dict[str, dict[str, Tensor]]
    counts: dict[str, int]
    owner: Tensor
    """Row → place of its sample in `ids`: a sample may become several rows."""
    ids: list[int]
    notes: list[dict[str, Any]]
    tokens: int
    """Tokens of text that are read, source and target, in every row, without padding: what budgets and speeds count."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device.type == "cpu":
            return self
        move = {k: v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for k, v in self.inputs.items()}
        goals = {t: {k: v.to(device, non_blocking=True) for k, v in g.items()} for t, g in self.goals.items()}
        return replace(self, inputs=move, goals=goals, owner=self.owner.to(device))


@dataclass(kw_only=True)
class Hidden:
    """What a backbone made of its inputs."""

    last: Tensor
    """[rows, time, width] where predictions are read; [n, width] where only `wanted` ones were computed."""
    wanted: Tensor | None = None
    """Sorted flat positions, where the last layer was computed at these alone."""
    layers: Sequence[Tensor] = ()
    """Every layer's output, embeddings first; filled only when asked for."""
    source: Tensor | None = None
    """The encoder's side of an encoder-decoder."""
    state: State = field(default_factory=dict)
    attention: Sequence[Tensor] = ()
    """Per layer [rows, heads, queries, keys]; filled only when asked for."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Private between one objective's `encode` and `loss`."""

    def at(self, positions: Tensor) -> Tensor:
        """The states at flat positions [n] → [n, width]."""
        if self.wanted is not None:
            positions = torch.searchsorted(self.wanted, positions)
        return self.last.reshape(-1, self.last.shape[-1]).index_select(0, positions)


@dataclass(kw_only=True)
class Outcome:
    """What a forward pass said: sums per term, never means."""

    sums: dict[str, Tensor]
    metrics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Name → (sum, count)."""
    scored: dict[str, Tensor] = field(default_factory=dict)
    """Name → `metrics.ranking.spread` of yes-or-no scores: an evaluation sums them up to the area under a curve."""
    state: State = field(default_factory=dict)
    loss: Tensor | None = None
    """Σ weight · sum / total, filled by the learner."""


@dataclass(frozen=True)
class Head:
    """A head an objective asks for: same name and same declaration = shared; a differing one is refused."""

    kind: str
    sizes: tuple[tuple[str, int], ...] = ()


class Backbone(nn.Module, ABC):
    """Inputs → Hidden. It never computes a loss."""

    Settings: ClassVar[type[Settings]]
    can: ClassVar[frozenset[str]]
    width: int
    length: int
    """The longest input it takes."""
    picks: ClassVar[bool] = False
    """It takes `wanted`, and then computes its last layer at those positions alone."""
    recomputes: ClassVar[bool] = True
    """Its layers can compute activations again in the backward pass (gradient checkpointing)."""
    text_tasks: ClassVar[bool] = True
    """Tasks on texts can be learned on it; a captioner learns tasks on pictures alone."""
    encoder_prefixes: ClassVar[Mapping[str, str]] = {}
    """How the parameter names of a BERT-like encoder begin → how the same ones begin here, to start from one."""

    @abstractmethod
    def forward(self, *, state: State | None = None, **inputs: Any) -> Hidden:
        """Read the inputs; `state` goes on from an earlier call."""

    def empty_memory(self, rows: int) -> State:
        """The memory of rows that have read nothing yet, as training keeps it between steps; {} without one."""
        return {}

    @abstractmethod
    def makes(self, kind: str, **sizes: int) -> nn.Module:
        """The family's own shape of a head (BERT's transform, GPT's bare tie)."""

    @abstractmethod
    def embedding(self) -> nn.Embedding:
        """The token embedding: what other tokenizers and word vectors are copied into."""


class Writer(Protocol):
    """How a backbone that writes goes from token to token; `backbone.writer()` gives it, and a session needs no more.

    Its state is the backbone's own affair (keys and values, memory, a recurrent net's), rows first; `next` [B] counts
    the tokens each row has read.
    """

    length: int | None
    """How many tokens a row may hold before its text must be read anew from its last half; none means no end."""

    def begin(self, rows: int, slots: int, **inputs: Tensor) -> State:
        """Where rows start that will grow to `slots` tokens; `inputs` are what an encoder reads (source, image)."""

    def read(self, tokens_BT: Tensor, sizes_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Read prompts padded on the right → the states [B, D] after each row's last token."""

    def step(self, tokens_B: Tensor, state: State, uniform: int | None) -> tuple[Tensor, State]:
        """Read one token more per row; `uniform` is how many all rows have read, where that is the same."""

    def grow(self, state: State, slots: int) -> State:
        """Room for more tokens."""

    def join(self, one: State, other: State) -> State:
        """The rows of two states with as many slots under each other."""


class Model(nn.Module):
    """A backbone and its heads by name: the only thing that is saved."""

    def __init__(self, backbone: Backbone, heads: Mapping[str, Head]) -> None:
        super().__init__()
        self.backbone = backbone
        self.declared = dict(heads)
        self.heads = nn.ModuleDict(
            {name: backbone.makes(head.kind, **dict(head.sizes)) for name, head in heads.items()}
        )
        self.begin: tuple[int, ...] | None = None
        """The tokens that a target written from a source begins after, as its objectives said."""
        self.opening: tuple[int, ...] | None = None
        """The tokens that a causal text begins after, where its objective said so."""
        self.source_kinds: frozenset[str] = frozenset()
        """What its decoder was trained to write from, as its objectives said."""
        self.untrained: frozenset[str] = frozenset()
        """Heads that an imported folder did not hold: fresh weights, which answer nothing before they are trained."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


@dataclass(frozen=True)
class View:
    """How an objective wants the store cut: a file in store/views and its options."""

    kind: str
    options: tuple[tuple[str, Any], ...] = ()


Draws = Callable[[str], np.random.Generator]


class Objective(ABC):
    """One idea of what to predict. It has no parameters, so that it can travel to workers."""

    Settings: ClassVar[type[Settings]]
    name: str
    needs: ClassVar[frozenset[str]]
    """Abilities a backbone must have."""
    axis: str = "tokens"
    """The input whose time dimension is the prediction axis that `at` counts along."""
    apart: ClassVar[frozenset[str]] = frozenset({"source"})
    """Inputs that never run along that axis, even where their lengths agree by chance."""
    view: View = View("windows")
    lanes: View | None = None
    """The view for a backbone whose memory is on; without one the objective leaves memory alone."""
    rows_per_sample: int = 1
    """Rows that are made of one sample, at the most."""
    updates: int = 1
    """Optimizer updates that are taken on what one exploration found."""
    keeps_history: bool = False
    """Whether it carries plain data from step to step (`observations`, `remember`), saved with the train state."""
    heads: Mapping[str, Head]
    weights: Mapping[str, float]
    """Per loss term its share of the loss; its keys are the terms."""
    begin_ids: tuple[int, ...] | None = None
    """The tokens that a target begins after, where the objective has a model write."""
    source_kinds: frozenset[str] = frozenset()
    """What a decoder writes from: text, image, or a text with gaps behind masks (BART) or sentinels (T5)."""

    @abstractmethod
    def __init__(self, settings: Any, tokenizer: Any) -> None:
        """Settings, and the tokenizer whose special tokens it must know."""

    @abstractmethod
    def prepare(self, row: Row, draw: Draws) -> Row | list[Row]:
        """Hide what is to be predicted; in workers, numpy, one sample at a time."""

    def count(self, batch: Batch) -> dict[str, int]:
        """How many predictions each term makes here, known before the forward pass."""
        return {term: len(batch.goals[term]["at"]) if term in batch.goals else 0 for term in self.weights}

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """On the device, without gradient: rollouts, reference log-probabilities.

        `history` is what `remember` returned after the last step; none before the first, and in trials that leave no
        trace (counting FLOPs, measuring speed).
        """
        return batch

    def observations(self, batch: Batch) -> list[Any]:
        """What an explored batch adds to the history, as plain JSON."""
        return []

    def remember(self, history: Any, observations: Sequence[Any]) -> Any:
        """The history after a step, as plain JSON, from the observations of all processes.

        It must not depend on the order of the observations: that follows from the number of processes.
        """
        return history

    def settle(self, model: Model, metrics: Mapping[str, tuple[Tensor, Tensor]]) -> str | None:
        """After a step that was taken, with its numbers over all processes: adapt; why the run should stop, if so."""
        return None

    def wanted(self, batch: Batch) -> Tensor | None:
        """The flat positions whose states the loss reads, where they are few; none means any of them."""
        return None

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Call the backbone."""
        wanted = self.wanted(batch) if model.backbone.picks else None
        only = {} if wanted is None else {"wanted": wanted}
        return model.backbone(state=state, **batch.inputs, **only)  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped

    @abstractmethod
    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """The SUM of each term's losses over its predictions."""


def collate(rows: Sequence[Row], objective: Objective, fill: Mapping[str, int]) -> Batch:
    """Stack rows into a batch; ragged rows are padded, and `present` says which positions of the axis exist."""
    keys = list(rows[0].inputs)
    sizes = {key: np.array([len(row.inputs[key]) for row in rows]) for key in keys}
    lengths = sizes[objective.axis]
    longest = {key: int(size.max()) for key, size in sizes.items()}
    inputs: dict[str, Any] = {
        key: _stack([row.inputs[key] for row in rows], longest[key], fill.get(key, 0)) for key in keys
    }
    for key, size in sizes.items():
        along = key not in (objective.axis, *objective.apart) and bool((size == lengths).all())
        if not along and size.min() < longest[key]:  # what runs along an axis of its own has `source_present`
            name = "present" if key == objective.axis else f"{key}_present"
            inputs[name] = torch.from_numpy(np.arange(longest[key]) < size[:, None])
    samples = list(dict.fromkeys(row.sample for row in rows))
    place = {sample: number for number, sample in enumerate(samples)}
    batch = Batch(
        inputs=inputs,
        goals=_goals(rows, longest[objective.axis]),
        counts={},
        owner=torch.tensor([place[row.sample] for row in rows]),
        ids=samples,
        notes=[row.notes for row in rows],
        tokens=sum(int(sizes[key].sum()) for key in TEXT_INPUTS if key in sizes),
    )
    batch.counts = objective.count(batch)
    return batch


def _stack(arrays: Sequence[Array], length: int, fill: int) -> Tensor:
    if all(len(array) == length for array in arrays):
        return torch.from_numpy(np.stack(arrays))
    out = np.full((len(arrays), length, *arrays[0].shape[1:]), fill, dtype=arrays[0].dtype)
    for number, array in enumerate(arrays):
        out[number, : len(array)] = array
    return torch.from_numpy(out)


def _goals(rows: Sequence[Row], length: int) -> dict[str, dict[str, Tensor]]:
    """Row positions become flat ones: each row's `at` is moved by its offset."""
    terms = list(dict.fromkeys(term for row in rows for term in row.goals))
    out: dict[str, dict[str, Tensor]] = {}
    for term in terms:
        having = [(number, row.goals[term]) for number, row in enumerate(rows) if term in row.goals]
        out[term] = {
            "at": torch.from_numpy(np.concatenate([np.asarray(g["at"], np.int64) + n * length for n, g in having]))
        }
        for key in having[0][1]:
            if key != "at":
                out[term][key] = torch.from_numpy(np.concatenate([g[key] for _, g in having]))
    return out
