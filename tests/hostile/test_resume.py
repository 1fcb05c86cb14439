"""Mutated run folders are resumed: refused in one sentence, or the very weights of the run that nobody touched."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.artifact_files import reseal
from hostile.entry_points import QUIET
from hostile.mutations import copied, mutate
from hostile.sandboxed_trial import run_sandboxed

from meristem import api
from meristem.config.errors import MeristemError
from meristem.training import budget

RECIPE = """\
model: {family: transformer_xl, hidden_size: 16, heads: 2, layers: 2, ffn_size: 32, max_length: 16, memory_length: 8}
objective: clm
tokenizer: {vocab_size: 64}
corpus: {source: TEXT, processes: 1}
train: {steps: 6, batch_tokens: 64, dataloader_workers: 0, save_every: 2, evaluate_every: 2, evaluate_tokens: 64,
        threads: 1,
        optimizer: muon, keep_checkpoints: 2}
"""
TRIALS = 60
DATA = 512 << 20


def final_weights(run: Path) -> str:
    """A hash of the weights a run ended with."""
    return hashlib.sha256((run / "checkpoints" / "step-00000006" / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A run with memory and two optimizers, stopped after four of six steps, and the weights it would end with."""
    folder = tmp_path_factory.mktemp("resumed")
    text = folder / "text.txt"
    text.write_text("\n\n".join(f"a line of words, number {number}, and then another." for number in range(300)))
    (folder / "small.yaml").write_text(RECIPE.replace("TEXT", str(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        yield interrupted(folder)


def interrupted(folder: Path) -> tuple[Path, str]:
    """Train to the end, then again until step 4, where the process is told to stop."""
    uninterrupted = api.pretrain(folder / "small.yaml", out=folder / "whole", console=QUIET).run
    half = copied(uninterrupted, folder / "half")
    shutil.rmtree(half / "checkpoints" / "step-00000006")
    (half / "checkpoints" / "latest").write_text("step-00000004")
    (half / "checkpoints" / "best").unlink(missing_ok=True)
    (half / "finished.json").unlink()
    assert final_weights(resumed(copied(half, folder / "check"))) == final_weights(uninterrupted)
    return half, final_weights(uninterrupted)


def resumed(run: Path) -> Path:
    """The run trained on as its own recipe says."""
    return api.pretrain(run / "recipe.yaml", out=run, console=QUIET).run


@pytest.mark.parametrize("number", range(TRIALS))
def test_a_mutated_run_is_refused_or_ends_the_same(number: int, stopped: tuple[Path, str], tmp_path: Path) -> None:
    half, expected = stopped
    run = copied(half, tmp_path / "run")
    mutation = mutate(run, number)

    def resume_entry(run_path: Path, out: Path) -> str:
        (out / "weights").write_text(final_weights(resumed(run_path)))
        return ""

    out = tmp_path / "out"
    out.mkdir()
    trial_result = run_sandboxed(resume_entry, run, run, out, memory=DATA)
    assert trial_result.outcome in ("refused", "taken"), (mutation, trial_result)
    assert not trial_result.ran, (mutation, trial_result)
    if trial_result.outcome == "taken":
        assert (out / "weights").read_text() == expected, mutation


@pytest.mark.parametrize("change", [{"stopped": "1epoch"}, {"total": 0}, {"total": 5}], ids=str)
def test_a_state_that_ends_the_run_early_is_refused(
    change: dict[str, object], stopped: tuple[Path, str], tmp_path: Path
) -> None:
    run = copied(stopped[0], tmp_path / "run")
    checkpoint = run / "checkpoints" / "step-00000004"
    state = json.loads((checkpoint / "state.json").read_text())
    (checkpoint / "state.json").write_text(json.dumps({**state, **change}))
    reseal(checkpoint)
    with pytest.raises(MeristemError, match=rf"^state.json: {next(iter(change))} .*: the file was changed"):
        resumed(run)


def test_a_tokenizer_that_was_changed_since_the_checkpoint_is_refused(
    stopped: tuple[Path, str], tmp_path: Path
) -> None:
    run = copied(stopped[0], tmp_path / "run")
    path = run / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))
    with pytest.raises(MeristemError, match=r"tokenizer.json was changed after its last checkpoint was written: copy "):
        resumed(run)
