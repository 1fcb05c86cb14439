"""Names of the package that the benchmarks import exist, also where the import is inside a function."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
FILES = sorted(BENCHMARKS.rglob("*.py"))


def imported_names(source: str) -> set[tuple[str, str | None]]:
    """(module, name) of every import from the package or from the benchmarks; the name is None for `import module`."""
    names: set[tuple[str, str | None]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {(alias.name, None) for alias in node.names}
    return {(module, name) for module, name in names if module.split(".")[0] in ("meristem", "benchmarks")}


def exists(module: str, name: str | None) -> bool:
    """Whether a module exists and has that attribute or submodule; a missing library is no missing name."""
    try:
        if importlib.util.find_spec(module) is None:
            return False
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return error.name is not None and not error.name.startswith(("meristem", "benchmarks"))
    is_package = hasattr(imported, "__path__")
    return name is None or hasattr(imported, name) or (is_package and exists(f"{module}.{name}", None))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(BENCHMARKS).as_posix())
def test_every_imported_name_exists(file: Path) -> None:
    names = imported_names(file.read_text(encoding="utf-8"))
    assert [(module, name) for module, name in sorted(names, key=str) if not exists(module, name)] == []


def test_missing_names_are_found() -> None:
    source = "def main():\n    from meristem.api import absent, load\n    import meristem.absent\n    import json\n"
    names = imported_names(source)
    assert names == {("meristem.api", "absent"), ("meristem.api", "load"), ("meristem.absent", None)}
    assert {(module, name) for module, name in names if exists(module, name)} == {("meristem.api", "load")}
