"""Headline generation rewarded by a click model, on Upworthy's A/B tests: a part of benchmarks/rewards.py.

Two fifths of the tests train the generator (lede → headline) and the click model of the reward, two other fifths train
a second click model, and the last fifth has the ledes to generate headlines for.
"""

from __future__ import annotations

import csv
import hashlib
import html
import json
import re
from pathlib import Path

from rich.console import Console

from meristem import api

FILE = "upworthy/exploratory_packages.csv"
COLUMNS = {"query": "test", "text": "headline", "shown": "impressions", "clicked": "clicks"}
WRITER = {"model.layers": 3, "model.hidden_size": 192, "model.heads": 4, "model.max_length": 128,
          "tokenizer.vocab_size": 4096,
          "task.max_tokens": 32, "train.epochs": 6, "data.validation": None, "data.test": None, "data.held_out": 0.05,
          "data.text": "prompt", "data.target": "headline"}  # fmt: skip
POLICY = {"policy.max_new_tokens": 32, "policy.kl.target": 8, "policy.min_distinct2_ratio": 0.4, "train.steps": 150,
          "train.learning_rate": 2e-4, "data.validation": None, "data.test": None, "data.held_out": 0.2,
          "data.text": "prompt",
          "data.target": "headline"}  # fmt: skip


def headlines(data: Path, work: Path, seed: int) -> dict[str, float]:
    """Expected click rate by both click models, before and after, and how often the second prefers the new headline."""
    folder = _cut(data, work / "headlines")
    overrides = {**WRITER, "data.train": str(folder / "writer.jsonl")}
    start = api.finetune("lines", overrides, out=work / "headline-writer", console=Console()).run
    glove = str(data / "glove/glove.6B.50d.top40k.txt")
    own_reward, other = (
        {"name": "clicks", "title": part, "table": str(folder / f"{part}.csv"), "columns": COLUMNS,
         "score_by": "margin",
         "unseen_query": "overall", "click_model": {"word_vectors": glove}}
        for part in ("own", "other")
    )  # fmt: skip
    settings = {
        **POLICY,
        "from": str(start),
        "train.seed": seed,
        "data.train": str(folder / "prompts.jsonl"),
        "rewards": [{**own_reward, "uncertainty_penalty": 1.0}, {"name": "repetition", "weight": 1.0}],
        "judge": [other],
    }
    run = api.reinforce("clicks-microworld", settings, out=work / f"headlines-{seed}", console=Console()).run
    report = json.loads((run / "report.json").read_bytes())
    numbers_by_name = {number["name"]: number for number in report["numbers"]}
    (judge,) = (judge for judge in report["judges"] if judge["independent"])
    wins, ties, losses = (judge["won"][name] for name in ("wins", "ties", "losses"))
    return {
        "own.start": numbers_by_name["reward: own"]["before"],
        "own.trained": numbers_by_name["reward: own"]["after"],
        "other.start": numbers_by_name["judge: other"]["before"],
        "other.trained": numbers_by_name["judge: other"]["after"],
        "other.win_rate": (wins + ties / 2) / (wins + ties + losses),
        "distinct2.start": numbers_by_name["distinct-2"]["before"],
        "distinct2.trained": numbers_by_name["distinct-2"]["after"],
        "kl": report["kl"],
    }


def _cut(data: Path, out: Path) -> Path:
    """The three parts as files; tests are assigned by a hash of their id."""
    if (out / "prompts.jsonl").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[list[str]]] = {"own": [], "other": []}
    pairs: dict[str, dict[tuple[str, str], None]] = {"writer": {}, "prompts": {}}
    with (data / FILE).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            test, headline, lede = row["clickability_test_id"], row["headline"].strip(), _plain(row["lede"])
            part = int(hashlib.sha256(test.encode()).hexdigest(), 16) % 5
            if part < 4:
                tables["own" if part < 2 else "other"].append([test, headline, row["impressions"], row["clicks"]])
            if part < 2 or part == 4:
                pairs["writer" if part < 2 else "prompts"][lede, headline] = None
    for name, rows in tables.items():
        with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["test", "headline", "impressions", "clicks"], *rows])
    for name, pair in pairs.items():
        lines = [json.dumps({"prompt": lede, "headline": text}) + "\n" for lede, text in pair if lede and text]
        (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return out


def _plain(lede: str) -> str:
    """The first sentences of a lede, without HTML tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", lede)).split())[:300]
