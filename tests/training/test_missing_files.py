"""A mistyped file name is reported as missing, with the closest name, before other differences."""

from __future__ import annotations

from pathlib import Path

import pytest
from place import Place

from meristem.config.errors import MeristemError, RecipeError


def test_a_missing_source_is_named_before_settings_that_differ(place: Place, tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("Once upon a time.")
    place.train()
    with pytest.raises(MeristemError, match=r"no such file or folder: .*novl\.txt .*did you mean novel\.txt"):
        place.train(f"corpus.source={tmp_path / 'novl.txt'}", "model.layers=2")
    with pytest.raises(RecipeError, match="was started with different settings"):
        place.train("model.layers=2")


@pytest.mark.parametrize(
    ("setting", "near"),
    [
        ("from.word_vectors={}/vectors.tx", "vectors.txt"),
        ("tokenizer.path={}/vectors.tx", "vectors.txt"),
        ("from={}/runs/old", "old1"),
    ],
)
def test_other_files_are_looked_for_before_any_work(place: Place, tmp_path: Path, setting: str, near: str) -> None:
    (tmp_path / "vectors.txt").write_text("a 1 2")
    (tmp_path / "runs" / "old1" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "old1" / "recipe.yaml").touch()
    with pytest.raises(MeristemError, match=f"did you mean {near}"):
        place.train(setting.format(tmp_path), run="new")
    assert "Training" not in place.said.getvalue()
    assert not (place.root / "new").exists()
