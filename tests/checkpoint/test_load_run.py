"""Loading a run as a model; nothing in its folder is ever executed."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from meristem import api
from meristem.checkpoint import disk, manifest, tensors
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import load_recipe, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.config.recipe_format import FORMAT_KEY, RECIPE_FORMAT
from meristem.training import budget
from meristem.training.pretraining import pretrain

PLAIN = {
    "corpus": {"source": "builtin:microworld-en?size=30", "processes": 1, "validation": 0.1, "test": 0.1},
    "tokenizer": {"kind": "wordpiece", "vocab_size": 200},
    "objective": ["mlm", "nsp"],
    "model": {"family": "bert", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32, "dropout": 0.1},
    "train": {
        "steps": 6,
        "batch_tokens": 64,
        "save_every": 2,
        "keep_checkpoints": 3,
        "evaluate_every": 100,
        "threads": 1,
    },
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints of steps 2, 4 and 6."""
    path = tmp_path_factory.mktemp("runs") / "bert"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        pretrain(resolve_recipe("bert", PLAIN), path, fresh=False, console=Console(quiet=True))
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    return Path(shutil.copytree(trained, tmp_path / "bert"))


def checkpoint(run: Path, step: int) -> Path:
    return run / f"checkpoints/step-{step:08d}"


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_a_loaded_model_is_the_saved_one(trained: Path) -> None:
    loaded_run = load_run(trained)
    loaded = load_checkpoint(trained / "checkpoints")
    assert loaded is not None and loaded_run.step == loaded.snapshot.step == 6
    state_dict = loaded_run.learner.model.state_dict()
    assert state_dict.keys() == loaded.snapshot.model.keys()
    assert all(torch.equal(state_dict[name], tensor) for name, tensor in loaded.snapshot.model.items())
    assert not loaded_run.learner.training, "dropout would make every answer another one"
    assert loaded_run.notices == ()
    assert loaded_run.state["tokens"] == 6 * 64


def test_an_older_step(trained: Path) -> None:
    assert load_run(trained, step=2).step == 2
    with pytest.raises(MeristemError, match="no checkpoint of step 3; there are: 6, 4, 2"):
        load_run(trained, step=3)


def test_the_recipe_a_run_keeps_is_the_one_it_was_made_with(trained: Path) -> None:
    assert load_recipe(RunFolder(trained)).to_dict() == resolve_recipe("bert", PLAIN).to_dict()


def test_a_moved_run_still_opens(run: Path, tmp_path: Path) -> None:
    moved = run.rename(tmp_path / "elsewhere")
    (moved / "tokenizer.json").unlink()  # each checkpoint has its own
    assert load_run(moved).step == 6


def test_a_run_without_a_checkpoint_says_what_to_do(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    with pytest.raises(MeristemError, match="has no checkpoint yet: train it until its first checkpoint is saved"):
        load_run(run)


def test_a_pickle_under_the_name_of_weights_is_refused_and_an_older_checkpoint_used(run: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    (checkpoint(run, 6) / "model.safetensors").write_bytes(pickle.dumps(Trap(mark)))
    loaded_run = load_run(run)
    assert loaded_run.step == 4
    assert any("step-00000006 is damaged" in notice and "pickle" in notice for notice in loaded_run.notices)
    assert not mark.exists()
    with pytest.raises(MeristemError, match="pickle"):
        load_run(run, step=6)
    assert not mark.exists()


def test_a_pickle_whose_manifest_was_forged_too(run: Path, tmp_path: Path) -> None:
    """Even where sizes, digests and the seal agree, what is inside is no table of tensors."""
    mark, folder = tmp_path / "executed", checkpoint(run, 6)
    (folder / manifest.MODEL).write_bytes(pickle.dumps(Trap(mark)))
    content = manifest.read_manifest(folder)
    files = {**content.files, manifest.MODEL: disk.digest(folder / manifest.MODEL)}
    (folder / manifest.MANIFEST).write_bytes(replace(content, files=files).to_bytes())
    loaded_run = load_run(run)
    assert loaded_run.step == 4
    assert any("pickle" in notice for notice in loaded_run.notices)
    assert not mark.exists()


def test_torch_files_beside_are_never_opened(run: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin"):
        (run / name).write_bytes(pickle.dumps(Trap(mark)))
        (checkpoint(run, 6) / name).write_bytes(pickle.dumps(Trap(mark)))
    load_run(run)
    assert not mark.exists()


def test_a_folder_of_pickles_is_not_a_run(run: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    for folder in (run / "checkpoints").glob("step-*"):
        for file in folder.iterdir():
            file.write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(MeristemError, match=r"no checkpoint in .* is intact"):
        load_run(run)
    assert not mark.exists()


def test_weights_of_another_model_are_refused(run: Path) -> None:
    text = (run / "recipe.yaml").read_text(encoding="utf-8")
    (run / "recipe.yaml").write_text(text.replace("hidden_size: 32", "hidden_size: 64"), encoding="utf-8")
    with pytest.raises(MeristemError, match="the checkpoint is from another model"):
        load_run(run)


def test_a_recipe_that_is_code_is_not_run(run: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    (run / "recipe.yaml").write_text(f"model: !!python/object/apply:os.mkdir ['{mark}']\n", encoding="utf-8")
    with pytest.raises(MeristemError, match="not valid YAML"):
        load_run(run)
    assert not mark.exists()


def test_only_resuming_reads_the_optimizer(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    digest = disk.digest
    monkeypatch.setattr(disk, "digest", lambda path: opened.append(path.name) or digest(path))
    (checkpoint(run, 6) / "optimizer.safetensors").write_bytes(b"nobody looks")
    assert load_run(run).step == 6
    assert "model.safetensors" in opened and "optimizer.safetensors" not in opened
    loaded = load_checkpoint(run / "checkpoints")
    assert loaded is not None and loaded.snapshot.step == 4  # whoever trains on notices


def test_a_model_far_larger_than_its_weights_takes_no_memory(run: Path) -> None:
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("length: 32", "length: 16000000"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MeristemError, match=r"describes a model of 2,\d+ MB, and its checkpoint holds 0\.\d MB"):
        load_run(run)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 << 10


def test_weights_that_are_not_finite_are_reported_and_not_trained_on(run: Path) -> None:
    folder = checkpoint(run, 6)
    content = tensors.load_tensors(folder / "model.safetensors")
    next(iter(content.values())).view(-1)[0] = torch.nan
    disk.write_file(folder / "changed", tensors.encode_safetensors(content))
    (folder / "changed").replace(folder / "model.safetensors")
    sealed = manifest.read_manifest(folder)
    files = {name: disk.digest(folder / name) for name in sealed.files}
    (folder / "manifest.json").write_bytes(replace(sealed, files=files).to_bytes())
    loaded_run = load_run(run)
    assert not loaded_run.weights_finite and "weights are not finite" in loaded_run.notices[-1]
    with pytest.raises(MeristemError, match="weights that are not finite cannot be trained on"):
        pretrain(resolve_recipe("bert", {**PLAIN, "train": {**PLAIN["train"], "steps": 8}}), run, fresh=False,
                 console=Console(quiet=True))  # fmt: skip


def test_a_recipe_that_was_edited_to_another_model_is_reported_when_the_run_is_loaded(run: Path) -> None:
    assert load_run(run).notices == ()
    text = (run / "recipe.yaml").read_text(encoding="utf-8")
    assert "heads: 2" in text
    (run / "recipe.yaml").write_text(text.replace("heads: 2", "heads: 4"), encoding="utf-8")
    (notice,) = load_run(run).notices
    assert "recipe.yaml was changed after step-00000006 was written" in notice
    assert "model.heads is 4 there and 2 in the checkpoint" in notice


def test_a_larger_budget_in_the_recipe_gives_no_notice_when_the_run_is_loaded(run: Path) -> None:
    text = (run / "recipe.yaml").read_text(encoding="utf-8")
    assert "steps: 6" in text
    (run / "recipe.yaml").write_text(text.replace("steps: 6", "steps: 12"), encoding="utf-8")
    assert load_run(run).notices == ()


@pytest.mark.parametrize("family", ["transformer", "bert"])
def test_a_task_whose_inputs_were_built_differently_is_refused(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    settings = {
        "from": "scratch", "data.train": "builtin:microworld-sentiment?size=20", "data.held_out": 0.2, "train.steps": 1,
        "model": {"family": family, "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 16},
        "tokenizer.vocab_size": 200, "train.batch_samples": 4,
    }  # fmt: skip
    run = api.finetune("classification", settings, out=tmp_path / "run", console=Console(quiet=True)).run
    load_run(run)
    recipe = run / "recipe.yaml"
    text, number = recipe.read_text(encoding="utf-8"), f"{FORMAT_KEY}: {RECIPE_FORMAT}\n"
    assert number in text
    recipe.write_text(text.replace(number, ""), encoding="utf-8")  # as format 1 had
    if family == "transformer":
        with pytest.raises(MeristemError, match=r"was fine-tuned by an earlier version, .* fine-tune it again"):
            load_run(run)
    else:
        load_run(run)
