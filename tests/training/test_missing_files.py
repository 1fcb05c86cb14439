"""A mistyped file name is reported as missing, with the closest name, before other differences."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_factory import RunFactory

from meristem.config.errors import MeristemError, RecipeError


def test_a_missing_source_is_named_before_settings_that_differ(run_factory: RunFactory, tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("Once upon a time.")
    run_factory.train()
    with pytest.raises(MeristemError, match=r"no such file or folder: .*novl\.txt .*did you mean novel\.txt"):
        run_factory.train(f"corpus.source={tmp_path / 'novl.txt'}", "model.layers=2")
    with pytest.raises(RecipeError, match="was started with different settings"):
        run_factory.train("model.layers=2")


@pytest.mark.parametrize(
    ("setting", "closest_name"),
    [
        ("from.word_vectors={}/vectors.tx", "vectors.txt"),
        ("tokenizer.path={}/vectors.tx", "vectors.txt"),
        ("from={}/runs/old", "old1"),
    ],
)
def test_other_files_are_looked_for_before_any_work(
    run_factory: RunFactory, tmp_path: Path, setting: str, closest_name: str
) -> None:
    (tmp_path / "vectors.txt").write_text("a 1 2")
    (tmp_path / "runs" / "old1" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "old1" / "recipe.yaml").touch()
    with pytest.raises(MeristemError, match=f"did you mean {closest_name}"):
        run_factory.train(setting.format(tmp_path), run="new")
    assert "Training" not in run_factory.output.getvalue()
    assert not (run_factory.root / "new").exists()
