"""Kinds of runs to interrupt: recipes of about a second, and the runs that some start from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from meristem import samples

STEPS = 12
SMALL = {"layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32, "dropout": 0.1}
TEXT = "builtin:microworld-en?size=40"
CHINESE = "builtin:microworld-zh?size=40"
PAIRS = "builtin:microworld-pairs?size=60"
PICTURES = "builtin:microworld-pictures?size=40"
BERT = {"family": "bert", **SMALL}
GPT2 = {"family": "gpt2", **SMALL}
TRANSFORMER = {"family": "transformer", **SMALL}
ELMO = {
    "family": "elmo", "layers": 1, "hidden_size": 16, "cell_size": 32, "max_length": 32, "char_embedding_size": 8,
    "char_filters": [[1, 8], [2, 8]], "highway_layers": 1,
}  # fmt: skip
MULTITASK = {"family": "multitask", **SMALL, "patch_size": 8}

PRETRAINING: dict[str, dict[str, Any]] = {
    "clm": {"model": GPT2, "objective": ["clm"]},
    "mlm + nsp": {"model": BERT, "objective": ["mlm", "nsp"], "train": {"optimizer": "muon"}},
    "rtd": {"model": {"family": "electra", **SMALL}, "objective": ["rtd"]},
    "plm": {"model": {"family": "xlnet", **SMALL, "memory_length": 16}, "objective": ["plm"]},
    "bilm": {"model": ELMO, "objective": ["bilm"], "tokenizer": {"kind": "words", "vocab_size": 300}},
    "seq2seq": {"model": TRANSFORMER, "objective": ["seq2seq"], "corpus": {"source": PAIRS}},
    "seq2seq, recurrent": {
        "model": {"family": "rnn", "layers": 1, "hidden_size": 32, "max_length": 32},
        "objective": ["seq2seq"],
        "corpus": {"source": PAIRS},
    },
    "denoising": {"model": TRANSFORMER, "objective": ["denoising"]},
    "caption": {"model": {"family": "captioner", **SMALL}, "objective": ["caption"], "corpus": {"source": PICTURES}},
    "clm with memory": {"model": {"family": "transformer_xl", **SMALL, "memory_length": 16}, "objective": ["clm"]},
    "mixed objectives": {
        "model": {"family": "modern", **SMALL, "ffn_size": 64},
        "mix": [{"weight": 2, "objective": "clm"}, {"weight": 1, "objective": "mlm"}],
    },
    "mixture of sources": {
        "model": GPT2,
        "mix": [
            {"name": "english", "weight": 2, "objective": "clm", "corpus": TEXT},
            {"name": "chinese", "weight": 1, "objective": "clm", "corpus": CHINESE},
            {"name": "pairs", "weight": 1, "objective": "clm", "corpus": "builtin:microworld-en?size=40&seed=5"},
        ],
    },
    "multitask": {
        "model": MULTITASK,
        "tokenizer": {"kind": "bpe", "vocab_size": 300, "sentinels": 10},
        "mix": [
            {"weight": 1, "objective": ["mlm", "nsp"]},
            {"weight": 1, "objective": "clm"},
            {"weight": 1, "objective": "denoising"},
            {"weight": 1, "objective": "caption", "corpus": PICTURES},
        ],
    },
    "single-task baselines": {
        "model": GPT2,
        "mix": [
            {"name": "english", "objective": "clm", "corpus": TEXT},
            {"name": "chinese", "objective": "clm", "corpus": CHINESE},
        ],
        "train": {"single_task_baselines": True},
    },
    "bfloat16": {"model": GPT2, "objective": ["clm"], "train": {"precision": "bfloat16"}},
    "accumulated gradients": {
        "model": GPT2,
        "objective": ["clm"],
        "train": {"micro_batch_tokens": 64, "max_grad_norm": 0.5},
    },
    "sharded weights": {"model": {**GPT2, "layers": 2}, "objective": ["clm"], "train": {"fsdp": True}},
    "pretraining from a run": {
        "model": BERT,
        "objective": ["mlm"],
        "from": {"path": "{bert}", "embeddings_only_steps": 4},
    },
    "pretraining from an import": {"model": BERT, "objective": ["mlm"], "from": "{imported}"},
}
TASKS: dict[str, dict[str, Any]] = {
    "classification": {"task": "classification", "data": "sentiment", "model": BERT, "train": {"patience": 1}},
    "pair": {"task": "pair", "data": "entailment", "model": BERT},
    "tagging with a CRF": {"task": {"name": "tagging", "crf": True}, "data": "entities", "model": BERT},
    "span": {"task": {"name": "span", "stride": 16}, "data": "questions", "model": BERT},
    "choice": {"task": {"name": "choice", "lm_weight": 0.5}, "data": "choices", "model": {**GPT2, "max_length": 64}},
    "translation": {"task": {"name": "translation", "max_tokens": 8}, "data": "pairs", "model": TRANSFORMER},
    "summary": {"task": {"name": "summary", "max_tokens": 8}, "data": "summaries", "model": TRANSFORMER},
    "dialogue": {
        "task": {"name": "dialogue", "max_tokens": 8},
        "data": "dialogues",
        "model": {**GPT2, "max_length": 96},
    },
    "commands": {"task": "commands", "data": "commands", "model": BERT},
    "caption task": {
        "task": {"name": "caption", "max_tokens": 8},
        "data": "pictures",
        "model": {"family": "captioner", **SMALL},
    },
    "probe": {"task": "probe", "data": "pos", "from": "{bert}", "model": BERT},
    "LoRA": {"task": "classification", "data": "sentiment", "from": {"path": "{bert}", "lora": {"rank": 2}}},
    "unfreezing by layers": {
        "task": "classification",
        "data": "sentiment",
        "from": {"path": "{bert}", "unfreeze_every": 3},
    },
    "task from an import": {"task": "classification", "data": "sentiment", "from": "{imported}"},
    "grid": {
        "task": "classification",
        "data": "sentiment",
        "from": "{bert}",
        "grid": {"learning_rate": [1e-3, 1e-2], "seeds": 1},
        "train": {"steps": 6},
    },
}
CORPORA = {"pairs", "pictures"}
"""Built-in data sets that tasks read directly."""
SPLITS = {"train": "size=40&seed=1", "validation": "size=12&seed=2", "test": "size=12&seed=3"}
PROMPTS = {
    "train": "builtin:microworld-queries?size=12&seed=4", "text": "query", "target": "text", "held_out": 0.25,
}  # fmt: skip
REWARDS: dict[str, dict[str, Any]] = {
    "reward: grammar": {
        "data": {"train": "builtin:microworld-sentiment?size=12&seed=4", "text": "text", "held_out": 0.25},
        "rewards": [
            {
                "name": "grammar",
                "run": "{gpt2}",
                "reference_corpus": TEXT,
                "reference_sentences": 32,
                "sentences_per_prompt": 8,
            },
            {"name": "repetition", "weight": 0.5},
            {"name": "length", "target": 6},
        ],
        "policy": {"prompt_words": 3, "num_generations": 3, "max_new_tokens": 6, "eval_prompts": 3},
    },
    "reward: clicks with history": {
        "data": PROMPTS,
        "rewards": [
            {
                "name": "clicks",
                "table": "builtin:microworld-clicks?size=120&seed=7",
                "top_k": 2,
                "compare_with": "both",
                "click_model": {"prior_precisions": [3.0], "folds": 3},
            }
        ],
        "policy": {"num_generations": 3, "max_new_tokens": 6, "eval_prompts": 3},
    },
}
KINDS = {**PRETRAINING, **TASKS, **REWARDS}
ONLY_ALONE, ONLY_TOGETHER = ("grid", "single-task baselines"), ("sharded weights",)
"""Kinds for a single process only, and kinds that need several."""


@dataclass(frozen=True)
class Case:
    """A kind of run and its number of processes."""

    kind: str
    processes: int

    @property
    def name(self) -> str:
        """The name in lines and tables."""
        return self.kind if self.processes == 1 else f"{self.kind}, {self.processes} processes"


def cases() -> list[Case]:
    """Every kind with one and two processes, where possible."""
    two_process_cases = [Case(kind, 2) for kind in KINDS if kind not in ONLY_ALONE]
    return [Case(kind, 1) for kind in KINDS if kind not in ONLY_TOGETHER] + two_process_cases


def write_recipe(kind: str, file: Path, starts: Mapping[str, Path]) -> list[str]:
    """The recipe of a kind as a file, and the command that trains it."""
    plain = _filled({"tokenizer": {"kind": "bpe", "vocab_size": 300}, **KINDS[kind]}, starts)
    train = {"steps": STEPS, "save_every": 3, "log_every": 1, "threads": 1}
    if kind in PRETRAINING:
        verb = "pretrain"
        train |= {"batch_tokens": 160, "evaluate_every": 4, "evaluate_tokens": 256}
        plain["corpus"] = {"source": TEXT, "processes": 1, "validation": 0.1, "test": 0.1, **plain.get("corpus", {})}
    elif kind in TASKS:
        verb = "finetune"
        train |= {"evaluate_every": 6, "batch_samples": 6}
        if (name := plain["data"]) in CORPORA:
            plain["data"] = {split: f"builtin:microworld-{name}?{options}" for split, options in SPLITS.items()}
        else:
            plain["data"] = {split: str(_data_file(starts["data"], name, split)) for split in SPLITS}
    else:
        verb = "reinforce"
        plain["from"] = str(starts["gpt2"])
        del plain["tokenizer"]
        train = {
            "steps": 6, "batch_samples": 4, "learning_rate": 1e-2, "schedule": "constant", "warmup": 0.0,
            "log_every": 1,
            "evaluate_every": 3, "save_every": 2, "threads": 1,
        }  # fmt: skip
    plain["train"] = {**train, **plain.get("train", {})}
    file.write_text(yaml.safe_dump(plain, sort_keys=False), encoding="utf-8")
    return [verb, str(file)]


def write_data(folder: Path) -> None:
    """Write the labelled data of all tasks as files: generating built-in data takes longer than training on them."""
    folder.mkdir()
    for name in {str(kind["data"]) for kind in TASKS.values()} - CORPORA:
        for split, options in SPLITS.items():
            rows = samples.labelled_rows(f"microworld-{name}?{options}")
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            _data_file(folder, name, split).write_text(text, encoding="utf-8")


def _data_file(folder: Path, name: str, split: str) -> Path:
    return folder / f"{name}-{split}.jsonl"


def start_commands(folder: Path) -> dict[str, list[str]]:
    """The runs that others start from, in order: name → command without `--out`."""
    commands = {}
    for name, kind in (("bert", "mlm + nsp"), ("gpt2", "clm")):
        commands[name] = [*write_recipe(kind, folder / f"{name}.yaml", {}), "--out", str(folder / name)]
    commands["imported"] = ["export", str(folder / "bert"), str(folder / "imported")]
    return commands


def _filled(value: Any, starts: Mapping[str, Path]) -> Any:
    """A recipe with the paths of the runs it names filled in."""
    if isinstance(value, Mapping):
        return {key: _filled(inner, starts) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, starts) for inner in value]
    if isinstance(value, str) and value.startswith("{"):
        return str(starts[value.strip("{}")])
    return value
