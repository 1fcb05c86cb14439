"""What each family can be asked, tried on tiny trained runs; `python tests/capabilities.py` writes docs/families.md.

A cell is what really happened: the call gave an answer, or it was refused with a message for people. Every refusal has
a reason that follows from the model's definition; a refusal without one is an error.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from tiny_runs import FAMILIES, tiny_loaded, tiny_run

import meristem
from meristem.config.errors import MeristemError
from meristem.config.recipe import builtin_task_recipes, parse_recipe_file
from meristem.serving.model_registry import ServedRun
from meristem.training import budget

PAGE = Path(__file__).parent.parent / "docs" / "families.md"
BEGIN, END = "<!-- written by tests/capabilities.py -->", "<!-- end -->"
TEXT, MASKED, PROMPT = "Ada walked to the old harbour.", "Ada walked to the [MASK] harbour.", "Ada walked to"
PICTURE = (np.arange(16 * 16 * 3).reshape(16, 16, 3) % 251).astype(np.uint8)
QUIET = Console(quiet=True)
YES, NO = "yes", "–"

REASONS = {
    "gap": "the model is causal and does not see the text after a mask",
    "source": "the model learned p(target | source); it gives no probability to a text without a source",
    "picture": "the encoder reads images only and cannot encode text",
    "recurrent": "the layers are recurrent, without attention",
    "right": "a policy gradient needs completions sampled left to right from the trained head",
    "class": "transformers has no class with this architecture; `--onnx` exports it for onnxruntime",
    "detection": "only replaced token detection (ELECTRA's objective) trains a head that classifies every token",
    "decoder": "the model is an encoder and has no decoder to generate a target",
    "image": "the encoder reads text only",
    "layers": "the fused recurrent encoder returns the states of its last layer only",
    "scan": "ONNX has no operator for a selective scan",
    "loop": "ONNX has no operator for projected and clipped LSTM cells or for attention inside a recurrent step",
}
"""Why a cell is empty, in words that follow from the papers."""
WHY: dict[str, dict[str, str]] = {
    "fill": {
        **dict.fromkeys(("gpt-mini", "gpt2-mini", "mamba-mini", "modern-mini", "transformer-xl-mini"), "gap"),
        **dict.fromkeys(("captioner-mini", "rnn-mini", "transformer-mini"), "source"),
    },
    "detect": {name: "detection" for name in FAMILIES if name != "electra-mini"},
    "embed": {"captioner-mini": "picture"},
    "attention": dict.fromkeys(("elmo-mini", "mamba-mini"), "recurrent"),
    "reinforce": dict.fromkeys(
        ("bert-mini", "modernbert-mini", "roberta-mini", "electra-mini", "elmo-mini", "xlnet-mini"), "right"
    ),
    "ONNX": {**dict.fromkeys(("elmo-mini", "rnn-mini"), "loop"), "mamba-mini": "scan"},
    "export": dict.fromkeys(
        ("captioner-mini", "multitask-mini", "rnn-mini", "transformer-mini", "transformer-xl-mini"), "class"
    ),
}
"""By column and family, which reason an empty cell has."""
WRITING, READING = ("translation", "summary", "dialogue"), (
    "classification", "pair", "tagging", "span", "choice", "commands", "probe",
)  # fmt: skip
ENCODERS = ("bert-mini", "modernbert-mini", "roberta-mini", "electra-mini", "elmo-mini", "xlnet-mini")
for _task in WRITING:
    WHY[_task] = {**dict.fromkeys(ENCODERS, "decoder"), "captioner-mini": "picture"}
for _task in READING:
    WHY[_task] = {"captioner-mini": "picture"}
WHY["probe"]["rnn-mini"] = "layers"
WHY["caption"] = {name: "image" for name in FAMILIES if name not in ("captioner-mini", "multitask-mini")}


def source(recipe: str) -> Any:
    """What a family that was trained on pairs writes from; a beginning for the others."""
    return PICTURE if recipe == "captioner-mini" else PROMPT


def conditional(recipe: str) -> bool:
    """Whether a family was trained on pairs alone, so that it is asked about a target given a source."""
    return recipe in ("captioner-mini", "rnn-mini", "transformer-mini")


def fill(recipe: str, out: Path) -> str:
    """The likeliest tokens of a mask."""
    tiny_loaded(recipe).fill(MASKED)
    return YES


def score(recipe: str, out: Path) -> str:
    """The log-probability of a text, or of a target given its source."""
    if conditional(recipe):
        tiny_loaded(recipe).score(source(recipe), TEXT)
        return "given a source"
    (text_score,) = tiny_loaded(recipe).score(TEXT)
    assert text_score.logprob < 0
    return YES


def generate(recipe: str, out: Path) -> str:
    """A few tokens."""
    tiny_loaded(recipe).generate(source(recipe), max_tokens=3)
    return "from a source" if conditional(recipe) else YES


def pairs(recipe: str, out: Path) -> str:
    """A minimal pair."""
    row: dict[str, str] = {"sentence_good": "Ada walked.", "sentence_bad": "Walked Ada the."}
    if recipe == "captioner-mini":
        Image.fromarray(PICTURE).save(out / "one.png")
        row["image"] = "one.png"
    elif conditional(recipe):
        row["source"] = TEXT
    (out / "pairs.jsonl").write_text(json.dumps(row), encoding="utf-8")
    tiny_loaded(recipe).evaluate(pairs=str(out / "pairs.jsonl"))
    return "with sources" if conditional(recipe) else YES


def detect(recipe: str, out: Path) -> str:
    """Which tokens look replaced."""
    tiny_loaded(recipe).detect(TEXT)
    return YES


def embed(recipe: str, out: Path) -> str:
    """A vector."""
    assert tiny_loaded(recipe).embed([TEXT]).isfinite().all()
    return YES


def attention(recipe: str, out: Path) -> str:
    """Attention weights, of a text or a picture."""
    attention_input: dict[str, Any] = {"picture": PICTURE} if recipe == "captioner-mini" else {"text": TEXT}
    assert tiny_loaded(recipe).look(**attention_input).kinds
    return YES


def reinforce(recipe: str, out: Path) -> str:
    """One step of a policy gradient."""
    (out / "prompts.txt").write_text("Ada walked\nThe old harbour\nDiego sold\n" * 4, encoding="utf-8")
    prompts = "builtin:microworld-pictures?size=12" if recipe == "captioner-mini" else str(out / "prompts.txt")
    rewards = "policy: {max_new_tokens: 4, num_generations: 2, eval_prompts: 4}\nrewards: [{name: length, target: 3}]\n"
    (out / "length.yaml").write_text(rewards, encoding="utf-8")
    settings = [f"from={tiny_run(recipe)}", f"data.train={prompts}", "train.steps=1", "train.batch_samples=2"]
    meristem.reinforce(out / "length.yaml", settings, out=out / "run", console=QUIET)
    return YES


def export(recipe: str, out: Path) -> str:
    """The class that opens the exported folder."""
    meristem.export(tiny_run(recipe), out / "exported")
    if (out / "exported" / "options.json").is_file():
        return "AllenNLP's files"
    (name,) = json.loads((out / "exported" / "config.json").read_text())["architectures"]
    return f"`{name}`"


def onnx(recipe: str, out: Path) -> str:
    """Graphs for onnxruntime."""
    meristem.export(tiny_run(recipe), out / "graphs", onnx=True)
    return YES


def serve(recipe: str, out: Path) -> str:
    """How many routes answer for it."""
    routes = ServedRun(recipe, tiny_loaded(recipe).loaded_run).routes
    if not routes:
        raise MeristemError("no route answers for it")
    return f"{len(routes)} routes"


def finetune(task: str) -> Callable[[str, Path], str]:
    """One step of a task from a tiny run, on built-in data."""

    def learn(recipe: str, out: Path) -> str:
        recipe_data = parse_recipe_file(builtin_task_recipes()[task])["data"]
        data_overrides = [
            f"data.{split}={re.sub('size=[0-9]+', f'size={size}', recipe_data[split])}"
            for split, size in (("train", 16), ("validation", 6), ("test", 6))
            if split in recipe_data
        ]
        short = ["train.steps=1", "train.batch_samples=4", "train.evaluate_every=1"]
        meristem.finetune(task, [f"from={tiny_run(recipe)}", *short, *data_overrides], out=out / "run", console=QUIET)
        return YES

    return learn


Cell = Callable[[str, Path], str]
QUICK: dict[str, Cell] = {
    "fill": fill, "score": score, "generate": generate, "pairs": pairs, "detect": detect, "embed": embed,
    "attention": attention, "export": export, "serve": serve,
}  # fmt: skip
"""Columns that a test of every day tries."""
SLOW: dict[str, Cell] = {
    "reinforce": reinforce, "ONNX": onnx, **{task: finetune(task) for task in (*READING, *WRITING, "caption")},
}  # fmt: skip
VERBS = ("fill", "score", "generate", "pairs", "detect", "embed", "attention", "reinforce", "export", "ONNX", "serve")
TASKS = (*READING, *WRITING, "caption")


def tried(recipe: str, column: str) -> str:
    """What a cell says: the answer's kind, or the reason why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return {**QUICK, **SLOW}[column](recipe, Path(folder))
        except MeristemError as refusal:
            reason = WHY.get(column, {}).get(recipe)
            if reason is None:
                raise AssertionError(f"{column} of {recipe}: refused, and no reason is known: {refusal}") from refusal
            return f"{NO} {reason}"


def tables(cells: dict[tuple[str, str], str]) -> str:
    """Both tables and the reasons beneath them, as the page shows them."""
    used = list(dict.fromkeys(cell.removeprefix(f"{NO} ") for cell in cells.values() if cell.startswith(NO)))
    footnotes = {reason: number for number, reason in enumerate(used, 1)}

    def format_cell(cell: str) -> str:
        return f"{NO} ({footnotes[cell.removeprefix(f'{NO} ')]})" if cell.startswith(NO) else cell

    lines: list[str] = []
    for columns in (VERBS, TASKS):
        lines += [f"| recipe | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
        for recipe in FAMILIES:
            lines.append(f"| `{recipe}` | {' | '.join(format_cell(cells[recipe, column]) for column in columns)} |")
        lines.append("")
    lines += [f"({number}) {REASONS[reason]}.  " for reason, number in footnotes.items()]
    return "\n".join(lines)


def on_page() -> dict[tuple[str, str], str]:
    """The cells that the page shows now, reasons by their names."""
    text = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    sentences = {sentence: name for name, sentence in REASONS.items()}
    footnotes = {f"({n})": sentences[reason] for n, reason in re.findall(r"^\((\d+)\) (.*?)\.\s*$", text, re.M)}
    cells: dict[tuple[str, str], str] = {}
    columns: list[str] = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip("|").split(" | ")]
        if line.startswith("| recipe"):
            columns = [part.strip() for part in line.strip("| ").split("|")][1:]
        elif line.startswith("| `"):
            for column, cell in zip(columns, [part.strip() for part in line.strip("| ").split("|")][1:], strict=True):
                cells[parts[0].strip("`| "), column] = f"{NO} {footnotes[cell[2:]]}" if cell.startswith(NO) else cell
    return cells


def write() -> None:
    """Try every cell, and put the tables into the page."""
    budget.PEAK_SIZE = 64
    cells: dict[tuple[str, str], str] = {}
    for recipe in FAMILIES:
        for column in (*VERBS, *TASKS):
            cells[recipe, column] = tried(recipe, column)
            print(f"{recipe:20} {column:15} {cells[recipe, column]}", file=sys.stderr, flush=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{tables(cells)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write()
