"""What one published model type is: its settings, its tensors, its heads and its framing, told as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from meristem.batch import Head
from meristem.interop.lines import Line
from meristem.settings import MeristemError, Settings, build, find, names

ROOM = "interop.families"
LEARNT = frozenset({"initial", "embedding_initial", "output_initial"})
"""Settings that only say how weights began: no file of weights needs them."""


@dataclass(frozen=True)
class Entry:
    """A setting of ours and the key of theirs; several keys are all written, and the first that is there is read."""

    ours: str
    theirs: str | tuple[str, ...]
    default: Any
    """What their library takes where config.json is silent."""
    values: Mapping[Any, Any] = field(default_factory=dict)
    """Ours → theirs, where the same thing has another name."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Their keys."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs


ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}


@dataclass(frozen=True)
class Carried:
    """A head that comes along: which of ours it is, and where its tensors are."""

    kind: str
    lines: tuple[Line, ...]
    classes: int | None = None
    """How many scores it gives, where its kind wants to know; 0 takes the number of labels in config.json."""
    sizes: tuple[tuple[str, int], ...] = ()

    def head(self, labels: int) -> Head:
        """Its declaration."""
        own = () if self.classes is None else (("classes", self.classes or labels),)
        return Head(self.kind, (*own, *self.sizes))


class Published:
    """One model type of transformers beside the family of ours that is the same."""

    type: ClassVar[str]
    """Their `model_type`."""
    family: ClassVar[str]
    entries: ClassVar[tuple[Entry, ...]]
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Settings of ours that every model of this type has."""
    demands: ClassVar[Mapping[str, Any]] = {}
    """Keys of theirs that must have this value where they are set: what the family of ours cannot do otherwise."""
    base: ClassVar[str] = ""
    """What stands before the names of the body in a model with heads, and is missing in one without."""
    body: ClassVar[tuple[Line, ...]]
    heads: ClassVar[Mapping[str, Carried]] = {}
    architectures: ClassVar[Mapping[str, tuple[str, ...]]]
    """Their class → our heads that it holds, the class that holds none first."""
    objectives: ClassVar[Mapping[str, tuple[str, ...]]]
    """An objective → the heads that it trains; the first is what a body without heads goes on with."""
    ties: ClassVar[Mapping[str, str]] = {}
    """Their name → the name of the tensor it must be equal to."""
    without: ClassVar[tuple[str, ...]] = ()
    """Patterns of names that hold nothing learnt, or nothing that the heads which came along read."""
    frame: ClassVar[str] = "start A end"
    """What stands around one text."""
    pair: ClassVar[str] = "start A end B end"
    """What stands around two."""
    tokenizer_class: ClassVar[str] = "PreTrainedTokenizerFast"

    @classmethod
    def settings(cls, config: Mapping[str, Any], place: str = "config.json") -> Settings:
        """Our settings of their model."""
        for key, wanted in cls.demands.items():
            if (found := config.get(key, wanted)) != wanted and found is not None:
                raise MeristemError(
                    f"{place}: {key}={found!r}: only {wanted!r} has a counterpart in the {cls.family} family"
                )
        told: dict[str, Any] = {"family": cls.family, **cls.fixed}
        for entry in cls.entries:
            value = next((config[key] for key in entry.keys if config.get(key) is not None), entry.default)
            back = {there: here for here, there in entry.values.items()}
            if entry.values and value not in back:
                raise MeristemError(
                    f"{place}: {entry.keys[0]}={value!r} has no counterpart; known: {', '.join(map(str, back))}"
                )
            told[entry.ours] = back[value] if entry.values else value
        return build(find("models", cls.family).Settings, cls.adjust(told, config), place)

    @classmethod
    def adjust(cls, told: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """A last word on our settings, where one key is not enough to know one."""
        return told

    @classmethod
    def objective(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """What a recipe says of an objective that goes on with these weights."""
        return {"name": name}

    @classmethod
    def config(cls, settings: Any) -> dict[str, Any]:
        """Their config of our model: the shape only, without words and labels."""
        out: dict[str, Any] = {"model_type": cls.type, **cls.demands}
        for entry in cls.entries:
            value = getattr(settings, entry.ours)
            out.update(dict.fromkeys(entry.keys, entry.values.get(value, value)))
        return out

    @classmethod
    def differences(cls, settings: Any) -> list[str]:
        """What of our model theirs cannot say: settings that do not come back from the config made of them."""
        try:
            back = cls.settings(cls.config(settings))
        except MeristemError as error:
            return [str(error)]
        here, there = settings.model_dump(), back.model_dump()
        return [f"model.{key}={here[key]}" for key in here if key not in LEARNT and here[key] != there[key]]

    @classmethod
    def lines(cls, heads: Iterable[str]) -> tuple[Line, ...]:
        """The table of the body and of these heads."""
        return tuple(line for name in heads for line in cls.heads[name].lines) + cls.body


def published(model_type: str) -> type[Published]:
    """The table of a model type."""
    if model_type.replace("-", "_") not in names(ROOM):
        known = ", ".join(name.replace("_", "-") for name in names(ROOM))
        raise MeristemError(f"model_type {model_type!r} is not one that can be read; known: {known}")
    return find(ROOM, model_type)  # type: ignore[no-any-return]  # found by name


def of_family(family: str) -> Iterator[type[Published]]:
    """Every published type that is a family of ours."""
    for name in names(ROOM):
        if (table := find(ROOM, name)).family == family:
            yield table
