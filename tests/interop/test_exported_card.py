"""The README.md of an exported folder: its commands work in that folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from cli_runner import Meristem
from transformers_models import run_card

import meristem as package

SMALL = ["model.layers=1", "model.hidden_size=32", "model.heads=2", "train.steps=2", "train.threads=1"]
TEXT = [
    "corpus.source=builtin:microworld-en?size=60",
    "model.max_length=48",
    "tokenizer.vocab_size=600",
    "train.batch_tokens=192",
]
PAIRS = ["data.train=builtin:microworld-entailment?size=40&seed=1",
         "model.norm_position=post", "model.position_encoding=learned", "tokenizer.vocab_size=600"]  # fmt: skip


@pytest.mark.parametrize(("recipe", "verb"), [("bert-mini", "fill"), ("bart-mini", "fill"), ("pair", "predict")])
def test_every_command_on_the_card_works(
    recipe: str, verb: str, meristem: Meristem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "my runs" / "first"
    if recipe == "pair":
        package.finetune(recipe, [*SMALL, *PAIRS], out=run)
    else:
        package.pretrain(recipe, [*SMALL, *TEXT], out=run)
    folder = tmp_path / "out"
    package.export(run, folder)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.count("## Use") == 0 and str(run) not in card
    (block,) = re.findall(r"```bash\n(.*?)```", card, re.DOTALL)
    commands = block.splitlines()
    assert commands[0].startswith("meristem import . --out ") and f"meristem {verb} " in commands[1]
    monkeypatch.chdir(folder)
    for command in commands:
        result = meristem(*shlex.split(command)[1:])
        assert result.code == 0, f"{command}\n{result.err}"
    assert result.out
    assert run_card(folder, monkeypatch)
