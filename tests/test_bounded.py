"""Files that strangers may have written, read within bounds."""

from __future__ import annotations

import ast
import json
import math
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from meristem import bounded
from meristem.bounded import Bounds
from meristem.errors import MeristemError, RecipeError

TINY = Bounds(size=100, parts=10, objects=3, depth=3)


@pytest.mark.parametrize(("text", "value"), [
    ('{"a": [1, 2.5, null, "中"]}', {"a": [1, 2.5, None, "中"]}),
    (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    ('"\\ud83d\\ude00"', "😀"),
    ("1000000000000000019884624838656", 1000000000000000019884624838656),
    ("[[[1]]]", [[[1]]]),
])  # fmt: skip
def test_what_is_plain_is_read(text: str | bytes, value: Any) -> None:
    assert bounded.strict(text, TINY) == value


@pytest.mark.parametrize(("text", "says"), [
    ('{"a": 1, "a": 2}', "'a' stands twice"),
    ('{"b": {"a": 1, "a": 2}}', "'a' stands twice"),
    ("[NaN]", "NaN is no number"),
    ("-Infinity", "is no number"),
    ("1e999", "beyond every number"),
    ("9" * 41, "a number of 41 digits"),
    ('"\\ud800"', "half a character"),
    ('{"\\udc00": 1}', "half a character"),
    ("[[[[1]]]]", "nested deeper than 3 levels"),
    ('{"a":' * 99_000, "at most"),
    ("[" * 20, "at most 10 are read"),
    ("[{}, {}, {}, {}]", "4 objects, at most 3"),
    (" " * 101, "101 characters"),
    (b'"\xff"', "invalid start byte"),
    ("{", "Expecting property name"),
])  # fmt: skip
def test_what_is_not_is_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        bounded.strict(text, TINY)


def test_what_is_deep_beyond_python_is_refused_as_deep() -> None:
    with pytest.raises(bounded.Refused, match="nested deeper than 64"):
        bounded.strict("[" * 100_000)
    with pytest.raises(bounded.Refused, match="nested too deeply"):
        bounded.row('{"a":' * 100_000)
    assert bounded.strict("[" * 64 + "]" * 64)


def test_a_row_of_data_may_hold_what_data_hold() -> None:
    found = bounded.row('{"a": NaN, "a": 2}')
    assert found == {"a": 2}


@pytest.mark.parametrize(("text", "value"), [
    ("a: 1\nb: [x, y]\n", {"a": 1, "b": ["x", "y"]}),
    ("", None),
    ("base: &b {x: 1}\nc: {<<: *b, y: 2}\n", {"base": {"x": 1}, "c": {"x": 1, "y": 2}}),
    ("base: &b {x: 1}\nc: {<<: *b, x: 2}\n", {"base": {"x": 1}, "c": {"x": 2}}),
])  # fmt: skip
def test_yaml_is_read_as_plain_data(text: str, value: Any) -> None:
    assert bounded.yaml_in(text) == value


@pytest.mark.parametrize(("text", "says"), [
    ("a: 1\na: 2\n", "'a' stands twice"),
    ("x: {a: 1, a: 2}", "'a' stands twice"),
    ("a: !!python/name:os.system\n", "could not determine a constructor"),
    ("a: &a [*a]", "an alias that holds itself"),
    ("a: &a {<<: *a}", "an alias that holds itself"),
    ("a: " + "[" * 5000, "nested deeper"),
    ("- " * 5000, "nested deeper"),
    ("a: [1", "expected"),
    ("a: " + "9" * 5000, "5000 digits"),
    ("a: 2001-99-99", "month"),
    ("a\n" * 200_000, "200,000 parts"),
])  # fmt: skip
def test_yaml_that_is_more_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        bounded.yaml_in(text)


def test_aliases_count_as_what_they_unfold_into() -> None:
    letters = "abcdefgh"
    laughs = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n" for old, new in pairwise(letters)
    )
    with pytest.raises(bounded.Refused, match="its aliases unfold into"):
        bounded.yaml_in(laughs)


def test_only_regular_files_are_read_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name, says in {"pipe": "is a pipe", "device": "is a device", ".": "is a folder", "loop": "levels of symbolic",
                       "gone": "No such file", "a\0b": "no name of a file"}.items():  # fmt: skip
        with pytest.raises(MeristemError, match=says):
            bounded.content(tmp_path / name)


def test_sizes_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert bounded.read_mapping(path) == {} and bounded.content(path, 2) == b"{}"
    with pytest.raises(MeristemError, match=r"x\.json: 0 MB is too large for x\.json"):
        bounded.content(path, 1)
    with path.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(MeristemError, match="1099512 MB is too large"):
        bounded.read_json(path)


def test_places_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content, says in {
        b"\xff": "x: not UTF-8 text at byte 0",
        b"{\n\n1": r"x:3: not JSON",
        b"[]": "expected a JSON object",
    }.items():
        path.write_bytes(content)
        with pytest.raises(MeristemError, match=says):
            bounded.read_mapping(path)
    with pytest.raises(RecipeError, match=r"x: not readable as YAML: .*"):
        path.write_text("a: [1")
        bounded.read_yaml(path)


@pytest.mark.parametrize(("text", "value"), [
    ("12:30", "12:30"), ("1:30.5", "1:30.5"), ("-1:00", "-1:00"), ("12", 12), ("-3", -3), ("1.5", 1.5), ("0x1f", 31),
])  # fmt: skip
def test_numbers_with_colons_are_text(text: str, value: object) -> None:
    assert bounded.yaml_in(f"a: {text}") == {"a": value}


def test_a_long_number_with_colons_costs_no_time() -> None:
    began = time.process_time()
    assert bounded.yaml_in("a: 1" + ":1" * 100_000)["a"].startswith("1:1:1")
    assert time.process_time() - began < 3  # it took 37 s when it was a number


ONLY_IN_MEMORY = {"bounded", "corpus/parts", "corpus/sources", "interop/words", "training/rewarding",
                  "tokenizers/reading", "reinforce/clicks/kept", "reinforce/learned", "store/prepare",
                  "serving/studio/differences", "checkpoint/origin", "learning/team"}  # fmt: skip
"""Modules that make JSON for a digest, a comparison, a library or another process of the run, and write none of it."""
EXACT = {"checkpoint/save"}
"""The train state, which only we read, keeps every float as it is, infinities too."""


def test_json_without_numbers_that_are_none() -> None:
    value = {"a": [math.nan, (math.inf, 1.5)], 2: {"b": -math.inf}, "é": "é"}
    text = bounded.to_json(value)
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [None, [None, 1.5]], "2": {"b": None}, "é": "é"}
    assert "é" in text and bounded.to_json("é", ascii_only=True) == r'"\u00e9"'


@pytest.mark.parametrize("scalars", [1, 7, 64, 100_000])
def test_json_in_parts_is_the_same_text(scalars: int) -> None:
    vectors = [[one / 7 for one in range(30)] for _ in range(5)]
    texts = [{"text": "é", "tokens": []}, {"text": '"', "tokens": [{"token": "a", "top": [["b", math.nan]] * 9}] * 50}]
    answers = {"vectors": vectors, "texts": texts, "none": None, "empty": [{}, []]}
    value = {"model": "m", "answers": answers, "é": (1, 2)}
    for one in (value, vectors, [], {}, "text", 3, [[]] * 200):
        assert "".join(bounded.json_parts(one, scalars)) == bounded.to_json(one)


def test_parts_of_json_are_small() -> None:
    pairs = {"answer": {"per_token": [["word", -1.25]] * 50_000}}
    uneven = {"texts": [{"tokens": []}] * 3 + [{"tokens": [["word", -1.25]] * 50_000}]}
    for value in (pairs, uneven):
        assert max(map(len, bounded.json_parts(value))) < 50_000


def test_json_is_written_by_one_function() -> None:
    """Files, answers and pages: every other `json.dumps` refuses NaN, or is known to write nothing."""
    package = Path(bounded.__file__).parent
    for path in sorted(package.rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        for call in calls:
            name, given = ast.unparse(call.func), {one.arg: ast.unparse(one.value) for one in call.keywords}
            if name in ("json.dump", "json.dumps") and given.get("allow_nan") != "False":
                module = path.relative_to(package).with_suffix("").as_posix()
                assert module in ONLY_IN_MEMORY | EXACT, f"{path}:{call.lineno}: use bounded.to_json"
            assert name not in ("JSONResponse", "ORJSONResponse"), f"{path}:{call.lineno}: use FiniteJSONResponse"
