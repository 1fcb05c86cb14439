"""Data named only by the recipe of a foreign run are not read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from meristem import api
from meristem.config.errors import MeristemError
from meristem.training import budget

SMALL = ["model.layers=1", "model.hidden_size=16", "model.heads=2", "model.max_length=16",
         "tokenizer.vocab_size=200", "objective=mlm",
         "train.batch_tokens=64", "train.evaluate_tokens=64", "train.steps=1", "corpus.validation=0.1",
         "corpus.test=0.2", "corpus.document=block"]  # fmt: skip
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file of this machine."""
    folder = tmp_path_factory.mktemp("origin")
    text = "\n\n".join(f"a line of words, number {number}, and then another." for number in range(80))
    (folder / "mine.txt").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        source = str(folder / "mine.txt")
        return api.pretrain("bert-mini", SMALL, source=source, out=folder / "run", console=QUIET).run


def test_a_run_that_was_made_here_is_measured_on_its_own_data(trained: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(trained, tmp_path / "moved")
    assert api.load(moved).evaluate()["samples"]["rows"] > 0
    assert "mine.txt" not in (trained / "origin.json").read_text()


@pytest.mark.parametrize("change", ["none", "gone", "forged", "link", "recipe"])
def test_data_of_a_foreign_run_are_not_read(change: str, trained: Path, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    run = shutil.copytree(trained, tmp_path / "run")
    if change == "none":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another-machine"))
    elif change == "gone":
        (run / "origin.json").unlink()
    elif change == "forged":
        (run / "origin.json").write_text(json.dumps({"hmac": "0" * 64}))
    elif change == "link":
        (run / "origin.json").rename(tmp_path / "origin.json")
        (run / "origin.json").symlink_to(tmp_path / "origin.json")
    else:
        recipe = (run / "recipe.yaml").read_text()
        (run / "recipe.yaml").write_text(recipe.replace(str(trained.parent / "mine.txt"), "/etc/passwd"))
    with pytest.raises(MeristemError, match=r"/etc/passwd.*--trust-paths|mine\.txt.*--trust-paths|is a symbolic link"):
        api.load(run).evaluate()
    if change in ("none", "gone"):
        assert api.load(run).evaluate(trust_paths=True)["samples"]["rows"] > 0
    (tmp_path / "other.txt").write_text("Another text of some words.\n\nAnd one more.\n")
    if change != "link":
        assert api.load(run).evaluate(data=str(tmp_path / "other.txt"))["samples"]["rows"] > 0


def test_built_in_data_need_no_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    source = "builtin:microworld-en?size=60"
    run = api.pretrain("bert-mini", SMALL, source=source, out=tmp_path / "run", console=QUIET).run
    (run / "origin.json").unlink()
    assert api.load(run).evaluate()["samples"]["rows"] > 0
