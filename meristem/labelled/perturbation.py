"""Base class of perturbations: each changes a text as noisy or hostile input would, and leaves its label as it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from numpy.random import Generator

from meristem.config.errors import RecipeError
from meristem.config.registry import ComponentKind, Registry
from meristem.data.text_units import is_ideograph, word_spans


@dataclass(frozen=True, kw_only=True)
class TextUnit:
    """A word, punctuation mark or ideograph of a text, with the white space behind it."""

    text: str
    space: str = ""
    source: int | None = None
    """Its number among the units of the original text; None for an added one."""
    tag: str | None = None
    """Its tag, where every word of the sample has one."""
    joined: bool = False
    """Whether it must stay behind the unit before it: the inside of an entity, or a word behind its negation."""


Units = Sequence[TextUnit]


class Perturbation(ABC):
    """One kind of noise; `severity` is the share of what it can change that it changes, from 0 to 1."""

    summary: ClassVar[str]
    """What it does, in one line, for reports."""
    keeps_order: ClassVar[bool] = True
    """Whether every unit stays, in its place; otherwise the answer of a question cannot be found again."""
    label_risk: ClassVar[str] = ""
    """Why the label of a text may change, if it may; tags stay with their words in any case."""

    def __init__(self, dictionary: Path | None = None) -> None:
        """`dictionary` is a file of word TAB translation lines, for code switching."""
        self.dictionary = dictionary

    @abstractmethod
    def perturb(self, units: Units, severity: float, rng: Generator) -> list[TextUnit]:
        """The changed units; one with an empty text is removed with its tag."""


PERTURBATIONS: Registry[Perturbation] = Registry(ComponentKind.PERTURBATION, Perturbation)  # type: ignore[type-abstract]
"""Perturbations by name: `PERTURBATIONS["casing"]` is the class in labelled/perturbations/casing.py."""


@cache
def build_perturbation(name: str, dictionary: Path | None = None) -> Perturbation:
    """The perturbation of this name."""
    return PERTURBATIONS[name](dictionary)


def check_perturbation_names(names: Sequence[str], setting: str) -> tuple[str, ...]:
    """The names as the registry writes them, all where none are given; raises for an unknown one."""
    unknown = [name for name in names if name not in PERTURBATIONS]
    if unknown:
        raise RecipeError(f"{setting}: no perturbation {unknown[0]!r}; there are {', '.join(PERTURBATIONS)}")
    return tuple(dict.fromkeys(name.replace("-", "_") for name in names)) or tuple(PERTURBATIONS)


# ------------------------------------------------------------ texts and units


def word_set(words: str) -> frozenset[str]:
    """The words of a table, separated by spaces."""
    return frozenset(words.split())


NEGATIONS = word_set("not no never nothing nor neither without hardly barely n't cannot 不 没 無 无 非 未 别 莫")
"""Words that turn the meaning of the next one round: word order never separates the two."""


def split_units(text: str) -> list[TextUnit]:
    """The units of a text; white space before the first one is left out."""
    spans = word_spans(text)
    if not spans:
        return []
    ends = [*(start for start, _ in spans[1:]), len(text)]
    return [
        TextUnit(
            text=text[start:stop],
            space=text[stop:next_start],
            source=index,
            joined=index > 0 and text[slice(*spans[index - 1])].casefold() in NEGATIONS,
        )
        for index, ((start, stop), next_start) in enumerate(zip(spans, ends, strict=True))
    ]


def leading_space(text: str) -> str:
    """What stands before the first unit of a text."""
    spans = word_spans(text)
    return text[: spans[0][0]] if spans else text


def join_units(units: Units) -> str:
    """The text of units."""
    return "".join(unit.text + unit.space for unit in units)


def remove_units(units: Units, removed: Sequence[int] | set[int]) -> list[TextUnit]:
    """The units without some of them; the white space around a removed one separates its neighbours as before."""
    remaining: list[TextUnit] = []
    for index, unit in enumerate(units):
        if index not in removed:
            remaining.append(unit)
        elif remaining and not remaining[-1].space:
            remaining[-1] = replace(remaining[-1], space=unit.space)
    return remaining


def is_free(units: Units, index: int) -> bool:
    """Whether a unit can be moved or removed without breaking an entity or a negation."""
    return not units[index].joined and not (index + 1 < len(units) and units[index + 1].joined)


def are_tagged(units: Units) -> bool:
    """Whether every word has a tag, so that none can be added."""
    return any(unit.tag is not None for unit in units)


def blocks(units: Units) -> list[list[TextUnit]]:
    """The units in groups that stay together."""
    groups: list[list[TextUnit]] = []
    for unit in units:
        if unit.joined and groups:
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return groups


# ------------------------------------------------------------ random choices


def draw_count(total: int, severity: float, rng: Generator) -> int:
    """`severity` · `total`, rounded up or down at random so that the mean is exact for short texts too."""
    return min(total, int(severity * total + rng.random()))


def draw_indices(candidates: Sequence[int], severity: float, rng: Generator) -> list[int]:
    """The share `severity` of the candidates, in order."""
    chosen = rng.permutation(len(candidates))[: draw_count(len(candidates), severity, rng)]
    return [candidates[index] for index in sorted(chosen.tolist())]


def draw_item(items: Sequence[str], rng: Generator) -> str:
    """One of the items."""
    return items[int(rng.integers(len(items)))]


# ------------------------------------------------------------ kinds of units


def is_latin_word(text: str) -> bool:
    """Whether it consists of at least two Latin letters."""
    return len(text) > 1 and text.isalpha() and all(letter < "\u0250" for letter in text)


def is_word(text: str) -> bool:
    """Whether it is made of letters or ideographs."""
    return text.isalpha()


def is_single_ideograph(text: str) -> bool:
    """Whether it is one Chinese character."""
    return len(text) == 1 and is_ideograph(text)


def match_case(word: str, model: str) -> str:
    """A word in upper case, with a capital or as it is, like another one."""
    if model.isupper() and len(model) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if model[:1].isupper() else word
