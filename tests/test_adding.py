"""The pages on adding a component, taken at their word: their files trained or used, their tests run."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cli_runner import Meristem
from tiny_runs import tiny_run

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import read_recipe, resolve_recipe
from meristem.config.registry import module_names
from meristem.data.sources import formats_by_suffix
from meristem.dataset.token_dataset import TokenDataset
from meristem.interfaces.objective import OBJECTIVES
from meristem.learning.build import build_feeds, build_learner, check_recipe
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.step import Stepper

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```(python|bash)\n(.*?)```", re.DOTALL)
PAGES = (
    "adding-an-objective.md", "adding-a-family.md", "adding-a-reward.md", "adding-a-tokenizer.md",
    "adding-a-file-format.md",
)  # fmt: skip
Put = Callable[[str], dict[str, ModuleType]]


def blocks(page: str) -> dict[str, str]:
    """The page's files by the path in their first line, and its commands under `bash`."""
    code_blocks = {}
    for kind, code in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        code_blocks["bash" if kind == "bash" else code.partition("\n")[0].removeprefix("# ")] = code
    return code_blocks


def package_files(page: str) -> list[str]:
    """The files of the package that a page writes."""
    return [file_name for file_name in blocks(page) if file_name.startswith("meristem/")]


@pytest.fixture
def write_page_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Lay a page's files over the package for one test, as if somebody had saved them there."""
    before = set(sys.modules)

    def lay(page: str) -> dict[str, ModuleType]:
        loaded = {}
        for file_name, code in blocks(page).items():
            parts = Path(file_name).parts
            if parts[0] == "bash":
                continue
            (tmp_path / file_name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file_name).write_text(code, encoding="utf-8")
            if parts[0] == "meristem":
                package = importlib.import_module(".".join(parts[:-1]))
                monkeypatch.setattr(package, "__path__", [*package.__path__, str((tmp_path / file_name).parent)])
                forget_names()
        for file_name in blocks(page):
            if file_name.startswith("tests/"):
                loaded[file_name] = load(tmp_path / file_name)
        return loaded

    yield lay
    forget_names()
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]


def forget_names() -> None:
    """What is cached of the files in the package."""
    module_names.cache_clear()
    formats_by_suffix.cache_clear()


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses(settings: dict[str, Any], tokenizer: Tokenizer, store: TokenDataset, steps: int = 60) -> list[float]:
    """A few real steps of a recipe on the small store."""
    recipe = resolve_recipe(
        "test", {"train": {"steps": steps, "learning_rate": 5e-3, "batch_tokens": 192, "seed": 1}, **settings}
    )
    check_recipe(recipe)
    learner = build_learner(recipe, tokenizer).train()
    ((name, feed),) = build_feeds(recipe, learner.objectives, tokenizer, {"main": store}, split="train", seed=1).items()
    optimizers = build_optimizers(learner.model, recipe.train)
    stepper = Stepper(learner=learner, optimizers=optimizers, settings=recipe.train, device=torch.device("cpu"))
    return [float(stepper.train_step(step, steps, name, [feed.batch(step, 0)]).loss) for step in range(steps)]


def falls(losses: list[float], share: float) -> bool:
    return sum(losses[-5:]) < share * sum(losses[:5])


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_own_tests_pass(page: str, write_page_files: Put) -> None:
    (module,) = write_page_files(page).values()
    tests = [value for key, value in vars(module).items() if key.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_pages_objective_is_found_trained_and_refused_where_it_does_not_fit(
    write_page_files: Put, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    write_page_files("adding-an-objective.md")
    assert OBJECTIVES["swap"].__name__ == "SwapObjective"
    small = {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": 24}
    for family in ("bert", "modern"):
        assert falls(losses({"model": {"family": family, **small}, "objective": "swap"}, tokenizer, store), 0.75)
    with pytest.raises(RecipeError, match=r"objective swap needs a bidirectional backbone.*bert"):
        losses({"model": {"family": "gpt2", **small}, "objective": "swap"}, tokenizer, store)
    with pytest.raises(RecipeError, match=r"objective.swap_rat: unknown setting, did you mean swap_rate\?"):
        resolve_recipe("test", {"model": {"family": "bert"}, "objective": {"name": "swap", "swap_rat": 0.2}})


def test_the_pages_family_is_found_trained_and_refused_where_it_does_not_fit(
    write_page_files: Put, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    write_page_files("adding-a-family.md")
    model = {"family": "ssm", "layers": 2, "hidden_size": 32, "max_length": 24}
    assert falls(losses({"model": model, "objective": "clm"}, tokenizer, store), 0.5)
    with pytest.raises(RecipeError, match="objective mlm needs a bidirectional backbone, and ssm is causal"):
        losses({"model": model, "objective": "mlm"}, tokenizer, store)
    with pytest.raises(MeristemError, match="cannot separate documents"):
        losses({"model": model, "objective": "clm", "dataset": {"intra_document_mask": True}}, tokenizer, store)


@pytest.mark.parametrize("page", ["adding-an-objective.md", "adding-a-family.md"])
def test_the_pages_commands_name_a_recipe_that_resolves(page: str, write_page_files: Put) -> None:
    write_page_files(page)
    commands = [shlex.split(line) for line in blocks(page)["bash"].splitlines()]
    assert commands
    for _, _, recipe, *settings in commands:
        check_recipe(resolve_recipe(*read_recipe(recipe), settings))


@pytest.mark.parametrize("page", PAGES)
def test_a_component_is_one_new_file(page: str) -> None:
    (file_name,) = package_files(page)
    assert not (DOCS.parent / file_name).exists()


SENTENCES = [(who, what) for who in ("Ada", "My sister", "The painter") for what in ("a boat", "her letters", "it all")]
TINY = [
    "model.layers=1", "model.hidden_size=16", "model.heads=2", "model.max_length=16", "tokenizer.vocab_size=300",
    "train.minutes=none", "train.steps=3", "train.batch_tokens=64", "train.evaluate_tokens=64", "train.threads=1",
    "corpus.processes=1",
]  # fmt: skip
"""Settings of a run that takes a moment."""


def command(page: str, start: str) -> list[str]:
    """The words of a command of the page, without `meristem`."""
    (line,) = [line for line in blocks(page)["bash"].splitlines() if line.startswith(f"meristem {start}")]
    return shlex.split(line)[1:]


@pytest.mark.usefixtures("small_peak")
def test_the_pages_reward_scores_texts_and_trains(write_page_files: Put, meristem: Meristem, tmp_path: Path) -> None:
    page = "adding-a-reward.md"
    write_page_files(page)
    (tmp_path / "words.txt").write_text("the old boat")
    (answer,) = meristem(*command(page, "reward"), "--json").answers
    assert answer["value"] == 1.0
    assert "words: nowhere.txt is no file" in meristem("reward", "known_words", "words=nowhere.txt", "--text", "a").err
    (tmp_path / "prompts.txt").write_text("Ada walked\nThe old harbour\nDiego sold\n" * 4)
    words = [word.replace("runs/gpt2-mini", str(tiny_run("gpt2-mini"))) for word in command(page, "reinforce")]
    small = ["data.train=prompts.txt", "train.steps=2", "train.batch_samples=2", "policy.max_new_tokens=4"]
    small.append("judge=[{name: repetition}]")  # the recipe's own is a model that would be trained first
    result = meristem(*words, *small, "policy.num_generations=2", "policy.eval_prompts=4", "--out", "run")
    assert result.code == 0, result.err
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert any("known_words" in key for line in lines for key in json.loads(line))


@pytest.mark.usefixtures("small_peak")
def test_the_pages_tokenizer_trains_with_a_model_that_generates(
    write_page_files: Put, meristem: Meristem, tmp_path: Path
) -> None:
    page = "adding-a-tokenizer.md"
    write_page_files(page)
    words = [word.replace("builtin:microworld", "builtin:microworld-en?size=40") for word in command(page, "pretrain")]
    result = meristem(*words, *TINY, "--out", "run")
    assert result.code == 0, result.err
    wrong = meristem("pretrain", "gpt2-mini", "tokenizer.kind=whitespaces")
    assert "no tokenizer kind 'whitespaces', did you mean whitespace?" in wrong.err
    generated = json.loads(meristem("generate", "run", "--prompt", "Ada", "--max-tokens", "4", "--json").out)
    assert generated


@pytest.mark.usefixtures("small_peak")
def test_the_pages_file_format_is_a_corpus_and_labelled_data(
    write_page_files: Put, meristem: Meristem, tmp_path: Path
) -> None:
    page = "adding-a-file-format.md"
    write_page_files(page)
    records = [f"text: {who} sold\n+ {what}.\nlabel: {number % 2}" for number, (who, what) in enumerate(SENTENCES * 8)]
    for name in ("stories.rec", "reviews.rec", "more.rec"):
        (tmp_path / name).write_text("# sales\n" + "\n\n".join(records), encoding="utf-8")
    small = ["corpus.validation=0.2", "corpus.test=0.1", "corpus.near_dedup=null", "corpus.min_characters=1"]
    result = meristem(*command(page, "pretrain"), *TINY, *small, "--out", "run")
    assert result.code == 0, result.err
    small = ["from=run", "train.epochs=null", "train.steps=1", "train.batch_samples=4", "train.threads=1"]
    result = meristem(*command(page, "finetune"), *small, "--out", "task")
    assert result.code == 0, result.err
    (tmp_path / "bad.rec").write_text("text: a b\nlabel: 0\n\nno colon\n", encoding="utf-8")
    assert "bad.rec:4" in meristem("finetune", "classification", "data.train=bad.rec", "--out", "bad").err
