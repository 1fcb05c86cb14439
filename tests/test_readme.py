"""The READMEs' commands, run as they stand there, only smaller."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commanding import Meristem

from meristem.recipe import parse, shipped_tasks

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "README.zh.md")
SMALL = [
    "model.layers=1",
    "model.width=32",
    "model.heads=2",
    "model.length=32",
    "tokenizer.size=600",
    "train.batch_tokens=256",
    "train.steps=6",
    "train.evaluate_tokens=512",
    "corpus.limit=150",
]
SHORT = ["train.steps=3", "train.batch_samples=8", "train.evaluate_every=3"]
SHAPE = [word for word in SMALL if word.startswith(("model", "tokenizer")) and "length" not in word]
"""Tasks from scratch; a model that is begun from keeps its own."""
BLOCK = re.compile(r"```(bash|python)\n(.*?)```", re.DOTALL)


def blocks(readme: str, language: str) -> list[str]:
    """The code blocks of one language."""
    return [code for kind, code in BLOCK.findall((ROOT / readme).read_text(encoding="utf-8")) if kind == language]


def commands_of(readme: str) -> list[str]:
    """Its commands of ours, in their order."""
    return [line for block in blocks(readme, "bash") for line in block.splitlines() if line.startswith("meristem")]


def smaller(command: str) -> list[str]:
    """The command's words, with a smaller model where it trains or measures one, and little data for a task."""
    words = shlex.split(command, comments=True)
    if words[:2] == ["meristem", "pretrain"]:
        at = words.index("--out") if "--out" in words else len(words)
        words[at:at] = SMALL
    if words[:2] == ["meristem", "finetune"]:
        own = parse(shipped_tasks()[words[2]])["data"]
        few = [
            f"data.{split}={re.sub('size=[0-9]+', f'size={size}', own[split])}"
            for split, size in (("train", 40), ("validation", 12), ("test", 12))
        ]
        begun = any(word.startswith("from=runs/") for word in words)
        words[3:3] = [*SHORT, *few, *([] if begun else SHAPE)]
    if words[:2] == ["meristem", "describe"]:
        words += [word for word in SMALL if not word.startswith(("train.steps", "corpus"))]
    return words


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokenizers and shards that one README made serve the other too."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("readme", READMES)
@pytest.mark.usefixtures("small_peak")
def test_the_commands_work_in_their_order(
    readme: str, meristem: Meristem, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # over 10 s: some twenty commands, half of which train
    monkeypatch.setenv("MERISTEM_CACHE", str(cache))
    commands = commands_of(readme)
    assert len(commands) >= 10
    if readme != READMES[0]:  # word for word the same: tried there
        commands = [command for command in commands if command not in commands_of(READMES[0])]
        assert len(commands) >= 3
    for command in commands:
        said = meristem(*smaller(command)[1:])
        assert said.code == 0, f"{command}\n{said.out}\n{said.err}"
        assert said.out.strip() or said.err.strip(), f"{command} said nothing"


@pytest.mark.parametrize("readme", [READMES[0], pytest.param(READMES[1], marks=pytest.mark.slow)])
def test_the_python_works(readme: str, tmp_path: Path, cache: Path) -> None:
    (code,) = blocks(readme, "python")
    settings = ", ".join(repr(key) + ": " + repr(value) for key, value in (word.split("=") for word in SMALL))
    code = code.replace('{"train.minutes": 3}', "{" + settings + "}")
    assert "train.minutes" not in code
    env = {**os.environ, "MERISTEM_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = (
        [line.split()[:2] for block in blocks(name, "bash") for line in block.splitlines()] for name in READMES
    )
    assert english == chinese
