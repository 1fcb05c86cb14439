"""Where a model looked while it read one text: labels and weights, all that a picture, a table or a file needs."""

# L layers, H heads, Q queries, K keys

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.errors import MeristemError

Floats = NDArray[np.float32]
Picture = NDArray[np.uint8]

MEANINGS = {
    "self": "each token → the text it stands in",
    "cross": "each token written → the source",
    "decoder": "each token read by the decoder → what is written so far",
    "align": "each token written → the source",
    "image": "each word written → the patches of the picture",
    "content": "the content stream: each token → itself and what comes before it in the order",
    "query": "the query stream: each place → what comes before it in the order",
}
DIGITS = 4
"""Of a weight in a file."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One kind of attention: what its rows and columns are, and the weights of every head."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: Floats
    """[L, H, Q, K]; a row sums to 1, or to 0 where a query had nothing to look at."""
    rolls: bool = False
    """Whether the queries are the last of the keys, so that layers can be multiplied."""

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.weights)

    @property
    def heads(self) -> int:
        """How many heads a layer has."""
        return int(self.weights.shape[1])

    def head(self, layer: int, head: int) -> Floats:
        """[Q, K] of one head; both are numbered from 1."""
        self._counted("layer", layer, self.layers)
        self._counted("head", head, self.heads)
        return np.asarray(self.weights[layer - 1, head - 1])

    def mean(self, layer: int | None = None) -> Floats:
        """[Q, K] over all heads of a layer, numbered from 1, or of all layers."""
        if layer is None:
            return np.asarray(self.weights.mean((0, 1)))
        self._counted("layer", layer, self.layers)
        return np.asarray(self.weights[layer - 1].mean(0))

    def rollout(self) -> Floats:
        """[Q, K] how much of each token has reached each query through all layers (Abnar & Zuidema 2020).

        Half of a state is what its layer found and half what it was: 0.5 · A + 0.5 · I, layer upon layer. What is only
        remembered, before the queries, stays as it is.
        """
        if not self.rolls:
            raise MeristemError("rollout multiplies layers in which a text looks at itself: choose self or decoder")
        size, before = len(self.keys), len(self.keys) - len(self.queries)
        whole = np.eye(size, dtype=np.float32)
        for weights in self.weights.mean(1):
            step = np.eye(size, dtype=np.float32)
            step[before:] = 0.5 * weights + 0.5 * step[before:]
            whole = step @ whole
        return whole[before:]

    def _counted(self, what: str, number: int, most: int) -> None:
        if not 1 <= number <= most:
            raise MeristemError(f"{what} {number}: there {'is' if most == 1 else 'are'} {most}, numbered from 1")


@dataclass(frozen=True, kw_only=True)
class Attended:
    """Everything there is to see of one text."""

    text: str
    run: str
    kinds: Mapping[str, Seen]
    """By name, the most telling first."""
    target: str = ""
    """What is written from it, where that is so."""
    picture: Picture | None = None
    """[P, P, 3] what a captioner looked at; the keys of `image` are its patches, row by row."""
    order: tuple[int, ...] = ()
    """The order of factorisation of the two streams: numbers of the text's own tokens from 0, the first known first."""
    notices: tuple[str, ...] = ()
    """What a person should know: tokens that did not fit."""

    def kind(self, name: str | None = None) -> tuple[str, Seen]:
        """A kind by name, or the most telling one."""
        if name is None:
            return next(iter(self.kinds.items()))
        if name not in self.kinds:
            raise MeristemError(f"kind {name}: this model has no such attention; there is {', '.join(self.kinds)}")
        return name, self.kinds[name]

    def plain(self, name: str | None = None) -> dict[str, Any]:
        """All of it, or one kind, as plain data for a file: labels, and weights to four digits."""
        chosen = self.kinds if name is None else dict([self.kind(name)])
        kinds = {
            name: {
                "queries": list(seen.queries),
                "keys": list(seen.keys),
                "weights": np.round(seen.weights.astype(np.float64), DIGITS).tolist(),
            }
            for name, seen in chosen.items()
        }
        order = {"order": list(self.order)} if self.order else {}
        notices = {"notices": list(self.notices)} if self.notices else {}
        target = {"target": self.target} if self.target else {}
        return {"run": self.run, "text": self.text, **target, **order, **notices, "kinds": kinds}
