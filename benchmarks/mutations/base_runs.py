"""Small base runs of several kinds: each finished, and stopped two steps before its end."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from meristem import api
from meristem.training import budget
from meristem.training.run_result import RunResult

QUIET = Console(quiet=True)
STEPS = 6
STOPPED_AT = 4
TEXT = "builtin:microworld-en?size=30"
PAIRS = "builtin:microworld-pairs?size=40"
SMALL = {"layers": 1, "hidden_size": 16, "heads": 2, "max_length": 24}
TRAIN = {"steps": STEPS, "save_every": 2, "evaluate_every": 2, "threads": 1, "keep_checkpoints": 2,
         "dataloader_workers": 0}  # fmt: skip
PRETRAINED: dict[str, dict[str, Any]] = {
    "transformer_xl": {"model": {"family": "transformer_xl", **SMALL, "layers": 2, "memory_length": 8},
    "objective": "clm",
                       "tokenizer": {"kind": "bpe", "vocab_size": 300}, "train": {"optimizer": "muon"}},
    "bert": {"model": {"family": "bert", **SMALL}, "objective": ["mlm", "nsp"],
             "tokenizer": {"kind": "wordpiece", "vocab_size": 120}},
    "electra": {"model": {"family": "electra", **SMALL, "embedding_size": 8}, "objective": "rtd",
                "tokenizer": {"kind": "wordpiece", "vocab_size": 120}},
    "xlnet": {"model": {"family": "xlnet", **SMALL, "memory_length": 8}, "objective": "plm",
              "tokenizer": {"kind": "unigram", "vocab_size": 120}},
    "rnn": {"model": {"family": "rnn", "layers": 1, "hidden_size": 16, "max_length": 24}, "objective": "seq2seq",
            "tokenizer": {"kind": "words", "vocab_size": 120}, "corpus": {"source": PAIRS}},
    "gpt2": {"model": {"family": "gpt2", **SMALL}, "objective": "clm", "tokenizer": {"kind": "bpe", "vocab_size": 300}},
}  # fmt: skip
TUNED: dict[str, dict[str, Any]] = {
    "tagger": {"from": "bert", "task": {"name": "tagging", "crf": True}, "data": "entities"},
    "lora": {"from": "bert", "lora": {"rank": 2}, "task": {"name": "classification"}, "data": "sentiment"},
    "reward": {
        "from": "gpt2", "data": "sentiment", "rewards": [{"name": "length", "target": 6}, {"name": "repetition"}],
        "policy": {"prompt_words": 4, "num_generations": 2, "max_new_tokens": 6, "eval_prompts": 4,
        "kl": {"target": 8}},
    },
}  # fmt: skip
KINDS = (*PRETRAINED, *TUNED)


@dataclass(frozen=True, kw_only=True)
class BaseRun:
    """An unmutated run."""

    kind: str
    finished: Path
    """The finished run."""
    stopped: Path
    """The same run, stopped at step `STOPPED_AT`."""
    final_weights: str
    """A hash of the final weights of the stopped run after resuming."""


def train_base_runs(folder: Path, kinds: tuple[str, ...] = KINDS) -> dict[str, BaseRun]:
    """Train these kinds, and those they start from."""
    budget.PEAK_SIZE = 64  # measure the machine's peak on small matrices: no trial depends on it
    for kind in kinds:
        train_kind(kind, folder)
    return {kind: _base_run(kind, folder) for kind in kinds}


def train_kind(kind: str, folder: Path) -> None:
    """Train one run unless it exists."""
    if (folder / kind).is_dir():
        return
    if (start := TUNED.get(kind, {}).get("from")) is not None:
        train_kind(start, folder)
    recipe = folder / f"{kind}.yaml"
    recipe.write_text(yaml.safe_dump(_recipe(kind, folder)), encoding="utf-8")
    training_function(kind)(recipe, out=folder / kind, console=QUIET)


def training_function(kind: str) -> Callable[..., RunResult]:
    """The function that trains and resumes a run of this kind."""
    if kind in PRETRAINED:
        return api.pretrain
    return api.finetune if "task" in TUNED[kind] else api.reinforce


def _recipe(kind: str, folder: Path) -> dict[str, Any]:
    if kind in PRETRAINED:
        parts = PRETRAINED[kind]
        corpus = {"source": TEXT, "processes": 1, "validation": 0.1, "test": 0.1, **parts.get("corpus", {})}
        return {
            **parts,
            "corpus": corpus,
            "train": {**TRAIN, "batch_tokens": 96, "evaluate_tokens": 96, **parts.get("train", {})},
        }
    parts = dict(TUNED[kind])
    name, lora = parts.pop("data"), parts.pop("lora", None)
    sizes = {"train": (16, 1), "validation": (4, 2), "test": (4, 3)}
    data = {split: f"builtin:microworld-{name}?size={n}&seed={seed}" for split, (n, seed) in sizes.items()}
    start = {"path": str(folder / parts.pop("from")), **({"lora": lora} if lora else {})}
    return {**parts, "from": start, "data": data, "train": {**TRAIN, "batch_samples": 4}}


def _base_run(kind: str, folder: Path) -> BaseRun:
    """Stop a run two steps early, and check that it resumes to the same weights."""
    finished, stopped, check = folder / kind, folder / f"{kind}-stopped", folder / f"{kind}-resumed"
    shutil.copytree(finished, stopped)
    shutil.rmtree(stopped / "checkpoints" / f"step-{STEPS:08}")
    (stopped / "checkpoints" / "latest").write_text(f"step-{STOPPED_AT:08}")
    (stopped / "checkpoints" / "best").unlink(missing_ok=True)
    (stopped / "finished.json").unlink()
    weights = final_weights(finished)
    shutil.copytree(stopped, check)
    training_function(kind)(check / "recipe.yaml", out=check, console=QUIET)
    if final_weights(check) != weights:
        raise RuntimeError(f"{kind}: a run that nobody changed does not resume to the same weights")
    shutil.rmtree(check)
    return BaseRun(kind=kind, finished=finished, stopped=stopped, final_weights=weights)


def final_weights(run: Path) -> str:
    """A hash of the weights after the last step; "" if there is no such checkpoint."""
    path = run / "checkpoints" / f"step-{STEPS:08}" / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
