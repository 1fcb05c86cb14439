"""Every command on a reward run: it works, or is refused with one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from starlette.testclient import TestClient
from tiny_runs import tiny_run
from typer.testing import CliRunner

import meristem
from meristem.cli.app import app
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.training import budget

RECIPE = """
from:    {start}
data:    {{train: prompts.tsv, held_out: 0.25}}
rewards: [{{name: length, target: [2, 8]}}]
policy:  {{num_generations: 2, max_new_tokens: 4, eval_prompts: 4, baseline: learned}}
train:   {{steps: 2, batch_samples: 2, learning_rate: 1e-3, log_every: 1, evaluate_every: 2, threads: 1}}
"""
QUICK = ("train.steps=1", "train.threads=1", "train.evaluate_every=none")


@pytest.fixture(scope="module")
def rewarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reward run, beside its recipe and its prompts."""
    root = tmp_path_factory.mktemp("rewarded")
    names = ("Ada", "Ben", "Cem", "Dov", "Eva", "Fay")
    (root / "prompts.tsv").write_text("prompt\n" + "".join(f"{name} went\n" for name in names))
    (root / "r.yaml").write_text(RECIPE.format(start=tiny_run("gpt2-mini")))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        meristem.reinforce("r.yaml", out=root / "better", console=Console(quiet=True))
    return root / "better"


@pytest.fixture(autouse=True)
def at_home(rewarded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rewarded.parent)


def command_output(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=True)
    problem = (
        str(result.exception) if result.exception is not None and not isinstance(result.exception, SystemExit) else ""
    )
    assert (1 if problem else result.exit_code) == code, (result.output, result.exception)
    return result.output + problem


def test_describe_shows_what_it_has_done() -> None:
    output = command_output("describe", "better")
    assert "policy" in output and "2 of 2" in output and "reward" in output and "finished at step 2" in output
    trained = json.loads(command_output("describe", "better", "--json"))["trained"]
    assert trained["steps"] == 2 and trained["validation"]["reward"] <= 1
    assert "this is a reward run" in command_output("describe", "better", "--hours", "2", code=1)
    assert "can only be measured by running it (meristem reinforce)" in command_output("describe", "r.yaml", code=1)


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "better", "--limit", "2"),
        ("generate", "better", "--prompt", "Ada", "--max-tokens", "2"),
        ("score", "better", "Ada"),
        ("embed", "better", "Ada"),
        ("attention", "better", "Ada", "--out", "a.png"),
        ("export", "better", "exported"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_uses_it(words: tuple[str, ...]) -> None:
    assert command_output(*words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("pretrain", "better", "builtin:microworld-en?size=20"),
            "better was trained with rewards: meristem reinforce better",
        ),
        (("pretrain", "better/recipe.yaml"), "name a recipe and start from it: from=better"),
        (("pretrain", "r.yaml"), "r.yaml is a recipe for rewards: meristem reinforce r.yaml"),
        (("finetune", "better"), "better was trained with rewards"),
        (("fill", "better", "a [MASK]"), "it supports generate and score"),
        (("predict", "better", "a"), "it supports generate and score"),
    ],
)
def test_a_command_that_makes_no_sense(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in command_output(*words, code=1)


def test_other_runs_start_from_it(rewarded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    shape = ("model.layers=1", "model.hidden_size=32", "model.heads=2", "model.max_length=32", "train.batch_tokens=64")
    text = "builtin:microworld-en?size=60"
    quiet: dict[str, Any] = {"console": Console(quiet=True)}
    overrides = (*QUICK, *shape, "train.optimizer=adamw", "corpus.processes=1", f"from={rewarded}")
    assert meristem.pretrain("gpt2-mini", overrides, source=text, out="on", **quiet).run.is_dir()
    overrides_2 = (*QUICK, f"from={rewarded}", "data.limit=8", "train.batch_samples=2")
    assert meristem.finetune("classification", overrides_2, out="taught", **quiet).run.is_dir()
    assert meristem.reinforce("r.yaml", (*QUICK, f"from={rewarded}"), out="again", **quiet).run.is_dir()


def test_it_is_served(rewarded: Path) -> None:
    with TestClient(
        create_app(ModelRegistry.open([rewarded]), ServingSettings()), base_url="http://127.0.0.1"
    ) as client:
        assert client.post("/generate", json={"prompt": "Ada", "max_tokens": 2}).status_code == 200
        assert client.post("/score", json={"text": "Ada"}).status_code == 200
