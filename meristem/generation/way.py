"""What a finished model can be asked for: which head reads which way."""

from __future__ import annotations

from typing import Literal

from meristem.batch import Model
from meristem.errors import MeristemError

Way = Literal["causal", "source", "masked"]
HEADS: dict[Way, str] = {"causal": "clm", "source": "seq2seq", "masked": "mlm"}
OFFERS: dict[Way, str] = {
    "causal": "generate and score",
    "source": "generate (from a source)",
    "masked": "fill, generate (by unmasking) and score",
}


def ways(model: Model) -> tuple[Way, ...]:
    """Every way this model was trained in, causal first."""
    return tuple(way for way, head in HEADS.items() if head in model.heads)


def way_of(model: Model) -> Way:
    """The way a model writes and scores: causal where it can, since that is exact."""
    found = ways(model)
    if not found:
        trained = ", ".join(model.heads) or "nothing"
        raise MeristemError(f"this model predicts no words (it was trained for {trained}), so it can neither "
                            "write, fill nor score; train with objective=clm, objective=mlm or objective=seq2seq")
    return found[0]


def require(model: Model, way: Way, verb: str) -> None:
    """Refuse what this model was not trained for, saying what it can do instead."""
    if way not in ways(model):
        can = way_of(model)
        kind = "writes from a source" if can == "source" else f"is {can}"
        raise MeristemError(f"{verb} needs a {way} model (objective={HEADS[way]}), and this one {kind}: "
                            f"it can {OFFERS[can]}")
