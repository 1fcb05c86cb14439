"""What a person asks a task, checked against what the task takes, and answered in chunks whatever is wrong with one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from meristem.errors import MeristemError
from meristem.evaluation.answering import answer
from meristem.learning.learner import Learner
from meristem.task import Sample, Task

Given = str | Mapping[str, Any]
"""What a person gives: one text, or parts by name."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a sample of one shape is made of."""

    needs: tuple[str, ...]
    may: tuple[str, ...] = ()
    options: str
    """How the parts are given on the command line."""

    @property
    def all(self) -> tuple[str, ...]:
        """Every part there may be."""
        return self.needs + self.may


PARTS = {
    "text": Parts(needs=("text",), options='"…"'),
    "pair": Parts(needs=("text", "text_b"), options='"…" --text-b "…"'),
    "words": Parts(needs=("text",), may=("words", "offsets"), options='"…"'),
    "command": Parts(needs=("text",), may=("words", "offsets"), options='"…"'),
    "span": Parts(needs=("question", "passage"), may=("id",), options='--question "…" --passage "…"'),
    "choice": Parts(needs=("text", "choices"), may=("question",), options='"…" --choices "…" --choices "…"'),
    "turns": Parts(needs=("turns",), options='"…"'),
    "written": Parts(needs=("source",), options='"…"'),
    "picture": Parts(needs=("picture",), options="--image FILE"),
}
"""By shape of samples."""
KNOWN = frozenset(part for parts in PARTS.values() for part in parts.all) - {"id", "offsets"}
SAME = {"context": "passage", "text_pair": "text_b", "image": "picture"}
"""How other libraries name a part."""


def parts_of(task: Task) -> Parts:
    """What the task takes."""
    return PARTS[task.shape]


def asked(task: Task, given: Given, place: str = "") -> Sample:
    """A sample without gold; parts that are missing, empty or not the task's are named with the right ones."""
    parts, where = parts_of(task), f"{place}: " if place else ""
    if not isinstance(given, str | Mapping):
        raise MeristemError(f"{where}expected a text, or parts by name; got {type(given).__name__}")
    named = _named(given, parts)
    wrong = sorted(part for part in named if part in KNOWN and part not in parts.all)
    missing = [part for part in parts.needs if _empty(named.get(part))]
    if "text" in missing and named.get("words"):
        missing.remove("text")
    if wrong or missing:
        what = f"has no use for {wrong[0]}" if wrong and not missing else f"needs {' and '.join(missing)}"
        raise MeristemError(f"{where}task {task.name} {what}: {_example(parts)}")
    try:
        text = named[parts.needs[0]]
        sample = task.asked(text if isinstance(given, str) and isinstance(text, str) else named)
    except MeristemError as error:
        raise MeristemError(f"{where}{error}") from None
    return replace(sample, place=place)


def _named(given: Given, parts: Parts) -> dict[str, Any]:
    """Parts by the names they have here; a text alone is the first one, and what a sample need not have is left."""
    if isinstance(given, str):
        return {parts.needs[0]: given}
    named = {SAME.get(name, name): value for name, value in given.items() if value is not None}
    if len(parts.needs) == 1 and "text" in named and parts.needs[0] not in named:
        named[parts.needs[0]] = named.pop("text")
    return {name: value for name, value in named.items() if name in KNOWN or name in parts.all}


def _empty(value: Any) -> bool:
    """Nothing to read in it."""
    return value is None or (isinstance(value, str) and not value.strip()) or (not isinstance(value, str) and not value)


def _example(parts: Parts) -> str:
    written = ", ".join(f'"{part}": {"[…]" if part in ("choices",) else "…"}' for part in parts.needs)
    return f"meristem predict RUN {parts.options}, or {{{written}}} from Python and in JSON lines"


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What became of one thing that was asked: an answer, or what was wrong with it."""

    place: str = ""
    sample: Sample | None = None
    answer: Any = None
    """As the task gave it; `shown` and `ranked` put it into the shapes people know."""
    error: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)
    """What was asked, by column."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One thing that is asked, where it stands, or why it could not be read."""

    given: Given | Sample | None = None
    place: str = ""
    error: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The row it was read from, by column."""


def replies(learner: Learner, task: Task, chunks: Iterable[Sequence[Asked]]) -> Iterator[list[Reply]]:
    """Each chunk answered together, in its order; what cannot be answered does not stop the rest."""
    for chunk in chunks:
        found = [_read(task, one) for one in chunk]
        good = [place for place, reply in enumerate(found) if reply.sample is not None]
        samples = [sample for reply in found if (sample := reply.sample) is not None]
        for place, reply in zip(good, _answered(learner, task, samples), strict=True):
            found[place] = replace(reply, row=found[place].row)
        yield found


def _read(task: Task, one: Asked) -> Reply:
    if one.error or one.given is None:
        return Reply(place=one.place, error=one.error, row=one.row)
    if isinstance(one.given, Sample):
        return Reply(place=one.given.place, sample=one.given, row=one.row or one.given.row)
    row = one.given if isinstance(one.given, Mapping) else {"text": one.given}
    try:
        return Reply(place=one.place, sample=asked(task, one.given, one.place), row=row)
    except MeristemError as error:
        return Reply(place=one.place, error=str(error), row=row)


def _answered(learner: Learner, task: Task, samples: Sequence[Sample]) -> list[Reply]:
    """All at once; where that fails, each half by itself until the one that does is found."""
    if not samples:
        return []
    try:
        found = answer(learner, samples, task=task).answers
    except MeristemError as error:
        if len(samples) > 1:
            middle = len(samples) // 2
            return [*_answered(learner, task, samples[:middle]), *_answered(learner, task, samples[middle:])]
        (sample,) = samples
        told = str(error)
        where = f"{sample.place}: " if sample.place and sample.place not in told else ""
        return [Reply(place=sample.place, sample=sample, error=where + told)]
    return [Reply(place=sample.place, sample=sample, answer=one) for one, sample in zip(found, samples, strict=True)]
