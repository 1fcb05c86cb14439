"""Starting an encoder-decoder from a pretrained encoder: BERT's weights under the names they have here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor

from meristem.batch import Model
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError

SAME = ("width", "layers", "heads", "groups", "activation", "norm", "norm_place", "norm_epsilon", "positions",
        "rotary_base", "window", "window_every", "bias", "segments")  # fmt: skip
"""Settings of both that must agree for the encoder to compute what it did."""


def settings_of(model: Model) -> Any:
    """The settings a backbone was made from."""
    return cast(Any, model.backbone).settings


def is_encoder(other: Revived, model: Model) -> bool:
    """Whether another run is an encoder of a different family that this model's encoder can take over."""
    backbone, theirs = model.backbone, other.learner.model.backbone
    differ = type(backbone) is not type(theirs)
    return differ and bool(backbone.encoder_prefixes) and "bidirectional" in theirs.can and hasattr(theirs, "stack")


def encoder_weights(model: Model, other: Revived) -> dict[str, Tensor]:
    """The other run's tensors with its encoder's under this model's names; a shape that does not fit is refused."""
    _refuse_other_shape(settings_of(model), other)
    return _renamed(other.learner.model.state_dict(), model.backbone.encoder_prefixes)


def of_encoder(name: str, model: Model) -> bool:
    """Whether a tensor of this model belongs to its encoder or is the shared token embedding."""
    return name.startswith(tuple(model.backbone.encoder_prefixes.values()))


def summary(model: Model, other: Revived) -> str:
    """One line on what was taken as what."""
    return (
        f"the layers of this {other.recipe.model.family} are the encoder, and its token embedding is the one that "
        f"encoder, decoder and vocabulary heads of the {settings_of(model).family} share; the decoder is fresh"
    )


def _renamed(tensors: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    out = {}
    for name, tensor in tensors.items():
        theirs = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        out[prefixes[theirs] + name.removeprefix(theirs) if theirs else name] = tensor
    return out


def _refuse_other_shape(settings: Any, other: Revived) -> None:
    theirs = other.recipe.model
    if theirs.embedding not in (None, theirs.width):
        raise MeristemError(
            f"from: {other.run.path} has embeddings {theirs.embedding} wide under layers {theirs.width} wide "
            f"(model.embedding), and {settings.family} has one width; take a run without model.embedding"
        )
    wanted = {name: getattr(theirs, name) for name in SAME}
    wanted |= {"inner": theirs.inner or 4 * theirs.width, "embedding_norm": theirs.norm_place == "post"}
    wanted |= {"scale_embeddings": False, "relative_buckets": 0, "scale_scores": True}
    if theirs.positions == "learned":
        wanted["length"] = theirs.length
    here = {name: getattr(settings, name) for name in wanted} | {"inner": settings.inner or 4 * settings.width}
    differing = {name: value for name, value in wanted.items() if here[name] != value}
    if differing:
        said = " ".join(f"model.{name}={_written(value)}" for name, value in differing.items())
        now = ", ".join(f"{name} is {_written(here[name])}" for name in differing)
        raise MeristemError(f"from: {other.run.path} has an encoder of another shape ({now} here): set {said}")


def _written(value: Any) -> str:
    """A value as an override has it."""
    return "none" if value is None else str(value).lower()
