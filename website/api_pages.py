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


def interface_modules(package: Path) -> dict[str, ast.Module]:
    """The modules of the Python interface by dotted name, those of the folder `api`."""
    files = [path for path in sorted((package / "api").glob("*.py")) if path.is_file()]
    names = {path: ".".join(path.relative_to(package.parent).with_suffix("").parts) for path in files}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8")) for path, name in names.items()}


def definitions(package: Path) -> dict[str, str]:
    """Where each public name is defined."""
    places = {
        node.name: f"{module}.{node.name}"
        for module, tree in interface_modules(package).items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return {name: places.get(name, "meristem.config.errors.MeristemError") for name in public_names(package)}


def returned_types(package: Path) -> dict[str, str]:
    """Classes of this package that public functions and methods return, and where each is defined."""
    classes: dict[str, str] = {}
    for tree in interface_modules(package).values():
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("meristem.")
            for alias in node.names
        }
        places = [_place_of(name, imported) for name in _annotation_names(tree)]
        classes |= {place.rpartition(".")[2]: place for place in places if _is_class(package, place)}
    return dict(sorted(classes.items()))


def _annotation_names(tree: ast.Module) -> set[str]:
    """Names in the return annotations of public functions and methods."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    return {
        ast.unparse(part)
        for function in functions
        if function.returns is not None
        for part in ast.walk(function.returns)
        if isinstance(part, ast.Name | ast.Attribute)
    }


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
    places = definitions(package)
    grouped = {name for group in GROUPS.values() for name in group}
    rest = tuple(name for name in places if name not in grouped)
    parts = [INTRODUCTION]
    for title, group in {**GROUPS, "More": rest}.items():
        parts.append(f"## {title}")
        parts += [_directive(f"meristem.{name}", places[name]) for name in group if name in places]
    parts += ["## What they return", "Results are shown as tables in a notebook; `to_pandas()` gives a DataFrame."]
    parts += [_directive(name, place) for name, place in returned_types(package).items() if name not in places]
    return "\n\n".join(parts) + "\n"


def _directive(heading: str, place: str) -> str:
    options = {"heading": heading, "toc_label": heading, "show_root_heading": "true", "show_root_toc_entry": "true"}
    lines = [f"        {key}: {value}" for key, value in {**options, "heading_level": "3"}.items()]
    return "\n".join([f"::: {place}", "    options:", *lines])
