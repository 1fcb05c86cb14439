"""Results as pandas DataFrames and as HTML tables in notebooks: single results, lists of results, metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any, TypeVar

from meristem.config.errors import MeristemError

T = TypeVar("T")
Record = dict[str, Any]
MAX_HTML_ROWS = 50
"""Maximum number of rows shown in a notebook."""


def result_records(value: Any, **columns: Any) -> list[Record]:
    """The rows of a result; for a list, the rows of all items with their index in the column `sample`."""
    if isinstance(value, Tabular | ResultList | EvaluationResult):
        return [{**columns, **row} for row in value.records()]
    if isinstance(value, Mapping):
        return [{**columns, **value}]
    if isinstance(value, list | tuple):
        return [row for index, item in enumerate(value) for row in result_records(item, **{"sample": index, **columns})]
    return [{**columns, "value": value}]


def pandas_module() -> Any:
    """pandas, imported when it is first needed."""
    try:
        import pandas
    except ImportError:
        raise MeristemError('to_pandas needs pandas: pip install "meristem-lm[data]"') from None
    return pandas


def data_frame(rows: Iterable[Record]) -> Any:
    """The rows as a pandas DataFrame."""
    return pandas_module().DataFrame(list(rows))


def heat_map(row_names: Sequence[str], column_names: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    """A matrix as an HTML table whose cells are the darker, the larger their value; at most 50 rows and columns."""
    names = [escape(name) for name in column_names[:MAX_HTML_ROWS]]
    largest = max((value for row in values for value in row), default=0.0) or 1.0
    head = "".join(f'<th style="writing-mode:vertical-rl;text-align:left">{name}</th>' for name in names)
    lines = [
        f"<tr><th>{escape(name)}</th>"
        + "".join(
            f'<td style="background:rgba(31,122,82,{value / largest:.2f})" title="{value:.3f}">&nbsp;</td>'
            for value in row[:MAX_HTML_ROWS]
        )
        + "</tr>"
        for name, row in zip(row_names[:MAX_HTML_ROWS], values, strict=False)
    ]
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def html_table(rows: list[Record]) -> str:
    """The rows as an HTML table; a single row is shown as names and values."""
    if not rows:
        return "<i>empty</i>"
    if len(rows) == 1:
        html_rows = [f"<th>{escape(str(name))}</th>{_format_cell(value)}" for name, value in rows[0].items()]
        return _format_table([], html_rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    html_rows = ["".join(_format_cell(row.get(name, "")) for name in names) for row in rows[:MAX_HTML_ROWS]]
    footer = f"<p>… and {len(rows) - MAX_HTML_ROWS:,} more rows</p>" if len(rows) > MAX_HTML_ROWS else ""
    return _format_table(names, html_rows) + footer


def _format_table(names: list[str], lines: list[str]) -> str:
    head = f"<thead><tr>{''.join(f'<th>{escape(str(name))}</th>' for name in names)}</tr></thead>" if names else ""
    return f"<table>{head}<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"


def _format_cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td style="text-align:left">{escape(str(value))}</td>'
    return f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{value:.6g}</td>"


class Tabular:
    """Mixin for result dataclasses: an HTML table in a notebook, and `to_pandas`."""

    def records(self) -> list[Record]:
        """One row with the plain values of its fields."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]  # a dataclass
        values = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
        return [{name: value for name, value in values.items() if isinstance(value, str | int | float | None)}]

    def to_pandas(self) -> Any:
        """The rows as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html_table(self.records())


class ResultList(list[T]):
    """A list of results, shown as one table in a notebook."""

    def records(self) -> list[Record]:
        """The rows of all items; with a column `sample` if items have several rows."""
        item_rows = [result_records(item) for item in self]
        if all(len(rows) == 1 for rows in item_rows):
            return [row for rows in item_rows for row in rows]
        return result_records(list(self))

    def to_pandas(self) -> Any:
        """The rows as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html_table(self.records())


class EvaluationResult(dict[str, Any]):
    """The result of an evaluation: a dict with `metrics` and optionally `intervals`, shown as a table in a notebook."""

    def records(self) -> list[Record]:
        """One row per metric: its value, and its 95 % interval if there is one."""
        intervals = self.get("intervals", {})
        return [
            {"metric": name, "value": value, **dict(zip(("low", "high"), intervals.get(name, ()), strict=False))}
            for name, value in self["metrics"].items()
        ]

    def to_pandas(self) -> Any:
        """The metrics as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html_table(self.records())
