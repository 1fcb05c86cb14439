"""All about one run: its recipe, its card, what it said last, what it wrote, and what to type next."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.serving.studio.header import header
from meristem.serving.studio.measures import measure_of
from meristem.serving.studio.metrics_tail import metrics_tail, tail
from meristem.serving.studio.recipe_file import recipe_of
from meristem.serving.studio.runs import CARD, Found, facts_of, kind_of, report
from meristem.serving.studio.standing import Standing, finished_of, locks, standing
from meristem.shell_commands import shell_path
from meristem.training.card import command_words
from meristem.training.settings import BUDGETS

VERBS = {"objectives": "pretrain", "tasks": "finetune", "rewards": "reinforce"}
LINES = 60
PAIRS = 8
CARD_CHARACTERS, EXAMPLE_LINES = 200_001, 50
"""Of a card, one more than the page shows; lines of its first block in which an example is looked for."""
FLAGS = {"--prompt": "text", "--text-b": "text_b", "--question": "question", "--passage": "passage"}
"""Options of a command in a card → the parts of a sample."""


def details(found: Found) -> dict[str, Any]:
    """Everything the page shows of a run besides its curves."""
    run = Run(found.path)
    run.refuse_links()
    recipe = recipe_of(run)
    now, kind, card = standing(run, recipe, locks()), kind_of(recipe), text_of(found.path / CARD)[:CARD_CHARACTERS]
    return {
        "name": found.name,
        **kind,
        **asdict(now),
        **header(run, recipe, now),
        "measure": measure_of(kind["kind"], finished_of(run), metrics_tail(run.metrics_path)),
        "recipe": text_of(run.recipe_path),
        "card": card,
        "log": [line.rstrip() for line in tail(run.log_path)[-LINES:]],
        "finished": finished_of(run),
        "report": report(found),
        "samples": _written(facts_of(found)),
        "commands": commands(found.path, kind["kind"], recipe, now),
        "examples": examples(card),
    }


def text_of(path: Path, size: int = bounded.SMALL.size) -> str:
    """A file of text, unless it is a link or too large."""
    try:
        return "" if path.is_symlink() else bounded.content(path, size).decode("utf-8", "replace")
    except MeristemError:
        return ""


def commands(path: Path, kind: str, recipe: dict[str, Any], now: Standing) -> list[str]:
    """What goes on with a run: the same budget where it is not used up, else twice as much."""
    if now.state == "training":
        return []
    place = shell_path(path)
    again = f"meristem {VERBS[kind]} {shell_path(path / 'recipe.yaml')}"
    if now.state != "finished":
        return [f"{again} --out {place}"]
    train = recipe.get("train")
    told = train if isinstance(train, dict) else {}
    budget = next((name for name in BUDGETS if isinstance(told.get(name), int | float)), None)
    more = f"train.{budget}={told[budget] * 2:g}" if budget else "train.minutes=6"
    return [f"{again} {more} --out {place}", f"meristem evaluate {place}"]


def examples(card: str) -> dict[str, str]:
    """What the card shows a model can be asked: the parts of the first command that asks it something."""
    block = re.search(r"```bash\n(.*?)```", card, re.S)
    for line in block[1].splitlines()[:EXAMPLE_LINES] if block else ():
        words = command_words(line)
        if words[1:2] in (["fill"], ["generate"], ["predict"]) and len(words) > 3:
            return _parts(words[3:])
    return {}


def _parts(words: list[str]) -> dict[str, str]:
    """A text and whatever is named; each `--choices` is one more line."""
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            value = words.pop(0) if words else ""
            if word == "--choices":
                found["choices"] = f"{found['choices']}\n{value}" if "choices" in found else value
            elif word in FLAGS:
                found[FLAGS[word]] = value
        else:
            found.setdefault("text", word)
    return found


def _written(facts: dict[str, Any]) -> list[dict[str, str]]:
    """Texts before and after, from the report of a run that was trained by rewards."""
    pairs = facts.get("pairs")
    out = []
    for pair in pairs[:PAIRS] if isinstance(pairs, list) else ():
        if isinstance(pair, dict):
            sides = {side: pair.get(side) for side in ("before", "after")}
            texts = {side: str(one.get("text", "")) for side, one in sides.items() if isinstance(one, dict)}
            out.append({"prompt": str(pair.get("prompt", "")), **texts})
    return out
