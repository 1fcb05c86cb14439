"""Malformed and malicious artifacts at every entry point: refused by name, quickly, and nothing in them is executed.

`pytest -s tests/hostile/test_artifacts.py` prints message, time and memory of each trial.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hostile.artifact_files import BOMB, Artifact, Good
from hostile.artifacts import ARTIFACTS, ENTRY_POINTS, TRIALS
from hostile.entry_points import QUIET
from hostile.sandboxed_trial import MEMORY, PLANTED, TrialResult, run_sandboxed
from PIL import Image

from meristem import api
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.registry import ComponentKind
from meristem.training import budget

SECONDS = 1.0
RECIPE = """\
model: {family: bert, hidden_size: 16, heads: 2, layers: 1, ffn_size: 32, max_length: 16}
objective: mlm
tokenizer: {vocab_size: 64}
corpus: {source: TEXT, processes: 1}
train: {steps: 2, batch_tokens: 64, dataloader_workers: 0, save_every: 2, evaluate_every: 2, evaluate_tokens: 64,
        threads: 1}
"""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LINES: list[str] = []


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Good]:
    """A run, a folder of published weights and a store, each opened once: what they import is then in memory."""
    folder = tmp_path_factory.mktemp("good")
    text = folder / "text.txt"
    text.write_text("\n".join(f"a line of words, number {number}, and then another." for number in range(400)))
    os.environ["HOSTILE_TEXT"], os.environ["HOSTILE_RECIPE"] = str(text), str(folder / "small.yaml")
    (folder / "small.yaml").write_text(RECIPE.replace("TEXT", str(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)  # the machine's speed is nobody's question here
        yield _made(folder)
    print(f"\n{'artifact':64} {'entry point':22} {'s':>6} {'MiB':>6}  message", *LINES, sep="\n")


def _made(folder: Path) -> Good:
    run = api.pretrain(folder / "small.yaml", out=folder / "run", console=QUIET).run
    published = folder / "published"
    api.export(run, published)
    (published / "tokenizer.json").unlink()
    (published / "tokenizer_config.json").unlink()
    words = [*SPECIAL, *(f"w{number}" for number in range(api.load(run).tokenizer.vocab_size - len(SPECIAL)))]
    (published / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (key,) = RunFolder.open(run).shard_keys().values()
    shutil.copytree(Path(os.environ["MERISTEM_CACHE"]) / "stores" / key, folder / "store")
    good = Good(run=run, published=published, store=folder / "store")
    _warm(good, folder)
    return good


def _warm(good: Good, folder: Path) -> None:
    for kind in ("FAMILY", "OBJECTIVE", "TASK", "SAMPLE_TYPE", "MODEL_TYPE"):
        for name in ComponentKind[kind].names():
            ComponentKind[kind].load(name)
    for library in ("h5py", "pyarrow.parquet", "zstandard"):  # which look around when they are imported
        importlib.import_module(library)
    Image.init()
    (folder / "p.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}\n')
    (folder / "v.txt").write_text("word 1.0 2.0\n")
    (folder / "t.csv").write_text("text,label\na,b\nc,d\n")
    Image.new("RGB", (8, 8)).save(folder / "p.png")
    recipe = folder / "small.yaml"
    for number, (entry_point, path) in enumerate({
        "load_run": good.run, "fill_with_run": good.run, "resume_run": good.run, "begin_from_run": good.run,
        "import_published": good.published, "begin_from_published": good.published, "open_store": good.store,
        "load_tokenizer": good.published, "read_recipe": recipe, "describe_recipe": recipe,
        "read_corpus": folder / "text.txt", "look_at_picture": folder / "p.png", "read_word_vectors": folder / "v.txt",
        "read_minimal_pairs": folder / "p.jsonl", "read_labelled_text": folder / "t.csv",
    }.items()):  # fmt: skip
        out = folder / f"out-{number}"
        out.mkdir()
        ENTRY_POINTS[entry_point](path, out)


def _line(artifact: Artifact, entry_point: str, trial_result: TrialResult) -> str:
    message = " ".join(trial_result.message.split())
    numbers = f"{trial_result.seconds:6.2f} {trial_result.memory:6.1f}"
    return f"{artifact.name[:64]:64} {entry_point:22} {numbers}  {trial_result.outcome}: {message[:150]}"


@pytest.mark.parametrize(
    ("artifact", "entry_point"), TRIALS, ids=[f"{artifact.name}-{entry_point}" for artifact, entry_point in TRIALS]
)
def test_it_is_refused(artifact: Artifact, entry_point: str, good: Good, tmp_path: Path) -> None:
    inside, out = tmp_path / "inside", tmp_path / "out"
    inside.mkdir()
    out.mkdir()
    artifact_path = artifact.make(inside, good)
    trial_result = run_sandboxed(
        ENTRY_POINTS[entry_point], artifact_path, artifact_path if artifact_path.is_dir() else inside, out
    )
    LINES.append(_line(artifact, entry_point, trial_result))
    shutil.rmtree(inside, ignore_errors=True)
    assert trial_result.outcome == artifact.outcome, LINES[-1]
    assert artifact.message in trial_result.message, LINES[-1]
    assert not trial_result.ran, (LINES[-1], trial_result.ran)
    assert trial_result.seconds < SECONDS, LINES[-1]
    assert trial_result.memory < MEMORY >> 20, LINES[-1]
    assert not list(tmp_path.rglob(PLANTED))


def test_there_are_enough_of_them() -> None:
    assert len({artifact.name for artifact in ARTIFACTS}) == len(ARTIFACTS) > 80
    assert {entry_point for artifact in ARTIFACTS for entry_point in artifact.entry_points} == set(ENTRY_POINTS)


def test_a_bomb_is_noticed(tmp_path: Path) -> None:
    def careless(path: Path, out: Path) -> str:
        return str(pickle.loads(path.read_bytes()))

    (tmp_path / "bomb").write_bytes(BOMB)
    trial_result = run_sandboxed(careless, tmp_path / "bomb", tmp_path, tmp_path)
    assert any("pickle.find_class" in event for event in trial_result.ran) and any(
        "os.system" in event for event in trial_result.ran
    )


@pytest.mark.parametrize(("line", "event"), [
    ("exec(path.read_text())", "compile"),
    ("import planted", "import"),
    ("open(str(path.parent.parent / 'elsewhere'), 'w').close()", "open for writing"),
])  # fmt: skip
def test_what_must_not_happen_is_noticed(line: str, event: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "planted.py").write_text("x = 12345")

    def careless(path: Path, out: Path) -> str:
        exec(line, {"path": path})
        return "done"

    trial_result = run_sandboxed(careless, inside / "planted.py", inside, inside)
    assert any(audit_event.startswith(event) for audit_event in trial_result.ran), trial_result


def test_too_much_memory_and_too_much_time_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    greedy = run_sandboxed(lambda path, out: str(len(torch.ones(MEMORY))), tmp_path / "x", tmp_path, tmp_path)
    assert greedy.outcome.startswith("died of")

    def compute(path: Path, out: Path) -> str:
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        return "done"

    slow = run_sandboxed(compute, tmp_path / "x", tmp_path, tmp_path)
    assert slow.outcome == "passed over" and slow.seconds > 0.1


def test_whoever_begins_from_a_run_hears_what_is_wrong_with_it(good: Good, tmp_path: Path) -> None:
    shutil.copytree(good.run, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "latest").write_text("../../..")
    assert "`latest` names no checkpoint" in ENTRY_POINTS["begin_from_run"](tmp_path / "run", tmp_path)
