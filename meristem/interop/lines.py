"""Where a tensor of ours stands in their files, as data that is read in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from meristem.errors import MeristemError


class Way:
    """How their tensors lie beside ours: the same."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        """Their tensors → ours."""
        (one,) = theirs
        return one

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        """Ours → their tensors."""
        return [ours]


class Joined(Way):
    """Theirs are several, ours is one, each after the other along the first dimension."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        return torch.cat(list(theirs))

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return list(torch.split(ours, self.sizes(len(ours), parts, settings)))

    def sizes(self, rows: int, parts: int, settings: Any) -> list[int]:
        """Rows of each part; the same for all unless a kind says otherwise."""
        return [rows // parts] * parts


class Grouped(Joined):
    """Queries, keys and values, of which keys and values have fewer heads."""

    def sizes(self, rows: int, parts: int, settings: Any) -> list[int]:
        channels = settings.width // settings.heads
        fewer = channels * (settings.groups or settings.heads)
        return [channels * settings.heads, fewer, fewer]


class Headed(Joined):
    """Theirs are [in, heads, channels] where ours is [heads · channels, in], each after the other."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        return torch.cat([one.flatten(1).t() for one in theirs])

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return [part.t().reshape(part.shape[1], settings.heads, -1) for part in super().give(ours, parts, settings)]


@dataclass(frozen=True)
class Shaped(Way):
    """The same numbers in another shape; a word is the name of a setting that is one of the sizes."""

    theirs: tuple[int | str, ...]
    ours: tuple[int | str, ...]

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (one,) = theirs
        return one.reshape(self._sizes(self.ours, settings))

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return [ours.reshape(self._sizes(self.theirs, settings))]

    def _sizes(self, shape: tuple[int | str, ...], settings: Any) -> list[int]:
        return [getattr(settings, size) if isinstance(size, str) else size for size in shape]


class Lying(Way):
    """Theirs is [in, out] where ours is [out, in]; biases are the same."""

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (one,) = theirs
        return one.t() if one.ndim == 2 else one

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return [ours.t() if ours.ndim == 2 else ours]


@dataclass(frozen=True)
class After(Way):
    """Theirs has rows before ours begins: positions that count from there (RoBERTa and BART begin at 2)."""

    rows: int

    def take(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (one,) = theirs
        return one[self.rows :]

    def give(self, ours: Tensor, parts: int, settings: Any) -> list[Tensor]:
        return [torch.cat([ours.new_zeros(self.rows, *ours.shape[1:]), ours])]


SAME, JOINED, GROUPED, HEADED, LYING = Way(), Joined(), Grouped(), Headed(), Lying()


@dataclass(frozen=True)
class Line:
    """One of our tensors or modules, and theirs; `{}` is the number of a layer.

    A module's name stands for every tensor in it: its weight and its bias.
    """

    ours: str
    theirs: str | tuple[str, ...]
    way: Way = SAME
    when: tuple[str, tuple[Any, ...]] | None = None
    """A setting of ours, and with which of its values the line speaks; with others a later line does."""

    def speaks(self, settings: Any) -> bool:
        """Whether the line is about models with these settings."""
        return self.when is None or getattr(settings, self.when[0]) in self.when[1]

    @property
    def several(self) -> tuple[str, ...]:
        """Their names, however many."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs

    def find(self, name: str) -> tuple[str, ...] | None:
        """Their names of one of our tensors, if the line speaks of it."""
        pattern = re.escape(self.ours).replace(r"\{\}", r"(\d+)")
        found = re.fullmatch(rf"{pattern}((?:\.\w+)*)", name)
        if found is None:
            return None
        *numbers, rest = found.groups()
        return tuple(there.format(*numbers) + rest for there in self.several)


@dataclass(frozen=True)
class Place:
    """One of our tensors, and where they keep it."""

    ours: str
    theirs: tuple[str, ...]
    way: Way


def places(lines: Iterable[Line], names: Iterable[str], settings: Any) -> Iterator[Place]:
    """The place of each of our tensors; the first line that speaks of one decides."""
    lines = tuple(line for line in lines if line.speaks(settings))
    for name in names:
        for line in lines:
            if (theirs := line.find(name)) is not None:
                yield Place(name, theirs, line.way)
                break
        else:
            raise MeristemError(f"{name}: the table of this family says nothing about it")


def given(found: Iterable[Place], tensors: Mapping[str, Tensor], settings: Any) -> dict[str, Tensor]:
    """Our tensors under their names, as they lie in their files; what they keep in one of several follows in order."""
    out: dict[str, Tensor] = {}
    for place in found:
        parts = place.way.give(tensors[place.ours], len(place.theirs), settings)
        for name, part in zip(place.theirs, parts, strict=True):
            out[name] = torch.cat([out[name], part]) if name in out else part.contiguous()
    return out
