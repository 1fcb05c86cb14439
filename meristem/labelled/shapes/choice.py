"""Several choices, one of them right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from meristem.errors import MeristemError
from meristem.labelled import values
from meristem.labelled.columns import CHOICES, CONTEXT, NUMBERED_CHOICES, QUESTION, RIGHT_CHOICE
from meristem.labelled.found import Flaw, Found, Notes
from meristem.labelled.shape import Shape
from meristem.task import Sample


class Choice(Shape):
    """{"text", "question", "choices"} → the number of the right one, from 0."""

    def look(self) -> None:
        """Choices are a list in one column, or stand in columns of their own."""
        columns = self.columns
        self.choices = self._choices()
        self.label = self.right_column("label", RIGHT_CHOICE, "the right choice", besides=self.choices)
        taken = (*self.choices, self.label)
        self.text = columns.find("text", CONTEXT, besides=taken)
        self.question = columns.find("question", QUESTION, besides=(*taken, self.text))
        if self.text is None and self.question is None:
            raise columns.asked("text", "what the choices belong to")

    def samples(self, found: Found) -> list[Sample]:
        """One sample, its gold as the file has it until all are known (`settle`)."""
        text, question = (self._words(found, column) for column in (self.text, self.question))
        if not text and not question:
            values.text(None, "text", found.place)
        names, choices = self._offered(found)
        given = {"text": text or question, "question": question if text else "", "choices": choices}
        return [Sample(given=given, gold=self._right(found, names, choices), place=found.place)]

    @classmethod
    def settle(cls, groups: Sequence[list[Sample]], notes: Notes) -> None:
        """Numbers count from 1 where none is 0 and one is as large as the number of choices."""
        golds = [(one.gold, len(one.given["choices"])) for group in groups for one in group if one.gold is not None]
        first = 1 if golds and all(gold > 0 for gold, _ in golds) and any(gold == n for gold, n in golds) else 0
        if first:
            notes.say("right choices are counted from 1 in these files")
        for group in groups:
            for at, one in enumerate(group):
                if one.gold is None:
                    continue
                if not first <= one.gold < len(one.given["choices"]) + first:
                    raise MeristemError(
                        f"{one.place}: choice {one.gold} of {len(one.given['choices'])} choices, counted from {first}"
                    )
                group[at] = replace(one, gold=one.gold - first)

    def _choices(self) -> tuple[str, ...]:
        columns = self.columns
        if columns.data.choices:
            return tuple(columns.there(name, "choices") for name in columns.data.choices)
        known = {name.lower(): name for name in columns.names}
        for name in CHOICES:
            if name in known:
                return (known[name],)
        for stem in NUMBERED_CHOICES:
            ends = sorted(name for name in known if re.fullmatch(rf"{stem}[ _]?(\d|[a-z])", name))
            if len(ends) > 1:
                return tuple(known[name] for name in ends)
        letters = [name for name in "abcde" if name in known]
        if len(letters) > 1:
            return tuple(known[name] for name in letters)
        raise columns.asked("choices", "the choices (a list, or a column for each: data.choices=[A,B])")

    def _words(self, found: Found, column: str | None) -> str:
        value = found.values.get(column) if column else None
        return "" if values.nothing(value) else values.text(value, "text", found.place)

    def _offered(self, found: Found) -> tuple[list[str], tuple[str, ...]]:
        """The names choices are called by, and their texts."""
        if len(self.choices) > 1:
            cells = [found.values.get(column) for column in self.choices]
            cells = [cell for at, cell in enumerate(cells) if not all(map(values.nothing, cells[at:]))]
            names = [column[-1] for column in self.choices]
        else:
            value = values.listed(self.cell(found, self.choices[0]))
            names = [str(name) for name in value.get("label", ())] if isinstance(value, dict) else []
            cells = value.get("text", ()) if isinstance(value, dict) else value
        if not isinstance(cells, list | tuple) or len(cells) < 2:
            raise Flaw(f"{found.place}: fewer than two choices")
        for number, cell in enumerate(cells, 1):
            if values.nothing(cell):
                raise Flaw(f"{found.place}: choice {number} is empty")
        return names, tuple(values.text(cell, "choice", found.place) for cell in cells)

    def _right(self, found: Found, names: list[str], choices: tuple[str, ...]) -> int | None:
        value: Any = values.label(found.values.get(self.label)) if self.label else None
        if value is None or str(value).startswith("-"):  # -1 where the right one is kept secret
            if self.gold:
                raise self.unlabelled(found, "right choice", self.label)
            return None
        said = str(value)
        if re.fullmatch(r"\d+(\.0)?", said) and said not in choices:
            return int(float(said))
        if said in choices:
            return choices.index(said)
        lower = [name.lower() for name in names]
        if said.lower() in lower and lower[0] != "1":
            return lower.index(said.lower())
        if len(said) == 1 and said.isalpha() and ord(said.lower()) - ord("a") < len(choices):
            return ord(said.lower()) - ord("a")
        raise Flaw(f"{found.place}: {said!r} is none of the choices, nor a number or letter of one")
