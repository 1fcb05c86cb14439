"""Data given in memory are kept in the run, which resumes with them and is refused with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from rich.console import Console

import meristem
from meristem.config.errors import MeristemError, RecipeError
from meristem.in_memory_data import iter_rows, store_tables

pytestmark = pytest.mark.usefixtures("small_peak")
QUIET = Console(quiet=True)
TEXTS = [f"the old gardener carried {n} boats to the harbour. nobody else came {n} times." for n in range(60)]
SMALL = {
    "model.layers": 1,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 32,
    "tokenizer.vocab_size": 300,
    "train.batch_tokens": 128,
    "train.steps": 2,
}
TASK = {key: value for key, value in SMALL.items() if "batch" not in key}
ROWS = [{"review": f"a {'lovely' if n % 2 else 'dreadful'} day {n}", "stars": n % 2} for n in range(20)]
NAMES = {"text": "review", "label": "stars"}


def test_texts_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = meristem.pretrain("gpt2-mini", SMALL, source=TEXTS, out=run, console=QUIET)
    lines = (run / "data" / "source.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == TEXTS and first.step == 2
    result = meristem.pretrain("gpt2-mini", {**SMALL, "train.steps": 4}, source=TEXTS, out=run, console=QUIET)
    assert result.step == 4
    with pytest.raises(RecipeError, match="other source data"):
        meristem.pretrain("gpt2-mini", SMALL, source=TEXTS[1:], out=run, console=QUIET)
    fresh = meristem.pretrain("gpt2-mini", SMALL, source=TEXTS[1:], out=run, fresh=True, console=QUIET)
    assert fresh.step == 2 and (tmp_path / "run.old-1" / "data" / "source.jsonl").is_file()


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "days"
    frame = pandas.DataFrame(ROWS)
    splits = {"train": frame, "validation": ROWS[:6], "test": ROWS[6:12], **NAMES}
    result = meristem.finetune("classification", TASK, data=splits, out=out, console=QUIET)
    assert set(result.test) >= {"accuracy"}
    return out


def test_a_frame_and_lists_are_splits(trained_run: Path) -> None:
    assert {path.name for path in (trained_run / "data").iterdir()} == {"train.jsonl", "validation.jsonl", "test.jsonl"}
    rows = [
        json.loads(line) for line in (trained_run / "data" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert rows == ROWS


def test_a_frame_is_predicted_and_evaluated_by_its_columns(trained_run: Path) -> None:
    model, frame = meristem.load(trained_run), pandas.DataFrame(ROWS)
    predictions = model.predict(frame[["review"]])
    expected = model.predict([row["review"] for row in ROWS])
    assert [prediction["label"] for prediction in predictions] == [prediction["label"] for prediction in expected]
    assert predictions.to_pandas()["score"].tolist() == pytest.approx(
        [prediction["score"] for prediction in expected], abs=1e-5
    )
    assert model.evaluate(data=frame)["metrics"] == model.evaluate(data=ROWS)["metrics"]
    assert "classification" in repr(model) and "days" in repr(model)


def test_a_list_alone_is_the_training_split(tmp_path: Path) -> None:
    rows = [{"text": row["review"], "label": row["stars"]} for row in ROWS]
    meristem.finetune("classification", [f"{k}={v}" for k, v in TASK.items()], data=rows, out=tmp_path / "r",
                      console=QUIET)  # fmt: skip
    assert [path.name for path in (tmp_path / "r" / "data").iterdir()] == ["train.jsonl"]


@pytest.mark.parametrize(
    ("table", "message"),
    [([], "is empty"), ([1, 2], "row 0"), ({"text": ["a"]}, "got dict"), (3, "got int"), ([{"a": {1}}], "set")],
)
def test_what_is_no_table(table: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match=message):
        store_tables({"train": table}, tmp_path / "run", fresh=False)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="utf-8")
    with pytest.raises(MeristemError, match="holds other files"):
        store_tables({"train": ROWS}, tmp_path, fresh=False)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_values_of_numpy_and_what_is_missing() -> None:
    frame = pandas.DataFrame({"n": np.array([1, 2]), "x": [0.5, np.nan], "words": [np.array(["a", "b"]), ["c"]]})
    assert list(iter_rows(frame)) == [{"n": 1, "x": 0.5, "words": ["a", "b"]}, {"n": 2, "x": None, "words": ["c"]}]
