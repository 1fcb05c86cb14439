"""Labelled data read, split and looked at: what was understood, what was strange about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from meristem.errors import MeristemError
from meristem.labelled.bad_rows import BadRows
from meristem.labelled.columns import Columns
from meristem.labelled.formats import Asked, check_source, rows
from meristem.labelled.found import Dropped, Flaw, Found, Notes, Rows
from meristem.labelled.holding import drawn, held_out
from meristem.labelled.overlap import contradictions, leaks
from meristem.labelled.settings import DataSettings
from meristem.labelled.shape import Shape
from meristem.settings import find
from meristem.task import Sample

SPLITS = ("train", "validation", "test")
LOOKED_AT = 100
"""Rows from which columns are told where no header or schema names them."""


@dataclass(kw_only=True)
class Splits:
    """Samples by split, and sentences about what was met while reading."""

    samples: dict[str, list[Sample]]
    notices: list[str] = field(default_factory=list)
    gold_columns: dict[str, str] = field(default_factory=dict)
    """Per setting (label, answers, intent) the one column that the golds of all splits were read from."""


def splits(data: DataSettings, shape: str) -> Splits:
    """train, validation where there is any, test where there is any."""
    if data.train is None:
        raise MeristemError("data.train: missing; give a file of labelled samples, or builtin:microworld-sentiment")
    kind: type[Shape] = find("labelled.shapes", shape)
    notes = Notes()
    named = {name: source for name in SPLITS if (source := getattr(data, name)) is not None}
    found = {name: _read(source, data, shape, name, notes) for name, source in named.items()}
    kind.settle(list(found.values()), notes)
    identity = _once(kind.identity)
    if "validation" not in found and data.held_out and len(found["train"]) > 1:
        kept, held = held_out(found["train"], data.held_out, data.seed, identity, labels=kind.labels)
        found = {name: some for name, some in {**found, "train": kept, "validation": held}.items() if some}
    if data.limit is not None and len(found["train"]) > data.limit:
        found["train"] = drawn(found["train"], data.limit, data.seed, identity, labels=kind.labels)
    unlike = contradictions(found["train"], identity) if kind.one_gold else []
    told = leaks(found, identity, one_gold=kind.one_gold)
    found["train"] = [one for sample in found["train"] for one in kind.learned(sample)]
    ordered = {name: found[name] for name in SPLITS if name in found}
    single = {setting: names.pop() for setting, names in notes.gold_columns.items() if len(names) == 1}
    columns = {setting: column for setting, column in single.items() if column is not None and setting != "target"}
    return Splits(samples=ordered, notices=[*notes.sentences(), *unlike, *told], gold_columns=columns)


def check_sources(data: DataSettings) -> None:
    """Refuse files, folders and built-in sets that are not there, without reading any."""
    for name in SPLITS:
        source = getattr(data, name)
        for one in (source,) if isinstance(source, str) else source or ():
            check_source(Asked(one, data, "prompt", gold=False, split=name))


def read(
    source: str | tuple[str, ...],
    data: DataSettings,
    shape: str,
    *,
    gold: bool = True,
    notices: list[str] | None = None,
) -> list[Sample]:
    """The samples of one source or of several; without `gold`, what is right may be missing. `notices` is added to."""
    kind: type[Shape] = find("labelled.shapes", shape)
    notes = Notes()
    samples = _read(source, data, shape, "test", notes, gold=gold)
    kind.settle([samples], notes)
    if notices is not None:
        notices.extend(notes.sentences())
    return samples


def stream(source: str, data: DataSettings, shape: str) -> Iterator[Sample | Flaw]:
    """Samples to predict on, one by one as their file is read; in place of a row that makes none, what is wrong."""
    kind: type[Shape] = find("labelled.shapes", shape)
    notes = Notes()
    for found in rows(Asked(source, data, shape, gold=False, split="test"), notes):
        for one in _samples(found, data, kind, notes, gold=False, keep_rows=True):
            yield one if isinstance(one, Sample | Flaw) else Flaw(f"{one[1]}: {one[0]}")


def _read(
    source: str | tuple[str, ...], data: DataSettings, shape: str, split: str, notes: Notes, *, gold: bool = True
) -> list[Sample]:
    """Everything that sources hold; wrong rows are an error that names the first of them, or are left out."""
    out: list[Sample] = []
    bad = BadRows()
    dropped = Notes()
    sources = (source,) if isinstance(source, str) else source
    kind: type[Shape] = find("labelled.shapes", shape)
    for one in sources:
        asked = Asked(one, data, shape, gold, _target(one, data, split, alone=len(sources) == 1), split)
        for item in chain.from_iterable(_samples(part, data, kind, notes, gold=gold) for part in rows(asked, notes)):
            if isinstance(item, Sample):
                out.append(item)
            elif isinstance(item, Flaw):
                bad.add(item)
            else:
                dropped.add(f"dropped from {split}, {item[0]}", item[1])
    if bad.count and not (data.skip_bad and out):
        raise MeristemError(bad.message(f"data.{split}", bad.count + len(out)))
    if not out:
        why = "; ".join(dropped.sentences()) or "nothing in it"
        raise MeristemError(f"data.{split}: no samples in {', '.join(sources)}: {why}")
    notes.plain += [*dropped.sentences(), *bad.left_out(split)]
    return out


Met = Sample | Flaw | tuple[str, str]
"""A sample, what is wrong with a row, or why it was dropped and where."""


def _samples(
    found: Rows, data: DataSettings, kind: type[Shape], notes: Notes, *, gold: bool, keep_rows: bool = False
) -> Iterator[Met]:
    """The rows of one file, its columns once understood; with `keep_rows` each sample has its row beside it."""
    first = list(islice(found.rows, LOOKED_AT))
    some = tuple(row for row in first if isinstance(row, Found))
    names = found.columns or tuple(dict.fromkeys(name for row in some for name in row.values))
    if not names:
        yield from (row for row in first if isinstance(row, Flaw))
        return
    left = data.model_copy(update=dict.fromkeys(found.used))
    shape = kind(Columns(names, found.place, left, some), gold=gold, notes=notes)
    for setting, column in shape.gold_columns.items():
        named = setting not in found.used and not shape.columns.unnamed
        notes.gold_columns.setdefault(setting, set()).add(column if named else None)
    for row in chain(first, found.rows):
        if isinstance(row, Flaw):
            yield row
            continue
        try:
            made = shape.samples(row)
            yield from (replace(one, row=row.values) for one in made) if keep_rows else made
        except Flaw as flaw:
            flaw.row = row.values
            yield flaw
        except Dropped as drop:
            yield drop.reason, f"{row.place} {drop.detail}" if drop.detail else row.place


def _target(source: str, data: DataSettings, split: str, *, alone: bool) -> str | None:
    """The other side of parallel text: the file that is set, or the one beside the source that ends like training's."""
    set_for = {"train": data.target, "validation": data.validation_target, "test": data.test_target}[split]
    ending = Path(set_for or data.target or "").suffix
    if not ending or (alone and set_for is not None):
        return set_for
    beside = Path(source).expanduser().with_suffix(ending)
    return str(beside) if beside.is_file() and beside != Path(source).expanduser() else None


def _once(identity: Callable[[Sample], str]) -> Callable[[Sample], str]:
    """The same, worked out once for each sample."""
    known: dict[int, str] = {}

    def remembered(sample: Sample) -> str:
        key = known.get(id(sample))
        if key is None:
            key = known[id(sample)] = identity(sample)
        return key

    return remembered
