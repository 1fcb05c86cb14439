"""The pretraining runs of the task benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.side_by_side import RESULTS
from meristem import api

FACTS = RESULTS / "tasks" / "before"


@dataclass(frozen=True)
class Before:
    """A pretraining run that rows start from."""

    recipe: str
    text: Callable[[Path, Path], Sequence[Path]]
    steps: int
    """At most about half an hour on two idle cores; the page states the actual time."""
    settings: tuple[str, ...] = ()
    after: str | None = None
    """The pretraining run that it continues from."""


def english(data: Path, work: Path) -> Sequence[Path]:
    """Novels and WikiText, about 30 MB."""
    return data / "english_novels" / "train.txt", data / "wikitext-2" / "train.txt"


def chinese(data: Path, work: Path) -> Sequence[Path]:
    """Weibo's sentences without their tags, and Tang poems, which are in traditional script."""
    plain = work / "weibo.txt"
    if not plain.is_file():
        lines = (data / "weibo_ner" / "weiboNER_2nd_conll.train").read_text(encoding="utf-8").split("\n\n")
        sentences = ("".join(line[0] for line in block.splitlines() if line) for block in lines)
        plain.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    return plain, data / "chinese_poetry" / "tang.txt"


def reviews(data: Path, work: Path) -> Sequence[Path]:
    """SST-2's training sentences, without their labels."""
    plain = work / "sst2.txt"
    if not plain.is_file():
        lines = (data / "sst2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
        plain.write_text("\n".join(line.split("\t")[0] for line in lines) + "\n", encoding="utf-8")
    return (plain,)


WHOLE = "objective={name: mlm, unit: word}"
LINES = "corpus.document=line"
DECAY = "train.weight_decay=0.1"  # without it, Muon's matrices grow
BEFORE = {
    "encoder": Before("bert-mini-prenorm", english, 1900, (WHOLE, "tokenizer.vocab_size=16384", DECAY, LINES)),
    "reviews": Before(
        "bert-mini-prenorm", reviews, 200, (WHOLE, DECAY, LINES, "train.learning_rate=1e-3"), after="encoder"
    ),
    "causal": Before("modern-mini", english, 1300, (LINES, "model.init_std=0.05")),
    "writer": Before("bart-mini-prenorm", english, 350, (LINES,)),
    "elmo": Before("elmo-mini", english, 600, (LINES,)),
    "chinese": Before("bert-mini-prenorm", chinese, 450, ("objective=mlm", "tokenizer.kind=characters", DECAY, LINES)),
}


def quickest() -> str:
    """bfloat16 on a CPU with hardware support, else float32."""
    capabilities = torch.cpu.get_capabilities()
    return "bfloat16" if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else "float32"


def pretrained(name: str, data: Path, work: Path) -> Path:
    """The run of that name, trained if it does not exist."""
    before, out = BEFORE[name], work / f"pretrained-{name}"
    text = json.dumps([str(path) for path in before.text(data, work)])
    overrides = {"corpus.source": text, "train.steps": before.steps, "train.precision": quickest()}
    settings = [*(f"{name}={value}" for name, value in overrides.items()), *before.settings]
    settings += [] if before.after is None else [f"from={pretrained(before.after, data, work)}"]
    if not (out / "finished.json").is_file():
        api.pretrain(before.recipe, settings, out=out, console=Console(stderr=True))
    facts = json.loads((out / "finished.json").read_text(encoding="utf-8"))
    run_facts = {"used": facts["used"], "loss": facts["test"]["loss"], "precision": overrides["train.precision"]}
    FACTS.mkdir(parents=True, exist_ok=True)
    (FACTS / f"{name}.json").write_text(json.dumps(run_facts, indent=1) + "\n")
    return out


def pretrainings() -> list[list[str]]:
    """Table rows: budget and test loss of each pretraining run."""
    rows = []
    for name, before in BEFORE.items():
        file = FACTS / f"{name}.json"
        if file.is_file():
            facts = json.loads(file.read_text(encoding="utf-8"))
            used, shown_settings = facts["used"], " ".join(setting for setting in before.settings if setting != LINES)
            rows.append([name, f"{before.recipe} {shown_settings}".strip(), f"{used['steps']:,}",
                         f"{used['tokens'] / 1e6:.1f} M", f"{used['minutes']:.0f}",
                         f"{facts['loss']:.3f}", facts["precision"]])  # fmt: skip
    return rows
