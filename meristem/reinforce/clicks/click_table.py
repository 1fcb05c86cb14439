"""Click tables: which text was shown for which query at which position, how often, and how often it was clicked."""

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

from meristem.config.errors import MeristemError, did_you_mean
from meristem.config.settings import Settings
from meristem.data.sources import describe_missing_path
from meristem.labelled.cell_values import is_empty
from meristem.labelled.row_streams import SourceSpec, iter_row_streams
from meristem.labelled.rows import MAX_LISTED_LOCATIONS, RawRow, ReadNotes, RowError, RowStream
from meristem.labelled.settings import DataSettings

MAX_FLAWS = 1000
"""Invalid rows after which reading stops."""
HEADER_ROWS = 100
"""Rows from which columns are inferred where no header or schema names them."""
MAX_EXACT_COUNT = 1 << 53
"""Larger counts are not exact as floats."""

Ints = NDArray[np.int64]


class ClickColumns(Settings):
    """The column names of a click table."""

    query: str = "query"
    """The column of the search query, or of the A/B test that several texts were part of."""
    text: str = "text"
    """The column of the text that was shown."""
    shown: str = "shown"
    """The column of impressions: how often it was shown."""
    clicked: str = "clicked"
    """The column of clicks: how often it was clicked."""
    position: str | None = "position"
    """The column of the position on the page, from 1; ignored where the table lacks it or this is null."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClickTable:
    """An aggregated table: every (query, text, position) once, in an order independent of the file's."""

    queries: tuple[str, ...]
    texts: tuple[str, ...]
    """One per pair of a query and a text."""
    pair_query: Ints
    """[pairs] index of its query."""
    row_pair: Ints
    """[rows] index of its pair."""
    position: Ints
    """[rows] from 1; 0 where unknown."""
    impressions: Ints
    clicks: Ints
    source: str
    """The source's name."""

    @cached_property
    def digest(self) -> str:
        """A hash of the table's content."""
        counts = np.stack([self.row_pair, self.position, self.impressions, self.clicks])
        text_bytes = "\x1e".join([*self.queries, "", *self.texts]).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text_bytes + self.pair_query.tobytes() + counts.tobytes(), digest_size=16).hexdigest()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(query, text) of each pair."""
        return [(self.queries[query], text) for query, text in zip(self.pair_query.tolist(), self.texts, strict=True)]

    @property
    def positions(self) -> tuple[int, ...]:
        """The distinct positions in ascending order; 0 (unknown) comes last."""
        return tuple(sorted(set(self.position.tolist()), key=lambda position: position or MAX_EXACT_COUNT))

    def select_queries(self, mask: NDArray[np.bool_]) -> ClickTable:
        """The rows of the selected queries."""
        query_ids = [index for index, selected in enumerate(mask) if selected]
        pair_mask = mask[self.pair_query]
        row_mask = pair_mask[self.row_pair]
        return ClickTable(
            queries=tuple(self.queries[index] for index in query_ids),
            texts=tuple(text for text, selected in zip(self.texts, pair_mask, strict=True) if selected),
            pair_query=(np.cumsum(mask) - 1)[self.pair_query[pair_mask]],
            row_pair=(np.cumsum(pair_mask) - 1)[self.row_pair[row_mask]],
            position=self.position[row_mask],
            impressions=self.impressions[row_mask],
            clicks=self.clicks[row_mask],
            source=self.source,
        )

    def split(self, held_out_share: float, seed: int) -> tuple[ClickTable, ClickTable]:
        """A training part and a held-out part with disjoint queries."""
        held_out = np.array([_hash_fraction(seed, query) < held_out_share for query in self.queries])
        return self.select_queries(~held_out), self.select_queries(held_out)


def assign_folds(queries: Sequence[str], num_folds: int, seed: int) -> Ints:
    """[queries] the fold of each, all of about the same size; determined by the queries and the seed."""
    rank = np.argsort(np.argsort([_hash_fraction(seed, query) for query in queries]))
    return rank.astype(np.int64) * num_folds // len(queries)


def _hash_fraction(seed: int, query: str) -> float:
    key = f"{seed}\x1dclicks\x1d{query}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "little") / (1 << 48)


def read_click_table(source: str, columns: ClickColumns) -> ClickTable:
    """The clicks of a file (csv, tsv, jsonl, parquet, also .gz and .zst) or of builtin:microworld-clicks."""
    kind = source.partition(":")[0]
    path = Path(source).expanduser()
    if kind not in ("builtin", "hub") and not path.exists() and not any(mark in source for mark in "*?["):
        raise MeristemError(f"clicks.table: {describe_missing_path(path)}")
    names = {"question": columns.query, "text": columns.text, "label": columns.clicked, "target": columns.shown}
    data_settings = DataSettings.model_validate(names)  # these distinguish a header line from data
    counts: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    flaws: list[str] = []
    for part in iter_row_streams(SourceSpec(source, data_settings, "text"), ReadNotes()):
        _add_rows(part, columns, counts, flaws)
    if flaws:
        more = (
            f"\nand {len(flaws) - MAX_LISTED_LOCATIONS:,} more such lines" if len(flaws) > MAX_LISTED_LOCATIONS else ""
        )
        raise MeristemError("\n".join(flaws[:MAX_LISTED_LOCATIONS]) + more)
    return _build_table(counts, source)


def _add_rows(
    part: RowStream, columns: ClickColumns, counts: dict[tuple[str, str, int], list[int]], flaws: list[str]
) -> None:
    """Add the rows of one file to the counts, and invalid ones to the flaws."""
    first_rows = list(islice(part.rows, HEADER_ROWS))
    names = part.columns or tuple(
        dict.fromkeys(name for row in first_rows if isinstance(row, RawRow) for name in row.values)
    )
    if names:
        columns = _resolve_columns(columns, names, part.source_name)
    for row in chain(first_rows, part.rows):
        if len(flaws) == MAX_FLAWS:
            return
        if isinstance(row, RowError):
            flaws.append(str(row))
            continue
        try:
            key, impressions, clicks = _parse_row(row, columns)
        except RowError as flaw:
            flaws.append(str(flaw))
            continue
        if impressions:
            counts[key][0] += impressions
            counts[key][1] += clicks


def _resolve_columns(columns: ClickColumns, names: Sequence[str], source: str) -> ClickColumns:
    """The columns, all of them present in the table; a position column with the default name may be missing."""
    for role in ("query", "text", "shown", "clicked", "position"):
        name = getattr(columns, role)
        if name is None or name in names:
            continue
        if role == "position" and name == ClickColumns.model_fields["position"].default:
            columns = columns.model_copy(update={"position": None})
            continue
        suggestion = did_you_mean(name, names)
        hint = suggestion if "known" in suggestion else f"{suggestion} Columns: {', '.join(names)}"
        raise MeristemError(f"{source}: no column {name!r}{hint}. Set columns={{{role}: COLUMN}}")
    return columns


def _parse_row(row: RawRow, columns: ClickColumns) -> tuple[tuple[str, str, int], int, int]:
    query, text = (_cell_text(row, name, role) for name, role in ((columns.query, "query"), (columns.text, "text")))
    impressions, clicks = (_cell_count(row, name) for name in (columns.shown, columns.clicked))
    if clicks > impressions:
        raise RowError(
            f"{row.location}: clicked {clicks:,} times, but shown {impressions:,} times; are the columns swapped? "
            f"({columns.clicked!r}, {columns.shown!r})"
        )
    position = 0
    if columns.position is not None and not is_empty(row.values.get(columns.position)):
        position = _cell_count(row, columns.position)
        if position < 1:
            raise RowError(f"{row.location}: {columns.position} is {position}; positions on a page start at 1")
    return (query, text, position), impressions, clicks


def _cell_text(row: RawRow, column: str, role: str) -> str:
    value = row.values.get(column)
    if is_empty(value):
        raise RowError(f"{row.location}: no {role} in the column {column!r}; fill it in or remove the row")
    if isinstance(value, dict | list | tuple | bytes):
        raise RowError(f"{row.location}: the {role} is a {type(value).__name__}, not a text")
    return str(value).strip()


def _cell_count(row: RawRow, column: str) -> int:
    value: Any = row.values.get(column)
    try:
        number = float(value.replace(",", "") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise RowError(f"{row.location}: {column} is {_format_value(value)}, not a number") from None
    if isinstance(value, bool) or not abs(number) < MAX_EXACT_COUNT or number != int(number):
        raise RowError(f"{row.location}: {column} is {_format_value(value)}, not a whole number")
    if number < 0:
        raise RowError(f"{row.location}: {column} is {_format_value(value)}, below 0")
    return int(number)


def _format_value(value: Any) -> str:
    text = "empty" if is_empty(value) else repr(value)
    return text if len(text) < 60 else text[:57] + "…"


def _build_table(counts: dict[tuple[str, str, int], list[int]], source: str) -> ClickTable:
    """The aggregated table; refuses one that nothing can be learned from."""
    keys = sorted(counts)
    queries = tuple(sorted({query for query, _, _ in keys}))
    pairs = sorted({(query, text) for query, text, _ in keys})
    if not keys:
        raise MeristemError(f"{source}: no impressions in this table; it needs rows with a query, a text, "
                            "and how often the text was shown and clicked")  # fmt: skip
    if len(queries) < 2:
        raise MeristemError(f"{source}: only one query ({queries[0]!r}); the click model is fitted on some queries and "
                            "tested on others: give a table with several")  # fmt: skip
    if not any(clicks for _, clicks in counts.values()):
        raise MeristemError(f"{source}: no clicks at all in {len(keys):,} rows; there is nothing to learn from them")
    query_index = {query: index for index, query in enumerate(queries)}
    pair_index = {pair: index for index, pair in enumerate(pairs)}
    arrays = [np.array(values, dtype=np.int64) for values in (
        [query_index[query] for query, _ in pairs],
        [pair_index[query, text] for query, text, _ in keys],
        [position for _, _, position in keys],
        [counts[key][0] for key in keys],
        [counts[key][1] for key in keys],
    )]  # fmt: skip
    pair_query, row_pair, position, impressions, clicks = arrays
    return ClickTable(
        queries=queries,
        texts=tuple(text for _, text in pairs),
        pair_query=pair_query,
        row_pair=row_pair,
        position=position,
        impressions=impressions,
        clicks=clicks,
        source=source,
    )
