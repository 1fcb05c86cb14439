"""Results as tables: rows for pandas and HTML for notebooks, for single results, lists of them and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from html import escape
from typing import Any, TypeVar

from meristem.errors import MeristemError

T = TypeVar("T")
Record = dict[str, Any]
MOST = 50
"""Rows that a notebook shows."""


def records(value: Any, **before: Any) -> list[Record]:
    """The rows of a result: of a list those of each item, numbered by `sample` where an item has several."""
    if isinstance(value, Tabular | Results | Evaluation):
        return [{**before, **row} for row in value.records()]
    if isinstance(value, Mapping):
        return [{**before, **value}]
    if isinstance(value, list | tuple):
        return [row for number, item in enumerate(value) for row in records(item, **{"sample": number, **before})]
    return [{**before, "value": value}]


def data_frame(rows: Iterable[Record]) -> Any:
    """A pandas DataFrame of rows."""
    try:
        import pandas
    except ImportError:
        raise MeristemError('to_pandas needs pandas: pip install "meristem[data]"') from None
    return pandas.DataFrame(list(rows))


def html(rows: list[Record]) -> str:
    """An HTML table: a row for each, or names and values where there is only one."""
    if not rows:
        return "<i>nothing</i>"
    if len(rows) == 1:
        lines = [f"<th>{escape(str(name))}</th>{_cell(value)}" for name, value in rows[0].items()]
        return _table([], lines)
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["".join(_cell(row.get(name, "")) for name in names) for row in rows[:MOST]]
    more = f"<p>… and {len(rows) - MOST:,} more rows</p>" if len(rows) > MOST else ""
    return _table(names, lines) + more


def _table(names: list[str], lines: list[str]) -> str:
    head = f"<thead><tr>{''.join(f'<th>{escape(str(name))}</th>' for name in names)}</tr></thead>" if names else ""
    return f"<table>{head}<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td style="text-align:left">{escape(str(value))}</td>'
    return f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{value:.6g}</td>"


class Tabular:
    """Mixin of result dataclasses: a table in a notebook, rows for pandas."""

    def records(self) -> list[Record]:
        """One row of its plain values."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]  # a dataclass
        return [{name: value for name, value in named.items() if isinstance(value, str | int | float | None)}]

    def to_pandas(self) -> Any:
        """Its rows as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html(self.records())


class Results(list[T]):
    """A list of results that a notebook shows as one table."""

    def records(self) -> list[Record]:
        """The rows of all of them; `sample` numbers the items that have several rows."""
        each = [records(item) for item in self]
        if all(len(rows) == 1 for rows in each):
            return [row for rows in each for row in rows]
        return records(list(self))

    def to_pandas(self) -> Any:
        """Their rows as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html(self.records())


class Evaluation(dict[str, Any]):
    """What an evaluation found: `metrics`, and perhaps their `intervals`; a dict that a notebook shows as a table."""

    def records(self) -> list[Record]:
        """A row for each metric: its value and its 95 % interval where there is one."""
        intervals = self.get("intervals", {})
        return [
            {"metric": name, "value": value, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
            for name, value in self["metrics"].items()
        ]

    def to_pandas(self) -> Any:
        """The metrics as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html(self.records())
