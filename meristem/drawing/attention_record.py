"""Attention weights of a model on one text, with token labels: the data of plots, tables and JSON files."""

# L layers, H heads, Q queries, K keys

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError
from meristem.utils.result_tables import heat_map, pandas_module

Floats = NDArray[np.float32]
ImageArray = NDArray[np.uint8]

ATTENTION_DESCRIPTIONS = {
    "self": "each token → the tokens of its text",
    "cross": "each generated token → the source",
    "decoder": "each decoder token → the tokens generated so far",
    "align": "each generated token → the source",
    "image": "each generated word → the patches of the image",
    "content": "content stream: each token → itself and the tokens before it in the factorization order",
    "query": "query stream: each position → the tokens before it in the factorization order",
}
WEIGHT_DIGITS = 4
"""Decimal digits of a weight in a file."""


@dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """One kind of attention: labels of queries and keys, and the weights of every head."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: Floats
    """[L, H, Q, K]; a row sums to 1, or to 0 where a query could attend to nothing."""
    supports_rollout: bool = False
    """Whether the queries are the last of the keys, so that layers can be multiplied."""

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.weights)

    @property
    def heads(self) -> int:
        """Number of heads per layer."""
        return int(self.weights.shape[1])

    def head(self, layer: int, head: int) -> Floats:
        """[Q, K] of one head; both are numbered from 1."""
        self._check_index("layer", layer, self.layers)
        self._check_index("head", head, self.heads)
        return np.asarray(self.weights[layer - 1, head - 1])

    def mean(self, layer: int | None = None) -> Floats:
        """[Q, K] mean over all heads of a layer, numbered from 1, or of all layers."""
        if layer is None:
            return np.asarray(self.weights.mean((0, 1)))
        self._check_index("layer", layer, self.layers)
        return np.asarray(self.weights[layer - 1].mean(0))

    def rollout(self) -> Floats:
        """[Q, K] attention rollout: how much of each token reaches each query across all layers (Abnar & Zuidema 2020).

        With the residual connection a layer is 0.5 · A + 0.5 · I, and layers are multiplied. Memory tokens before the
        queries stay as they are.
        """
        if not self.supports_rollout:
            raise MeristemError("rollout multiplies layers of self-attention: choose kind self or decoder")
        size, memory_length = len(self.keys), len(self.keys) - len(self.queries)
        accumulated = np.eye(size, dtype=np.float32)
        for weights in self.weights.mean(1):
            layer_matrix = np.eye(size, dtype=np.float32)
            layer_matrix[memory_length:] = 0.5 * weights + 0.5 * layer_matrix[memory_length:]
            accumulated = layer_matrix @ accumulated
        return accumulated[memory_length:]

    def to_pandas(self, layer: int | None = None, head: int | None = None) -> Any:
        """A DataFrame with a row per query and a column per key: one head, or a mean as in `mean`."""
        weights = self.mean(layer) if layer is None or head is None else self.head(layer, head)
        return pandas_module().DataFrame(weights, index=list(self.queries), columns=list(self.keys))

    def _repr_html_(self) -> str:
        return heat_map(self.queries, self.keys, self.mean().tolist())

    def _check_index(self, name: str, index: int, count: int) -> None:
        if not 1 <= index <= count:
            raise MeristemError(f"{name} {index}: there {'is' if count == 1 else 'are'} {count}, numbered from 1")


@dataclass(frozen=True, kw_only=True)
class AttentionRecord:
    """All attention weights of a model on one text."""

    text: str
    run: str
    kinds: Mapping[str, AttentionWeights]
    """By name, the most informative first."""
    target: str = ""
    """The generated or target text, where there is one."""
    picture: ImageArray | None = None
    """[P, P, 3] the image of a caption; the keys of `image` are its patches, row by row."""
    order: tuple[int, ...] = ()
    """Factorization order of two-stream attention: indices of the text's own tokens from 0, first known first."""
    notices: tuple[str, ...] = ()
    """Notices for the user, such as tokens that did not fit."""

    def select_kind(self, name: str | None = None) -> tuple[str, AttentionWeights]:
        """The selected kind, or the most informative one."""
        if name is None:
            return next(iter(self.kinds.items()))
        if name not in self.kinds:
            raise MeristemError(f"kind {name}: this model has no such attention; it has {', '.join(self.kinds)}")
        return name, self.kinds[name]

    def __repr__(self) -> str:
        kinds = (f"{name} [{kind.layers} layers, {kind.heads} heads]" for name, kind in self.kinds.items())
        return f"AttentionRecord({self.run}, {self.text!r}: {', '.join(kinds)})"

    def _repr_html_(self) -> str:
        name, attention = self.select_kind()
        caption = f"{name}: {ATTENTION_DESCRIPTIONS.get(name, '')}; mean over layers and heads"
        return f"<p>{escape(caption)}</p>{attention._repr_html_()}"

    def to_dict(self, name: str | None = None) -> dict[str, Any]:
        """Everything, or one kind, as plain data for JSON: labels, and weights rounded to four digits."""
        selected = self.kinds if name is None else dict([self.select_kind(name)])
        kinds = {
            name: {
                "queries": list(attention.queries),
                "keys": list(attention.keys),
                "weights": np.round(attention.weights.astype(np.float64), WEIGHT_DIGITS).tolist(),
            }
            for name, attention in selected.items()
        }
        order = {"order": list(self.order)} if self.order else {}
        notices = {"notices": list(self.notices)} if self.notices else {}
        target = {"target": self.target} if self.target else {}
        return {"run": self.run, "text": self.text, **target, **order, **notices, "kinds": kinds}
