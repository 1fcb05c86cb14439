"""Click tables: which text was shown for which query, where, how often, and how often it was clicked."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.corpus.sources import missing
from meristem.errors import MeristemError, did_you_mean
from meristem.labelled.formats import Asked, rows
from meristem.labelled.found import NAMED, Flaw, Found, Notes, Rows
from meristem.labelled.settings import DataSettings
from meristem.labelled.values import nothing
from meristem.settings import Settings

FLAWS = 1000
"""Wrong rows after which reading stops."""
LOOKED_AT = 100
"""Rows from which columns are told where no header or schema names them."""
MOST = 1 << 53
"""Counts above it are not exact."""

Ints = NDArray[np.int64]


class ClickColumns(Settings):
    """What the columns of a click table are called."""

    query: str = "query"
    """The column of what was searched for, or of the test that several texts were part of."""
    text: str = "text"
    """The column of the text that was shown."""
    shown: str = "shown"
    """The column of how often it was shown."""
    clicked: str = "clicked"
    """The column of how often it was clicked."""
    position: str | None = "position"
    """The column of its place on the page, from 1; used where the table has it, and not where this is null."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Clicks:
    """A table added up: every (query, text, position) once, in an order that does not follow the file's."""

    queries: tuple[str, ...]
    texts: tuple[str, ...]
    """One for each pair of a query and a text."""
    of: Ints
    """[pairs] its query."""
    pair: Ints
    """[rows] its pair."""
    position: Ints
    """[rows] from 1; 0 where it is not known."""
    shown: Ints
    clicked: Ints
    place: str
    """The source's name."""

    @cached_property
    def digest(self) -> str:
        """A key that changes with anything in the table."""
        counts = np.stack([self.pair, self.position, self.shown, self.clicked])
        told = "\x1e".join([*self.queries, "", *self.texts]).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(told + self.of.tobytes() + counts.tobytes(), digest_size=16).hexdigest()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each query and text."""
        return [(self.queries[query], text) for query, text in zip(self.of.tolist(), self.texts, strict=True)]

    @property
    def places(self) -> tuple[int, ...]:
        """The positions there are, the first one first; 0, where a row tells none, comes last unless it is all."""
        return tuple(sorted(set(self.position.tolist()), key=lambda place: place or MOST))

    def only(self, wanted: NDArray[np.bool_]) -> Clicks:
        """The part of some queries."""
        kept = [number for number, want in enumerate(wanted) if want]
        pairs = wanted[self.of]
        inside = pairs[self.pair]
        return Clicks(
            queries=tuple(self.queries[number] for number in kept),
            texts=tuple(text for text, want in zip(self.texts, pairs, strict=True) if want),
            of=(np.cumsum(wanted) - 1)[self.of[pairs]],
            pair=(np.cumsum(pairs) - 1)[self.pair[inside]],
            position=self.position[inside], shown=self.shown[inside], clicked=self.clicked[inside], place=self.place,
        )  # fmt: skip

    def split(self, share: float, seed: int) -> tuple[Clicks, Clicks]:
        """A part to learn from and a part held out, apart by query."""
        held = np.array([_share(seed, query) < share for query in self.queries])
        return self.only(~held), self.only(held)


def folds(queries: Sequence[str], count: int, seed: int) -> Ints:
    """Each query's part of so many, all of a size; it follows from the queries and the seed."""
    rank = np.argsort(np.argsort([_share(seed, query) for query in queries]))
    return rank.astype(np.int64) * count // len(queries)


def _share(seed: int, query: str) -> float:
    key = f"{seed}\x1dclicks\x1d{query}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "little") / (1 << 48)


def read(source: str, columns: ClickColumns) -> Clicks:
    """The clicks of a file (csv, tsv, jsonl, parquet, also .gz and .zst) or of builtin:microworld-clicks."""
    kind = source.partition(":")[0]
    path = Path(source).expanduser()
    if kind not in ("builtin", "hub") and not path.exists() and not any(mark in source for mark in "*?["):
        raise MeristemError(f"clicks.table: {missing(path)}")
    names = {"question": columns.query, "text": columns.text, "label": columns.clicked, "target": columns.shown}
    named = DataSettings.model_validate(names)  # these tell a first line of names from one of data
    counted: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    flaws: list[str] = []
    for part in rows(Asked(source, named, "text"), Notes()):
        _add(part, columns, counted, flaws)
    if flaws:
        more = f"\nand {len(flaws) - NAMED:,} more such lines" if len(flaws) > NAMED else ""
        raise MeristemError("\n".join(flaws[:NAMED]) + more)
    return _made(counted, source)


def _add(part: Rows, columns: ClickColumns, counted: dict[tuple[str, str, int], list[int]], flaws: list[str]) -> None:
    """The rows of one file, added to what is counted; wrong ones to the flaws."""
    first = list(islice(part.rows, LOOKED_AT))
    names = part.columns or tuple(dict.fromkeys(name for row in first if isinstance(row, Found) for name in row.values))
    if names:
        columns = _there(columns, names, part.place)
    for row in chain(first, part.rows):
        if len(flaws) == FLAWS:
            return
        if isinstance(row, Flaw):
            flaws.append(str(row))
            continue
        try:
            key, shown, clicked = _counts(row, columns)
        except Flaw as flaw:
            flaws.append(str(flaw))
            continue
        if shown:
            counted[key][0] += shown
            counted[key][1] += clicked


def _there(columns: ClickColumns, names: Sequence[str], place: str) -> ClickColumns:
    """The columns, all of them in the table; a position of the usual name may be missing."""
    for role in ("query", "text", "shown", "clicked", "position"):
        name = getattr(columns, role)
        if name is None or name in names:
            continue
        if role == "position" and name == ClickColumns.model_fields["position"].default:
            columns = columns.model_copy(update={"position": None})
            continue
        near = did_you_mean(name, names)
        shown = near if "known" in near else f"{near} Columns: {', '.join(names)}"
        raise MeristemError(f"{place}: no column {name!r}{shown}. Set columns={{{role}: COLUMN}}")
    return columns


def _counts(row: Found, columns: ClickColumns) -> tuple[tuple[str, str, int], int, int]:
    query, text = (_text(row, name, what) for name, what in ((columns.query, "query"), (columns.text, "text")))
    shown, clicked = (_whole(row, name) for name in (columns.shown, columns.clicked))
    if clicked > shown:
        raise Flaw(f"{row.place}: clicked {clicked:,} times, but shown {shown:,} times; are the columns the right way "
                   f"round? ({columns.clicked!r}, {columns.shown!r})")  # fmt: skip
    position = 0
    if columns.position is not None and not nothing(row.values.get(columns.position)):
        position = _whole(row, columns.position)
        if position < 1:
            raise Flaw(f"{row.place}: {columns.position} is {position}; places on a page begin at 1")
    return (query, text, position), shown, clicked


def _text(row: Found, column: str, what: str) -> str:
    value = row.values.get(column)
    if nothing(value):
        raise Flaw(f"{row.place}: no {what} in the column {column!r}; give it one or take the line out")
    if isinstance(value, dict | list | tuple | bytes):
        raise Flaw(f"{row.place}: the {what} is a {type(value).__name__}, not a text")
    return str(value).strip()


def _whole(row: Found, column: str) -> int:
    value: Any = row.values.get(column)
    try:
        number = float(value.replace(",", "") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise Flaw(f"{row.place}: {column} is {_shown(value)}, not a number") from None
    if isinstance(value, bool) or not abs(number) < MOST or number != int(number):
        raise Flaw(f"{row.place}: {column} is {_shown(value)}, not a whole number")
    if number < 0:
        raise Flaw(f"{row.place}: {column} is {_shown(value)}, below 0")
    return int(number)


def _shown(value: Any) -> str:
    told = "empty" if nothing(value) else repr(value)
    return told if len(told) < 60 else told[:57] + "…"


def _made(counted: dict[tuple[str, str, int], list[int]], place: str) -> Clicks:
    """The table in its own order, refused where nothing can be learned from it."""
    keys = sorted(counted)
    queries = tuple(sorted({query for query, _, _ in keys}))
    pairs = sorted({(query, text) for query, text, _ in keys})
    if not keys:
        raise MeristemError(f"{place}: nothing was shown in this table; it needs rows with a query, a text, "
                            "and how often the text was shown and clicked")  # fmt: skip
    if len(queries) < 2:
        raise MeristemError(f"{place}: one query only ({queries[0]!r}); what makes people click is learned on some "
                            "queries and tested on others: give a table with several")  # fmt: skip
    if not any(clicked for _, clicked in counted.values()):
        raise MeristemError(f"{place}: no clicks at all in {len(keys):,} rows; there is nothing to learn from them")
    number = {query: at for at, query in enumerate(queries)}
    at = {pair: index for index, pair in enumerate(pairs)}
    whole = [np.array(values, dtype=np.int64) for values in (
        [number[query] for query, _ in pairs],
        [at[query, text] for query, text, _ in keys],
        [position for _, _, position in keys],
        [counted[key][0] for key in keys],
        [counted[key][1] for key in keys],
    )]  # fmt: skip
    of, pair, position, shown, clicked = whole
    return Clicks(queries=queries, texts=tuple(text for _, text in pairs), of=of, pair=pair, position=position,
                  shown=shown, clicked=clicked, place=place)  # fmt: skip
