"""The pages on adding an objective and a family, taken at their word: their files trained, their tests run."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import read_recipe, resolve_recipe
from meristem.config.registry import module_names
from meristem.dataset.token_dataset import TokenDataset
from meristem.interfaces.objective import OBJECTIVES
from meristem.learning.build import build_feeds, build_learner, check_recipe
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.step import Stepper

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```(python|bash)\n(.*?)```", re.DOTALL)
Put = Callable[[str], dict[str, ModuleType]]


def blocks(page: str) -> dict[str, str]:
    """The page's files by the path in their first line, and its commands under `bash`."""
    code_blocks = {}
    for kind, code in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        code_blocks["bash" if kind == "bash" else code.partition("\n")[0].removeprefix("# ")] = code
    return code_blocks


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
                package = importlib.import_module(f"meristem.{parts[1]}")
                monkeypatch.setattr(package, "__path__", [*package.__path__, str((tmp_path / file_name).parent)])
                module_names.cache_clear()
        for file_name in blocks(page):
            if file_name.startswith("tests/"):
                loaded[file_name] = load(tmp_path / file_name)
        return loaded

    yield lay
    module_names.cache_clear()
    for module in set(sys.modules) - before:
        if module.endswith((".swap", ".gcnn")):
            del sys.modules[module]


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


@pytest.mark.parametrize("page", ["adding-an-objective.md", "adding-a-family.md"])
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
    model = {"family": "gcnn", "layers": 2, "hidden_size": 32, "max_length": 24}
    assert falls(losses({"model": model, "objective": "clm"}, tokenizer, store), 0.5)
    with pytest.raises(RecipeError, match="objective mlm needs a bidirectional backbone, and gcnn is causal"):
        losses({"model": model, "objective": "mlm"}, tokenizer, store)
    with pytest.raises(MeristemError, match="cannot mask attention between documents"):
        losses({"model": model, "objective": "clm", "dataset": {"intra_document_mask": True}}, tokenizer, store)


@pytest.mark.parametrize("page", ["adding-an-objective.md", "adding-a-family.md"])
def test_the_pages_commands_name_a_recipe_that_resolves(page: str, write_page_files: Put) -> None:
    write_page_files(page)
    commands = [shlex.split(line) for line in blocks(page)["bash"].splitlines()]
    assert commands
    for _, _, recipe, *settings in commands:
        check_recipe(resolve_recipe(*read_recipe(recipe), settings))
