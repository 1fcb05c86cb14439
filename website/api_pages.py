"""The reference of the Python interface: every public name of `meristem`, and the types its functions return.

Names are read from the source, so that the site is built without importing the package.
"""

from __future__ import annotations

import ast
from pathlib import Path

GROUPS = {
    "Train": ("pretrain", "finetune", "reinforce"),
    "Compare": ("compare", "compare_claims"),
    "Use a model": ("load", "LoadedModel", "reward"),
    "Know the risks": ("exposure", "robustness", "label_noise"),
    "Import and export": ("import_folder", "export", "push"),
    "Look": ("describe", "doctor"),
}
INTRODUCTION = """# Python interface: reference

Made from the code's docstrings. [Python interface](../python.md) shows how the parts are used together. Settings are
those of the [settings reference](settings.md).
"""


def public_names(package: Path) -> list[str]:
    """The names in `__all__` of the package."""
    for node in ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    raise ValueError(f"{package} has no __all__")


def returned_types(package: Path) -> dict[str, str]:
    """Classes of this package that public functions and methods return, and where each is defined."""
    tree = ast.parse((package / "api.py").read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns is not None]
    annotations = [function.returns for function in functions if not function.name.startswith("_")]
    names = {
        ast.unparse(part)
        for annotation in annotations
        if annotation is not None
        for part in ast.walk(annotation)
        if isinstance(part, ast.Name | ast.Attribute)
    }
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("meristem.")
        for alias in node.names
    }
    places = {name: _place_of(name, imported) for name in names}
    classes = {place.rpartition(".")[2]: place for place in places.values() if _is_class(package, place)}
    return dict(sorted(classes.items()))


def _place_of(name: str, imported: dict[str, str]) -> str:
    first, _, rest = name.partition(".")
    return ".".join([imported.get(first, first), *([rest] if rest else [])])


def _is_class(package: Path, place: str) -> bool:
    module, _, name = place.rpartition(".")
    path = package.parent.joinpath(*module.split(".")).with_suffix(".py")
    nodes = ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else []
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in nodes)


def render(package: Path) -> str:
    """The page as Markdown with a directive of mkdocstrings for each name."""
    names = public_names(package)
    grouped = {name for group in GROUPS.values() for name in group}
    rest = tuple(name for name in names if name not in grouped)
    parts = [INTRODUCTION]
    for title, group in {**GROUPS, "More": rest}.items():
        parts.append(f"## {title}")
        parts += [_directive(f"meristem.{name}", _place(name)) for name in group if name in names]
    parts += ["## What they return", "Results are shown as tables in a notebook; `to_pandas()` gives a DataFrame."]
    parts += [_directive(name, place) for name, place in returned_types(package).items() if name not in names]
    return "\n\n".join(parts) + "\n"


def _place(name: str) -> str:
    return "meristem.config.errors.MeristemError" if name == "MeristemError" else f"meristem.api.{name}"


def _directive(heading: str, place: str) -> str:
    options = {"heading": heading, "toc_label": heading, "show_root_heading": "true", "show_root_toc_entry": "true"}
    lines = [f"        {key}: {value}" for key, value in {**options, "heading_level": "3"}.items()]
    return "\n".join([f"::: {place}", "    options:", *lines])
