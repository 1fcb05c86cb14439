"""Weight map: declarative rules from our parameter names to those of other libraries, used in both directions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from meristem.config.errors import MeristemError


class WeightTransform:
    """How their tensors are converted to ours and back: here unchanged."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        """Their tensors → ours."""
        (tensor,) = theirs
        return tensor

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        """Ours → their tensors."""
        return [ours]


class Concat(WeightTransform):
    """Several tensors of theirs, concatenated to one of ours along the first dimension."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        return torch.cat(list(theirs))

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return list(torch.split(ours, self.part_sizes(len(ours), num_parts, settings)))

    def part_sizes(self, num_rows: int, num_parts: int, settings: Any) -> list[int]:
        """Rows of each part; equal by default."""
        return [num_rows // num_parts] * num_parts


class ConcatGQA(Concat):
    """Queries, keys and values, with fewer heads for keys and values (grouped-query attention)."""

    def part_sizes(self, num_rows: int, num_parts: int, settings: Any) -> list[int]:
        head_dim = settings.hidden_size // settings.heads
        kv_rows = head_dim * (settings.kv_heads or settings.heads)
        return [head_dim * settings.heads, kv_rows, kv_rows]


class SplitHeads(Concat):
    """Theirs are [in, heads, head_dim] where ours is [heads · head_dim, in], concatenated."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        return torch.cat([tensor.flatten(1).t() for tensor in theirs])

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return [
            part.t().reshape(part.shape[1], settings.heads, -1) for part in super().to_theirs(ours, num_parts, settings)
        ]


@dataclass(frozen=True)
class Reshape(WeightTransform):
    """The same values in another shape; a string is the name of a setting with that size."""

    theirs: tuple[int | str, ...]
    ours: tuple[int | str, ...]

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (tensor,) = theirs
        return tensor.reshape(self._sizes(self.ours, settings))

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return [ours.reshape(self._sizes(self.theirs, settings))]

    def _sizes(self, shape: tuple[int | str, ...], settings: Any) -> list[int]:
        return [getattr(settings, size) if isinstance(size, str) else size for size in shape]


class Transpose(WeightTransform):
    """Theirs is [in, out] where ours is [out, in]; biases are the same."""

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (tensor,) = theirs
        return tensor.t() if tensor.ndim == 2 else tensor

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return [ours.t() if ours.ndim == 2 else ours]


@dataclass(frozen=True)
class OffsetRows(WeightTransform):
    """Theirs has extra rows at the beginning: position offsets (2 for RoBERTa and BART)."""

    offset: int

    def to_ours(self, theirs: Sequence[Tensor], settings: Any) -> Tensor:
        (tensor,) = theirs
        return tensor[self.offset :]

    def to_theirs(self, ours: Tensor, num_parts: int, settings: Any) -> list[Tensor]:
        return [torch.cat([ours.new_zeros(self.offset, *ours.shape[1:]), ours])]


IDENTITY, CONCAT, CONCAT_GQA = WeightTransform(), Concat(), ConcatGQA()
SPLIT_HEADS, TRANSPOSE = SplitHeads(), Transpose()


@dataclass(frozen=True)
class WeightRule:
    """A parameter or module of ours, and theirs; `{}` is the layer index.

    A module's name stands for all its parameters: weight and bias.
    """

    ours: str
    theirs: str | tuple[str, ...]
    transform: WeightTransform = IDENTITY
    condition: tuple[str, tuple[Any, ...]] | None = None
    """A setting of ours and the values for which the rule applies; for others a later rule does."""

    def applies_to(self, settings: Any) -> bool:
        """Whether the rule applies to models with these settings."""
        return self.condition is None or getattr(settings, self.condition[0]) in self.condition[1]

    @property
    def their_names(self) -> tuple[str, ...]:
        """Their names, one or several."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs

    def with_prefix(self, prefix: str, new_prefix: str) -> WeightRule:
        """The same rule with another prefix of their names, where they have this one."""
        names = (
            new_prefix + name.removeprefix(prefix) if name.startswith(prefix) else name for name in self.their_names
        )
        return replace(self, theirs=tuple(names))

    def match(self, name: str) -> tuple[str, ...] | None:
        """Their names of one of our parameters, or None if the rule does not match."""
        pattern = re.escape(self.ours).replace(r"\{\}", r"(\d+)")
        match = re.fullmatch(rf"{pattern}((?:\.\w+)*)", name)
        if match is None:
            return None
        *numbers, suffix = match.groups()
        return tuple(their_name.format(*numbers) + suffix for their_name in self.their_names)


WeightNames: TypeAlias = Mapping[str, str | tuple[str, ...]]
"""Our names → theirs, one or several."""


def weight_table(
    ours: str, theirs: str, names: WeightNames, transform: WeightTransform | None = None
) -> tuple[WeightRule, ...]:
    """A rule per entry of a table of our name → theirs, each below its prefix; several of theirs are concatenated."""
    return tuple(
        WeightRule(f"{ours}.{our_name}", f"{theirs}.{their_names}", transform or IDENTITY)
        if isinstance(their_names, str)
        else WeightRule(f"{ours}.{our_name}", tuple(f"{theirs}.{name}" for name in their_names), transform or CONCAT)
        for our_name, their_names in names.items()
    )


@dataclass(frozen=True)
class WeightMatch:
    """One of our parameters and its names in their files."""

    ours: str
    theirs: tuple[str, ...]
    transform: WeightTransform


def match_weights(rules: Iterable[WeightRule], names: Iterable[str], settings: Any) -> Iterator[WeightMatch]:
    """The match of each of our parameters; the first rule that matches wins."""
    rules = tuple(rule for rule in rules if rule.applies_to(settings))
    for name in names:
        for rule in rules:
            if (theirs := rule.match(name)) is not None:
                yield WeightMatch(name, theirs, rule.transform)
                break
        else:
            raise MeristemError(f"{name}: no weight rule of this family matches it")


def export_weights(matches: Iterable[WeightMatch], tensors: Mapping[str, Tensor], settings: Any) -> dict[str, Tensor]:
    """Our tensors under their names, converted; tensors that they keep as one part of several follow in order."""
    out: dict[str, Tensor] = {}
    for match in matches:
        parts = match.transform.to_theirs(tensors[match.ours], len(match.theirs), settings)
        for name, part in zip(match.theirs, parts, strict=True):
            out[name] = torch.cat([out[name], part]) if name in out else part.contiguous()
    return out
