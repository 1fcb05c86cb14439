"""Details of one run: status, recipe, model card, log tail, report samples, and suggested commands."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.evaluation.prediction_requests import task_signatures
from meristem.serving.studio.metrics_tail import metrics_tail, read_tail
from meristem.serving.studio.recipe_file import read_run_recipe
from meristem.serving.studio.run_header import run_header
from meristem.serving.studio.run_list import MODEL_CARD, ListedFolder, read_report, report_summary, run_kind
from meristem.serving.studio.run_measures import run_measure
from meristem.serving.studio.run_status import RunStatus, finished_record, read_file_locks, run_status
from meristem.training.report.model_card import split_command
from meristem.training.settings import BUDGETS
from meristem.utils import untrusted_files
from meristem.utils.shell_quoting import shell_path

COMMANDS_BY_KIND = {"objectives": "pretrain", "tasks": "finetune", "rewards": "reinforce"}
LOG_LINES = 60
MAX_PAIRS = 8
MAX_CARD_CHARS, MAX_EXAMPLE_LINES = 200_001, 50
"""Characters of a model card (one more than the page shows), and lines of its first code block that are searched."""


def run_details(folder: ListedFolder) -> dict[str, Any]:
    """Everything that the page of a run shows besides its curves."""
    run = RunFolder(folder.path)
    run.refuse_links()
    recipe = read_run_recipe(run)
    status, kind = run_status(run, recipe, read_file_locks()), run_kind(recipe)
    card = read_text_file(folder.path / MODEL_CARD)[:MAX_CARD_CHARS]
    return {
        "name": folder.name,
        **kind,
        **asdict(status),
        **run_header(run, recipe, status),
        "measure": run_measure(kind["kind"], finished_record(run), metrics_tail(run.metrics_path)),
        "recipe": read_text_file(run.recipe_path),
        "card": card,
        "log": [line.rstrip() for line in read_tail(run.log_path)[-LOG_LINES:]],
        "finished": finished_record(run),
        "report": report_summary(folder),
        "samples": _sample_pairs(read_report(folder)),
        "commands": next_commands(folder.path, kind["kind"], recipe, status),
        "examples": card_example(card),
    }


def read_text_file(path: Path, max_bytes: int = untrusted_files.CONFIG_LIMITS.max_bytes) -> str:
    """The text of a file; empty if it is a link, too large or unreadable."""
    try:
        return "" if path.is_symlink() else untrusted_files.read_bytes(path, max_bytes).decode("utf-8", "replace")
    except MeristemError:
        return ""


def next_commands(path: Path, kind: str, recipe: dict[str, Any], status: RunStatus) -> list[str]:
    """Commands to resume a run or, if it is finished, to train it with twice the budget and to evaluate it."""
    if status.state == "training":
        return []
    quoted_path = shell_path(path)
    command = f"meristem {COMMANDS_BY_KIND[kind]} {shell_path(path / 'recipe.yaml')}"
    if status.state != "finished":
        return [f"{command} --out {quoted_path}"]
    train = recipe.get("train")
    train_settings = train if isinstance(train, dict) else {}
    budget = next((name for name in BUDGETS if isinstance(train_settings.get(name), int | float)), None)
    new_budget = f"train.{budget}={train_settings[budget] * 2:g}" if budget else "train.minutes=6"
    return [f"{command} {new_budget} --out {quoted_path}", f"meristem evaluate {quoted_path}"]


def card_example(card: str) -> dict[str, str]:
    """Input fields from the first example command (fill, generate or predict) in a model card."""
    block = re.search(r"```bash\n(.*?)```", card, re.S)
    for line in block[1].splitlines()[:MAX_EXAMPLE_LINES] if block else ():
        words = split_command(line)
        if words[1:2] in (["fill"], ["generate"], ["predict"]) and len(words) > 3:
            return _parse_options(words[3:])
    return {}


def _parse_options(words: list[str]) -> dict[str, str]:
    """The text and option values of a command by field; each further value of a field adds a line."""
    signatures = task_signatures().values()
    names = {field.option: field.request_name for signature in signatures for field in signature.served}
    names |= {"--prompt": "text", "--image": ""}  # a page cannot fill in files
    fields: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            value = words.pop(0) if words else ""
            if name := names.get(word):
                fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        else:
            fields.setdefault("text", word)
    return fields


def _sample_pairs(report_data: dict[str, Any]) -> list[dict[str, str]]:
    """Texts before and after training, from the report of a run trained with rewards."""
    pairs = report_data.get("pairs")
    samples = []
    for pair in pairs[:MAX_PAIRS] if isinstance(pairs, list) else ():
        if isinstance(pair, dict):
            sides = {side: pair.get(side) for side in ("before", "after")}
            texts = {side: str(entry.get("text", "")) for side, entry in sides.items() if isinstance(entry, dict)}
            samples.append({"prompt": str(pair.get("prompt", "")), **texts})
    return samples
