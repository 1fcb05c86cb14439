"""Click tables: aggregated independently of row order; errors name the wrong line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.reinforce.clicks.click_table import ClickColumns, ClickTable, assign_folds, read_click_table

HEAD = "query,text,position,shown,clicked"
ROWS = ["tea,Hot tea,1,100,9", "tea,Cold tea,2,100,3", "tea,Hot tea,2,50,2", "cake,A cake,1,80,8", "tea,Hot tea,1,20,1"]
USUAL = ClickColumns.model_validate({})


def columns(**names: str | None) -> ClickColumns:
    return ClickColumns.model_validate(names)


def write_table(folder: Path, rows: list[str], head: str = HEAD, name: str = "clicks.csv") -> str:
    (folder / name).write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return str(folder / name)


def table_rows(clicks: ClickTable) -> set[tuple[str, str, int, int, int]]:
    return {
        (*clicks.pairs[pair], position, impressions, clicked)
        for pair, position, impressions, clicked in zip(
            clicks.row_pair.tolist(),
            clicks.position.tolist(),
            clicks.impressions.tolist(),
            clicks.clicks.tolist(),
            strict=True,
        )
    }


WANTED = {("tea", "Hot tea", 1, 120, 10), ("tea", "Hot tea", 2, 50, 2), ("tea", "Cold tea", 2, 100, 3),
          ("cake", "A cake", 1, 80, 8)}  # fmt: skip


def test_equal_rows_are_aggregated_in_any_order(tmp_path: Path) -> None:
    first = read_click_table(write_table(tmp_path, ROWS), USUAL)
    assert table_rows(first) == WANTED
    assert first.queries == ("cake", "tea")
    mixed = list(ROWS)
    random.Random(3).shuffle(mixed)
    click_table = read_click_table(write_table(tmp_path, mixed, name="mixed.csv"), USUAL)
    assert click_table.digest == first.digest
    assert click_table.texts == first.texts
    assert read_click_table(write_table(tmp_path, ROWS[:-1], name="fewer.csv"), USUAL).digest != first.digest


def test_other_formats_and_other_names(tmp_path: Path) -> None:
    names = columns(query="q", text="t", shown="views", clicked="hits", position="place")
    records = [dict(zip(("q", "t", "place", "views", "hits"), row.split(","), strict=True)) for row in ROWS]
    lines = tmp_path / "clicks.jsonl"
    lines.write_text("\n".join(map(json.dumps, records)))
    assert table_rows(read_click_table(str(lines), names)) == WANTED
    tabs = write_table(tmp_path, [row.replace(",", "\t") for row in ROWS], "q\tt\tplace\tviews\thits", "clicks.tsv")
    assert table_rows(read_click_table(tabs, names)) == WANTED
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    typed_records = [{**record, "views": int(record["views"]), "hits": float(record["hits"])} for record in records]
    parquet.write_table(arrow.Table.from_pylist(typed_records), tmp_path / "clicks.parquet")
    assert table_rows(read_click_table(str(tmp_path / "clicks.parquet"), names)) == WANTED


def test_builtin_clicks_in_chinese() -> None:
    click_table = read_click_table("builtin:microworld-clicks?size=60&language=zh", USUAL)
    assert len(click_table.queries) == 10
    assert click_table.positions == (1, 2, 3, 4, 5, 6)
    assert all("一" <= query[-1] <= "鿿" for query in click_table.queries)


def test_a_position_is_used_where_there_is_one(tmp_path: Path) -> None:
    without = [",".join(np.array(row.split(","))[[0, 1, 3, 4]]) for row in ROWS]
    assert read_click_table(write_table(tmp_path, without, "query,text,shown,clicked"), USUAL).positions == (0,)
    assert read_click_table(write_table(tmp_path, ROWS), columns(position=None)).positions == (0,)
    assert read_click_table(write_table(tmp_path, [*ROWS, "tea,Tea,,5,1"]), USUAL).positions == (1, 2, 0)


@pytest.mark.parametrize(("row", "message"), [
    ("tea,Hot tea,1,3,4", "clicked 4 times, but shown 3 times"),
    ("tea,Hot tea,1,-3,0", "shown is '-3', below 0"),
    ("tea,Hot tea,1,3,-1", "clicked is '-1', below 0"),
    ("tea,Hot tea,1,many,1", "shown is 'many', not a number"),
    ("tea,Hot tea,1,,1", "shown is empty, not a number"),
    ("tea,Hot tea,1,3,0.5", "clicked is '0.5', not a whole number"),
    ("tea,Hot tea,1,nan,1", "shown is 'nan', not a whole number"),
    ("tea,Hot tea,1,inf,1", "shown is 'inf', not a whole number"),
    ("tea,Hot tea,0,3,1", "position is 0; positions on a page start at 1"),
    ("tea,Hot tea,x,3,1", "position is 'x', not a number"),
    ("tea, ,1,3,1", "no text in the column 'text'"),
    (",Hot tea,1,3,1", "no query in the column 'query'"),
])  # fmt: skip
def test_a_wrong_row_is_named_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(MeristemError) as error:
        read_click_table(write_table(tmp_path, [*ROWS, row]), USUAL)
    assert str(error.value).startswith(f"{tmp_path / 'clicks.csv'}:7: {message}")


def test_of_many_wrong_rows_three_are_named(tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match="and 4 more such lines") as error:
        read_click_table(write_table(tmp_path, [*ROWS, *["tea,Hot tea,1,3,4"] * 7]), USUAL)
    assert str(error.value).count("clicked 4 times") == 3


@pytest.mark.parametrize(("rows", "message"), [
    ([row for row in ROWS if row.startswith("tea")], "only one query ('tea')"),
    ([row.rpartition(",")[0] + ",0" for row in ROWS], "no clicks at all in 4 rows"),
    (["tea,Hot tea,1,0,0", "cake,A cake,1,0,0"], "no impressions in this table"),
])  # fmt: skip
def test_a_table_from_which_nothing_can_be_learned_is_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(MeristemError) as error:
        read_click_table(write_table(tmp_path, rows), USUAL)
    assert message in str(error.value)


def test_a_column_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = write_table(tmp_path, ROWS, "query,text,position,shown,clicks")
    with pytest.raises(MeristemError, match="no column 'clicked', did you mean clicks\\?") as error:
        read_click_table(path, USUAL)
    assert "Set columns={clicked: COLUMN}" in str(error.value)
    with pytest.raises(MeristemError, match="no column 'place'"):
        read_click_table(path, columns(clicked="clicks", position="place"))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(MeristemError, match=r"clicks\.table: .*nowhere\.csv"):
        read_click_table("nowhere.csv", USUAL)


def test_splits_have_disjoint_queries(tmp_path: Path) -> None:
    clicks = read_click_table("builtin:microworld-clicks?size=600", USUAL)
    train_part, held_out_part = clicks.split(0.3, seed=2)
    assert not set(train_part.queries) & set(held_out_part.queries)
    assert sorted([*train_part.queries, *held_out_part.queries]) == list(clicks.queries)
    assert table_rows(train_part) | table_rows(held_out_part) == table_rows(clicks)
    assert 0.15 < len(held_out_part.queries) / len(clicks.queries) < 0.45
    part = assign_folds(clicks.queries, 4, 0)
    assert set(np.bincount(part)) <= {len(clicks.queries) // 4, len(clicks.queries) // 4 + 1}
    assert (part != assign_folds(clicks.queries, 4, 1)).any()
