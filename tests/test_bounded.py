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

from meristem.config.errors import MeristemError, RecipeError
from meristem.utils import untrusted_files
from meristem.utils.untrusted_files import ParseLimits

TINY = ParseLimits(max_bytes=100, max_items=10, max_objects=3, max_depth=3)


@pytest.mark.parametrize(("text", "value"), [
    ('{"a": [1, 2.5, null, "中"]}', {"a": [1, 2.5, None, "中"]}),
    (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    ('"\\ud83d\\ude00"', "😀"),
    ("1000000000000000019884624838656", 1000000000000000019884624838656),
    ("[[[1]]]", [[[1]]]),
])  # fmt: skip
def test_what_is_plain_is_read(text: str | bytes, value: Any) -> None:
    assert untrusted_files.parse_strict_json(text, TINY) == value


@pytest.mark.parametrize(("text", "message"), [
    ('{"a": 1, "a": 2}', "duplicate key 'a'"),
    ('{"b": {"a": 1, "a": 2}}', "duplicate key 'a'"),
    ("[NaN]", "NaN is not a valid number"),
    ("-Infinity", "is not a valid number"),
    ("1e999", "is out of range"),
    ("9" * 41, "a number with 41 digits"),
    ('"\\ud800"', "lone surrogate"),
    ('{"\\udc00": 1}', "lone surrogate"),
    ("[[[[1]]]]", "nested deeper than 3 levels"),
    ('{"a":' * 99_000, "too many"),
    ("[" * 20, "limit 10"),
    ("[{}, {}, {}, {}]", "4 objects are too many \\(limit 3\\)"),
    (" " * 101, "101 characters"),
    (b'"\xff"', "invalid start byte"),
    ("{", "Expecting property name"),
])  # fmt: skip
def test_what_is_not_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        untrusted_files.parse_strict_json(text, TINY)


def test_what_is_deep_beyond_python_is_refused_as_deep() -> None:
    with pytest.raises(untrusted_files.InvalidContentError, match="nested deeper than 64"):
        untrusted_files.parse_strict_json("[" * 100_000)
    with pytest.raises(untrusted_files.InvalidContentError, match="nested too deeply"):
        untrusted_files.parse_json_line('{"a":' * 100_000)
    assert untrusted_files.parse_strict_json("[" * 64 + "]" * 64)


def test_a_row_of_data_may_hold_what_data_hold() -> None:
    json_line = untrusted_files.parse_json_line('{"a": NaN, "a": 2}')
    assert json_line == {"a": 2}


@pytest.mark.parametrize(("text", "value"), [
    ("a: 1\nb: [x, y]\n", {"a": 1, "b": ["x", "y"]}),
    ("", None),
    ("base: &b {x: 1}\nc: {<<: *b, y: 2}\n", {"base": {"x": 1}, "c": {"x": 1, "y": 2}}),
    ("base: &b {x: 1}\nc: {<<: *b, x: 2}\n", {"base": {"x": 1}, "c": {"x": 2}}),
])  # fmt: skip
def test_yaml_is_read_as_plain_data(text: str, value: Any) -> None:
    assert untrusted_files.parse_yaml(text) == value


@pytest.mark.parametrize(("text", "message"), [
    ("a: 1\na: 2\n", "duplicate key 'a'"),
    ("x: {a: 1, a: 2}", "duplicate key 'a'"),
    ("a: !!python/name:os.system\n", "could not determine a constructor"),
    ("a: &a [*a]", "an alias that contains itself"),
    ("a: &a {<<: *a}", "an alias that contains itself"),
    ("a: " + "[" * 5000, "nested deeper"),
    ("- " * 5000, "nested deeper"),
    ("a: [1", "expected"),
    ("a: " + "9" * 5000, "5000 digits"),
    ("a: 2001-99-99", "month"),
    ("a\n" * 200_000, "200,000 items"),
])  # fmt: skip
def test_yaml_that_is_more_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        untrusted_files.parse_yaml(text)


def test_aliases_count_as_what_they_unfold_into() -> None:
    letters = "abcdefgh"
    laughs = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n" for old, new in pairwise(letters)
    )
    with pytest.raises(untrusted_files.InvalidContentError, match="its aliases expand to"):
        untrusted_files.parse_yaml(laughs)


def test_only_regular_files_are_read_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name, message in {"pipe": "is a pipe", "device": "is a device", ".": "is a folder",
                          "loop": "levels of symbolic",
                       "gone": "No such file", "a\0b": "not a valid file name"}.items():  # fmt: skip
        with pytest.raises(MeristemError, match=message):
            untrusted_files.read_bytes(tmp_path / name)


def test_sizes_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert untrusted_files.read_json_object(path) == {} and untrusted_files.read_bytes(path, 2) == b"{}"
    with pytest.raises(MeristemError, match=r"x\.json: 0 MB is too large for x\.json"):
        untrusted_files.read_bytes(path, 1)
    with path.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(MeristemError, match="1099512 MB is too large"):
        untrusted_files.read_json(path)


def test_places_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content, message in {
        b"\xff": "x: not UTF-8 text at byte 0",
        b"{\n\n1": r"x:3: not JSON",
        b"[]": "expected a JSON object",
    }.items():
        path.write_bytes(content)
        with pytest.raises(MeristemError, match=message):
            untrusted_files.read_json_object(path)
    with pytest.raises(RecipeError, match=r"x: not valid YAML: .*"):
        path.write_text("a: [1")
        untrusted_files.read_yaml(path)


@pytest.mark.parametrize(("text", "value"), [
    ("12:30", "12:30"), ("1:30.5", "1:30.5"), ("-1:00", "-1:00"), ("12", 12), ("-3", -3), ("1.5", 1.5), ("0x1f", 31),
])  # fmt: skip
def test_numbers_with_colons_are_text(text: str, value: object) -> None:
    assert untrusted_files.parse_yaml(f"a: {text}") == {"a": value}


def test_a_long_number_with_colons_costs_no_time() -> None:
    start = time.process_time()
    assert untrusted_files.parse_yaml("a: 1" + ":1" * 100_000)["a"].startswith("1:1:1")
    assert time.process_time() - start < 3  # it took 37 s when it was a number


ONLY_IN_MEMORY = {
    "utils/untrusted_files",
    "corpus/corpus_parts",
    "corpus/source_keys",
    "interop/tokenizer_conversion",
    "reinforce/reward_setup",
    "tokenizers/tokenizer_files",
    "reinforce/clicks/click_model_cache",
    "reinforce/word2vec",
    "dataset/prepare",
    "serving/studio/run_comparison",
    "checkpoint/provenance",
    "distributed/process_group",
}
"""Modules that make JSON for a digest, a comparison, a library or another process of the run, and write none of it."""
EXACT = {"checkpoint/save"}
"""The train state, which only we read, keeps every float as it is, infinities too."""


def test_json_without_numbers_that_are_none() -> None:
    value = {"a": [math.nan, (math.inf, 1.5)], 2: {"b": -math.inf}, "é": "é"}
    text = untrusted_files.to_json(value)
    assert json.loads(text, parse_constant=pytest.fail) == {"a": [None, [None, 1.5]], "2": {"b": None}, "é": "é"}
    assert "é" in text and untrusted_files.to_json("é", ascii_only=True) == r'"\u00e9"'


@pytest.mark.parametrize("scalars", [1, 7, 64, 100_000])
def test_json_in_parts_is_the_same_text(scalars: int) -> None:
    vectors = [[index / 7 for index in range(30)] for _ in range(5)]
    texts = [{"text": "é", "tokens": []}, {"text": '"', "tokens": [{"token": "a", "top": [["b", math.nan]] * 9}] * 50}]
    answers = {"vectors": vectors, "texts": texts, "none": None, "empty": [{}, []]}
    value = {"model": "m", "answers": answers, "é": (1, 2)}
    for json_value in (value, vectors, [], {}, "text", 3, [[]] * 200):
        assert "".join(untrusted_files.json_parts(json_value, scalars)) == untrusted_files.to_json(json_value)


def test_parts_of_json_are_small() -> None:
    pairs = {"answer": {"per_token": [["word", -1.25]] * 50_000}}
    uneven = {"texts": [{"tokens": []}] * 3 + [{"tokens": [["word", -1.25]] * 50_000}]}
    for value in (pairs, uneven):
        assert max(map(len, untrusted_files.json_parts(value))) < 50_000


def test_json_is_written_by_one_function() -> None:
    """Files, answers and pages: every other `json.dumps` refuses NaN, or is known to write nothing."""
    package = Path(untrusted_files.__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        for call in calls:
            name, keyword_arguments = (
                ast.unparse(call.func),
                {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords},
            )
            if name in ("json.dump", "json.dumps") and keyword_arguments.get("allow_nan") != "False":
                module = path.relative_to(package).with_suffix("").as_posix()
                assert module in ONLY_IN_MEMORY | EXACT, f"{path}:{call.lineno}: use untrusted_files.to_json"
            assert name not in ("JSONResponse", "ORJSONResponse"), f"{path}:{call.lineno}: use FiniteJSONResponse"
