"""Layers, imports and names, read from the source files."""

from __future__ import annotations

import ast
import importlib
import itertools
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import meristem
from meristem.config.registry import ComponentKind
from meristem.config.settings import Settings

PACKAGE = Path(meristem.__file__).parent
LAYERS = [
    ["config", "utils", "recipes"],
    ["samples"],
    ["data"],
    ["settings"],
    ["recipe"],
    ["tokenizers"],
    ["inputs"],
    ["interfaces"],
    ["metrics"],
    ["drawing"],
    ["corpus"],
    ["labelled"],
    ["distributed"],
    ["dataset"],
    ["blocks"],
    ["models"],
    ["objectives"],
    ["learning"],
    ["checkpoint"],
    ["generation"],
    ["tasks"],
    ["evaluation"],
    ["training"],
    ["finetune"],
    ["reinforce"],
    ["describe"],
    ["interop"],
    ["serving"],
    ["recipe_resolution", "in_memory_data"],
    ["reinforce_resolution"],
    ["compare"],
    ["trust"],
    ["api"],
    ["cli"],
    ["__main__"],
]
"""From the bottom to the top; the modules of the first layer may import each other's layer."""
LAYER_NUMBER = {layer: number for number, layers in enumerate(LAYERS) for layer in layers}
PRIMITIVES = {"conditions", "errors", "name_choice", "registry", "setting_names", "settings"}
"""Modules of config/ in its lowest layer; the others are `recipe`, which knows the settings of all sections."""
WITHOUT_TORCH = {"config", "settings", "recipe", "samples", "data", "corpus", "tokenizers"}
ONLY_BY_NAME = {"tasks"}
"""Layers that training reaches through the registry only."""
MAX_LINES = 300
FILES = sorted(PACKAGE.rglob("*.py"))
FILES_BY_FOLDER = {
    folder: list(paths) for folder, paths in itertools.groupby(FILES, lambda path: path.relative_to(PACKAGE).parts[0])
}


@cache
def syntax_tree(path: Path) -> ast.Module:
    """A file's syntax tree, parsed once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


def layer_of(module: str) -> str | None:
    """The layer of one of our modules: `meristem.dataset.views` is in `dataset`, every `settings.py` in `settings`."""
    parts = module.split(".")
    if parts[0] != "meristem":
        return None
    if len(parts) > 2 and parts[1] == "config":
        return "config" if parts[2] in PRIMITIVES else "recipe"
    if len(parts) > 2 and parts[-1] == "settings":
        return "settings"
    return parts[1] if len(parts) > 1 else ""


def imports(tree: ast.AST, package: str) -> Iterator[tuple[str, int]]:
    """Every module a file imports, wherever in the file and for whatever purpose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*up, *([node.module] if node.module else [])])
            yield from (
                (f"{module}.{alias.name}" if module == "meristem" else module, node.lineno) for alias in node.names
            )


def layer_and_package(path: Path) -> tuple[str, str]:
    """A file's layer and the package it is in."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    layer = "" if parts == ("__init__",) else layer_of(".".join(["meristem", *parts]))
    return str(layer), ".".join(["meristem", *parts[:-1]])


def upward_imports(path: Path, tree: ast.AST) -> list[str]:
    """Imports of a source file that break the order of the layers."""
    layer, package = layer_and_package(path)
    wrong = []
    for module, line in imports(tree, package):
        other = layer_of(module)
        if module.split(".")[0] == "torch" and layer in WITHOUT_TORCH:
            wrong.append(f"{path.name}:{line}: {layer} must not import torch")
        is_own_folder = package.count(".") and module.split(".")[1:2] == package.split(".")[1:2]
        if other in (None, "", layer) or layer == "":
            continue
        if is_own_folder and "settings" in (layer, other):  # checked by test_settings_are_a_layer_of_their_own
            continue
        if other not in LAYER_NUMBER:
            wrong.append(f"{path.name}:{line}: {module} is no layer")
        elif LAYER_NUMBER[other] >= LAYER_NUMBER[layer] and not (LAYER_NUMBER[other] == LAYER_NUMBER[layer] == 0):
            wrong.append(f"{path.name}:{line}: {layer} imports {other}, which is not below it")
        elif layer == "training" and other in ONLY_BY_NAME:
            wrong.append(f"{path.name}:{line}: training reaches {other} through the registry, never by import")
    return wrong


@pytest.mark.parametrize("folder", FILES_BY_FOLDER)
def test_a_layer_imports_only_from_below(folder: str) -> None:
    for path in FILES_BY_FOLDER[folder]:
        layer, _ = layer_and_package(path)
        assert layer == "" or layer in LAYER_NUMBER, f"{path}: {layer} is in no layer"
        assert upward_imports(path, syntax_tree(path)) == []


@cache
def imported_modules(path: Path) -> set[Path]:
    """The files of this package that a file imports, at import time or later."""
    _, package = layer_and_package(path)
    names = [name for name, _ in imports(syntax_tree(path), package)]
    files = [PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    return {file for file in files if file.is_file() and PACKAGE in file.parents}


SETTINGS_FILES = [path for path in FILES if path.name == "settings.py" and path.parent.name != "config"]


@pytest.mark.parametrize("path", SETTINGS_FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_settings_are_a_layer_of_their_own(path: Path) -> None:
    """All that a settings.py reaches is below it or in its own folder, so that recipes can import it."""
    folder = path.relative_to(PACKAGE).parts[0]
    reached, queue = set[Path](), [path]
    while queue:
        queue += imported_modules(file := queue.pop()) - reached
        reached |= imported_modules(file)
    for file in reached:
        layer, _ = layer_and_package(file)
        is_below = LAYER_NUMBER[layer] <= LAYER_NUMBER["settings"]
        assert is_below or file.relative_to(PACKAGE).parts[0] == folder, f"{path} reaches {file}"


def test_recipes_are_read_without_torch() -> None:
    code = "import sys, meristem.config.recipe; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("blocks/x.py", "from meristem.training.loop import TrainingLoop"),
        ("blocks/x.py", "if TYPE_CHECKING:\n    from meristem.models import bert"),
        ("objectives/x.py", "def f():\n    import meristem.learning.learner"),
        ("dataset/x.py", "from ..models import bert"),
        ("models/x.py", "from meristem import objectives"),
        ("training/x.py", "from meristem.tasks.pair import PairTask"),
        ("corpus/x.py", "import torch.nn"),
        ("metrics/x.py", "from meristem.elsewhere import thing"),
        ("config/settings.py", "from meristem.config.recipe import Recipe"),
        ("config/errors.py", "from meristem.training.settings import TrainSettings"),
        ("samples/x.py", "from meristem.corpus.settings import CorpusSettings"),
        ("training/settings.py", "from meristem.learning.learner import Learner"),
        ("config/recipe.py", "from meristem.interfaces.task import Task"),
    ],
)
def test_an_import_from_above_would_be_found(layer: str, source: str) -> None:
    assert upward_imports(PACKAGE / layer, ast.parse(source))


def test_whether_gradients_are_recorded_is_no_mode() -> None:
    """Training or evaluation is `model.training`; only blocks ask whether they must compute a gradient."""
    users = [path for path in PACKAGE.rglob("*.py") if "is_grad_enabled" in path.read_text(encoding="utf-8")]
    assert {path.relative_to(PACKAGE).parts[0] for path in users} == {"blocks"}


def test_every_setting_has_its_help_text() -> None:
    with_settings = [path for path in FILES if "Settings(" in path.read_text(encoding="utf-8")]
    assert len(with_settings) > 8
    for path in with_settings:
        _, package = layer_and_package(path)
        module = importlib.import_module(f"{package}.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Settings) and value.__module__ == module.__name__:
                for name, field in value.model_fields.items():
                    assert field.description, f"{value.__module__}.{value.__name__}.{name} has no docstring under it"
                    assert "\n" not in field.description.strip(), f"{value.__name__}.{name}: one line"


@pytest.mark.parametrize("kind", [ComponentKind.FAMILY, ComponentKind.OBJECTIVE])
def test_the_folder_is_the_registry(kind: ComponentKind) -> None:
    for name in kind.names():
        assert kind.settings_class(name).model_fields


def test_long_files_are_pointed_out() -> None:
    for path in FILES:
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES:
            warnings.warn(
                f"{path.relative_to(PACKAGE)} has {lines} lines; above {MAX_LINES} the design asks for a part",
                stacklevel=1,
            )


def public_classes() -> dict[str, list[str]]:
    """Public classes at module level, by name, with the modules that define them."""
    modules: dict[str, list[str]] = {}
    for path in FILES:
        for node in syntax_tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    return modules


def test_a_public_class_name_is_defined_in_one_module_only() -> None:
    assert {name: paths for name, paths in public_classes().items() if len(paths) > 1} == {}


def test_a_module_name_is_unique_within_its_layer() -> None:
    names: dict[tuple[str, str], list[str]] = {}
    for path in FILES:
        relative = path.relative_to(PACKAGE)
        if relative.stem not in ("__init__", "settings"):
            names.setdefault((relative.parts[0], relative.stem), []).append(str(relative))
    assert {name: paths for name, paths in names.items() if len(paths) > 1} == {}


AVOIDED_NAMES = frozenset(
    [
        "told",
        "_told",
        "gathered",
        "in_turn",
        "Team",
        "Spread",
        "Scene",
        "Sight",
        "Outlook",
        "Writer",
        "Means",
        "Pool",
        "Seat",
        "roll",
        "Rolled",
        "heat",
        "leash",
        "Leash",
        "Standing",
        "Taken",
        "Ended",
        "Material",
        "Labelled",
        "Pieced",
        "revive",
        "Revived",
        "low_rank",
        "thawing",
        "framed",
        "laid",
        "taking_in",
        "answering",
        "Scribe",
        "Door",
        "Gate",
        "Shell",
        "Turnstile",
        "Line",
        "Lying",
        "Headed",
        "sieve",
        "Sieve",
        "growing",
    ]
)
"""Names that this project used for ideas which have a usual name (docs/glossary.md)."""


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name that a module defines or binds."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@pytest.mark.parametrize("folder", FILES_BY_FOLDER)
def test_names_are_those_of_the_field(folder: str) -> None:
    for path in FILES_BY_FOLDER[folder]:
        assert {path.stem, *identifiers(syntax_tree(path))} & AVOIDED_NAMES == set(), path
