"""The floors of the building, read from the code itself."""

from __future__ import annotations

import ast
import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import meristem
from meristem.settings import Settings, find, names

PACKAGE = Path(meristem.__file__).parent
FLOORS = [
    ["errors", "tables", "settings", "bounded", "interrupts", "recipes", "overrides", "recipe", "schema", "randomness",
     "dependences", "system_errors", "terminal", "console", "shell_commands", "recipe_differences"],
    ["batch"],
    ["task"],
    ["metrics"],
    ["drawing"],
    ["samples"],
    ["corpus"],
    ["labelled"],
    ["tokenizers"],
    ["store"],
    ["blocks"],
    ["models"],
    ["objectives"],
    ["learning"],
    ["checkpoint"],
    ["generation"],
    ["tasks"],
    ["reinforce"],
    ["evaluation"],
    ["training"],
    ["compare", "trust"],
    ["interop"],
    ["serving"],
    ["resolving", "in_memory"],
    ["api"],
    ["options"],
    ["verbs"],
    ["cli"],
    ["__main__"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
WITHOUT_TORCH = {
    "errors", "settings", "bounded", "interrupts", "overrides", "recipe", "randomness", "samples", "corpus",
    "tokenizers", "dependences",
}  # fmt: skip
ONLY_FOUND = {"tasks", "reinforce"}
LONGEST = 300
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str | None:
    """The room of a module of ours: `meristem.store.views` is in `store`."""
    parts = module.split(".")
    if parts[0] != "meristem":
        return None
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


def place(path: Path) -> tuple[str, str]:
    """A file's room and the package it lies in."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ("" if parts == ("__init__",) else parts[0]), ".".join(["meristem", *parts[:-1]])


def upward(path: Path, source: str) -> list[str]:
    """The imports of a source that break the order of the floors."""
    room, package = place(path)
    wrong = []
    for module, line in imports(ast.parse(source), package):
        other = room_of(module)
        if module.split(".")[0] == "torch" and room in WITHOUT_TORCH:
            wrong.append(f"{path.name}:{line}: {room} needs no torch")
        if other in (None, "", room) or room == "":
            continue
        if other not in FLOOR:
            wrong.append(f"{path.name}:{line}: {module} is no room")
        elif FLOOR[other] >= FLOOR[room] and not (FLOOR[other] == FLOOR[room] == 0):
            wrong.append(f"{path.name}:{line}: {room} imports {other}, which is not below it")
        elif room == "training" and other in ONLY_FOUND:
            wrong.append(f"{path.name}:{line}: training reaches {other} through find, never by import")
    return wrong


def dangers(source: str) -> list[str]:
    """What could execute a file's content."""
    found = []
    tree = ast.parse(source)
    restricted = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _only_weights(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=("eval" | "exec") as name)):
                found.append(name)
            case ast.Attribute(
                value=ast.Name(id=("torch" | "yaml") as owner), attr=("load" | "unsafe_load" | "full_load") as name
            ) if id(node) not in restricted:
                found.append(f"{owner}.{name}")
            case ast.keyword(arg="trust_remote_code"):
                found.append("trust_remote_code")
            case ast.Import(names=aliases):
                found += [
                    a.name
                    for a in aliases
                    if a.name.split(".")[0] in ("pickle", "cPickle", "dill", "marshal", "shelve")
                ]
            case ast.ImportFrom(module=str() as module, names=aliases):
                if module.split(".")[0] in ("pickle", "cPickle", "dill", "marshal", "shelve"):
                    found.append(module)
                found += [
                    f"{module}.{a.name}" for a in aliases if (module, a.name) in (("torch", "load"), ("yaml", "load"))
                ]
    return found


def _only_weights(call: ast.Call) -> bool:
    """Whether it is torch's restricted loader, which makes tensors and nothing else."""
    return any(
        word.arg == "weights_only" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_below(path: Path) -> None:
    room, _ = place(path)
    assert room == "" or room in FLOOR, f"{room} stands on no floor"
    assert upward(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_executes_what_a_file_holds(path: Path) -> None:
    assert dangers(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(("room", "source"), [
    ("blocks/x.py", "from meristem.training.loop import Loop"),
    ("blocks/x.py", "if TYPE_CHECKING:\n    from meristem.models import bert"),
    ("objectives/x.py", "def f():\n    import meristem.learning.feed"),
    ("store/x.py", "from ..models import bert"),
    ("models/x.py", "from meristem import objectives"),
    ("training/x.py", "from meristem.tasks.pair import Pair"),
    ("corpus/x.py", "import torch.nn"),
    ("metrics/x.py", "from meristem.elsewhere import thing"),
])
def test_an_import_from_above_would_be_found(room: str, source: str) -> None:
    assert upward(PACKAGE / room, source)


@pytest.mark.parametrize("source", [
    "import pickle", "from pickle import loads", "torch.load(path)", "load = torch.load", "eval('1')", "exec(text)",
    "torch.load(path, weights_only=False)",
    "yaml.load(text)", "from yaml import load", "AutoModel.from_pretrained(name, trust_remote_code=True)",
])
def test_a_danger_would_be_found(source: str) -> None:
    assert dangers(source)


def test_what_only_looks_dangerous_is_let_through() -> None:
    assert (
        dangers("model.eval(); yaml.safe_load(t); safetensors.torch.load_file(p); load.load(x)  # eval( pickle") == []
    )
    assert dangers("torch.load(path, weights_only=True)") == []


def test_every_setting_has_its_help_text() -> None:
    with_settings = [path for path in FILES if "Settings(" in path.read_text(encoding="utf-8")]
    assert len(with_settings) > 8
    for path in with_settings:
        _, package = place(path)
        module = importlib.import_module(f"{package}.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Settings) and value.__module__ == module.__name__:
                for name, field in value.model_fields.items():
                    assert field.description, f"{value.__module__}.{value.__name__}.{name} has no docstring under it"
                    assert "\n" not in field.description.strip(), f"{value.__name__}.{name}: one line"


@pytest.mark.parametrize("room", ["models", "objectives"])
def test_the_folder_is_the_registry(room: str) -> None:
    for name in names(room):
        assert find(room, name).Settings.model_fields


def test_long_files_are_pointed_out() -> None:
    for path in FILES:
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST:
            warnings.warn(
                f"{path.relative_to(PACKAGE)} has {lines} lines; above {LONGEST} the design asks for a part",
                stacklevel=1,
            )
