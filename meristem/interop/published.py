"""What one published model type is: its settings, its tensors, its heads and its framing, told as data."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from torch import Tensor

from meristem.batch import Head, Model
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.interop.folder import Weights
from meristem.interop.lines import Line
from meristem.settings import Settings, build, find, names
from meristem.tokenizers.tokenizer import Tokenizer

ROOM = "interop.families"
SAME_HEAD = {"pair": "classification"}
"""A task's head whose class is another's → that one's."""
TASK_KEY = "meristem_task"
"""The key of config.json that says which task a class was exported for, where several have the same class."""
LEARNT = frozenset({"initial", "embedding_initial", "output_initial"})
"""Settings that only say how weights began: no file of weights needs them."""


@dataclass(frozen=True)
class Entry:
    """A setting of ours and the key of theirs; several keys are all written, and the first that is there is read.

    A dot leads into a mapping: `rope_parameters.rope_theta`.
    """

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


Table: TypeAlias = "type[Published]"


class Published:
    """One model type of transformers beside the family of ours that is the same."""

    type: ClassVar[str]
    """Their `model_type`."""
    family: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    """Further families of ours whose runs it can hold."""
    leaves: ClassVar[bool] = True
    """Whether runs leave as this type; one that equals another but for its name is only read."""
    entries: ClassVar[tuple[Entry, ...]]
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Settings of ours that every model of this type has."""
    demands: ClassVar[Mapping[str, Any]] = {}
    """Keys of theirs that must have this value where they are set: what the family of ours cannot do otherwise."""
    free: ClassVar[frozenset[str]] = frozenset()
    """Settings of ours that only training reads: theirs need not say them."""
    reader: ClassVar[Mapping[str, str]] = {}
    """Settings of ours that a single kind of head reads → that kind."""
    way: ClassVar[str | None] = None
    """What every objective must need, where the family of ours can look in more ways than theirs."""
    writes: ClassVar[bool] = False
    """Whether their models of this type write texts."""
    base: ClassVar[str] = ""
    """What stands before the names of the body in a model with heads, and is missing in one without."""
    body: ClassVar[tuple[Line, ...]]
    heads: ClassVar[Mapping[str, Carried]] = {}
    optional: ClassVar[frozenset[str]] = frozenset()
    """Heads that come along where a folder holds them, and that their class may do without."""
    architectures: ClassVar[Mapping[str, tuple[str, ...]]]
    """Their class → our heads that it holds, the class that holds none first."""
    alone: ClassVar[Mapping[str, Table]] = {}
    """Their class → the table of a head that alone is such a model, for runs with no other way to make one."""
    companions: ClassVar[Mapping[str, str]] = {}
    """A head that transformers keeps as a model of its own → its class in `alone`: it is written to and read from a
    subfolder of the head's name."""
    apart: ClassVar[tuple[str, ...]] = ()
    """How our names begin that it has no place for."""
    objectives: ClassVar[Mapping[str, tuple[str, ...]]]
    """An objective → the heads that it trains; the first is what a body without heads goes on with."""
    ties: ClassVar[Mapping[str, str]] = {}
    """Their name → the name of the tensor it must be equal to."""
    without: ClassVar[tuple[str, ...]] = ()
    """Patterns of names that hold nothing learnt, or nothing that the heads which came along read."""
    zeros: ClassVar[tuple[str, ...]] = ()
    """Patterns of names that may be left only where they hold nothing but zeros."""
    frame: ClassVar[str] = "start A end"
    """What stands around one text: roles of special tokens, each perhaps with its segment (`start:2`), and A."""
    pair: ClassVar[str] = "start A end B end"
    """What stands around two."""
    marks: ClassVar[Mapping[str, str]] = {"cls_token": "start", "sep_token": "end"}
    """Their names of the tokens that begin and end texts → the roles they have here."""
    inputs: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")
    """What their model is given of a text."""
    side: ClassVar[str] = "right"
    """Where shorter texts are padded."""

    @classmethod
    def settings(cls, config: Mapping[str, Any], place: str = "config.json") -> Settings:
        """Our settings of their model."""
        for key, wanted in cls.demands.items():
            if (found := _look(config, key)) != wanted and found is not None:
                raise MeristemError(
                    f"{place}: {key}={found!r}: only {wanted!r} has a counterpart in the {cls.family} family"
                )
        told: dict[str, Any] = {"family": cls.family, **cls.fixed}
        for entry in cls.entries:
            found = (_look(config, key) for key in entry.keys)
            value = next((one for one in found if one is not None), entry.default)
            back = {there: here for here, there in entry.values.items()}
            if entry.values and (not isinstance(value, Hashable) or value not in back):
                raise MeristemError(
                    f"{place}: {entry.keys[0]}={value!r} has no counterpart; known: {', '.join(map(str, back))}"
                )
            told[entry.ours] = back[value] if entry.values else value
        return build(find("models", cls.family).Settings, cls.adjust(told, config), place)

    @classmethod
    def known(cls, config: Mapping[str, Any], weights: Weights) -> Mapping[str, Any]:
        """config.json with what only the weights can tell."""
        return config

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
        out: dict[str, Any] = {"model_type": cls.type}
        for key, wanted in cls.demands.items():
            _put(out, key, wanted)
        told, whole = settings.model_dump(), implied(settings)
        for entry in cls.entries:
            value = told[entry.ours] if entry.default is None else whole[entry.ours]
            for key in entry.keys:
                _put(out, key, entry.values.get(value, value))
        return out

    @classmethod
    def differences(cls, settings: Any, kinds: Collection[str] = ()) -> list[str]:
        """What of our model theirs cannot say: settings that do not come back from the config made of them.

        `kinds` are those of the run's heads: what only a kind it does not have would read may be anything.
        """
        here = implied(settings)
        unknown = [entry.ours for entry in cls.entries if entry.values and here[entry.ours] not in entry.values]
        if unknown:
            return [f"model.{key}={here[key]}" for key in unknown]
        try:
            there = implied(cls.settings(cls.config(settings)))
        except MeristemError as error:
            return [str(error)]
        unread = {key for key, kind in cls.reader.items() if kind not in kinds}
        said = here.keys() - LEARNT - cls.free - {"family"} - unread
        return [f"model.{key}={here[key]}" for key in here if key in said and here[key] != there[key]]

    @classmethod
    def generation(cls, tokenizer: Tokenizer) -> dict[str, Any] | None:
        """What their `generate` must know: where a text ends, what pads it; none for types that only read."""
        if not cls.writes:
            return None
        pad = tokenizer.end if tokenizer.pad is None else tokenizer.pad
        return {"bos_token_id": tokenizer.start, "eos_token_id": tokenizer.end, "pad_token_id": pad}

    @classmethod
    def padding(cls, revived: Revived) -> str:
        """Where shorter texts of a run are padded."""
        return cls.side

    @classmethod
    def shape(cls, settings: Any, model: Model) -> Any:
        """The settings of what is written: the run's, unless it is a part of it."""
        return settings

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """A last word on what is written, in place; what a person should know of it comes back."""
        return []

    @classmethod
    def carried(cls, head: str) -> Carried | None:
        """What is known of a head; one that shares another's class has its places."""
        like = SAME_HEAD.get(head, "")
        if head in cls.heads or like not in cls.heads:
            return cls.heads.get(head)
        own = cls.heads[like]
        return replace(own, lines=tuple(
            replace(line, ours=line.ours.replace(f"heads.{like}", f"heads.{head}", 1)) for line in own.lines
        ))  # fmt: skip

    @classmethod
    def lines(cls, heads: Iterable[str]) -> tuple[Line, ...]:
        """The table of the body and of these heads."""
        known = (cls.carried(name) for name in heads)
        return tuple(line for head in known if head is not None for line in head.lines) + cls.body


def implied(settings: Settings) -> dict[str, Any]:
    """Settings with what follows from others written out."""
    told = settings.model_dump()
    follows = {"inner": 4 * told["width"], "groups": told.get("heads"), "embedding": told["width"]}
    follows["decoder_layers"] = told.get("layers")
    return {key: follows[key] if value is None and key in follows else value for key, value in told.items()}


def _look(config: Mapping[str, Any], key: str) -> Any:
    first, *rest = key.split(".", 1)
    found = config.get(first)
    if not rest:
        return found
    return _look(found, rest[0]) if isinstance(found, Mapping) else None


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    first, *rest = key.split(".", 1)
    if rest:
        _put(config.setdefault(first, {}), rest[0], value)
    else:
        config[first] = value


def published(model_type: str) -> type[Published]:
    """The table of a model type."""
    if model_type.replace("-", "_") not in names(ROOM):
        known = ", ".join(name.replace("_", "-") for name in names(ROOM))
        raise MeristemError(f"model_type {model_type!r} is not one that can be read; known: {known}")
    return find(ROOM, model_type)  # type: ignore[no-any-return]  # found by name


def of_family(family: str) -> Iterator[type[Published]]:
    """Every published type that runs of a family may leave as."""
    for name in names(ROOM):
        table = find(ROOM, name)
        if table.leaves and family in (table.family, *table.also):
            yield table
