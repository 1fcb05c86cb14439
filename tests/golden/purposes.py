"""The purpose strings of random draws, extracted from the source: they are hashed, so renaming one changes its stream.

A call that takes a purpose is recognised by the object it resolves to, not by its name: functions and modules may be
renamed and moved. An f-string counts as its template, with `{}` for its values.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = "meristem"


@dataclass(frozen=True)
class SourceFile:
    """A parsed module with its resolved imports and string constants."""

    module: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Local name → (module, name in it); an empty name for the module itself."""
    constants: dict[str, str] = field(default_factory=dict)

    def object_of(self, expression: ast.expr, names: frozenset[str]) -> Any:
        """The object of a name or `module.name`; None if it cannot be one of `names`."""
        if isinstance(expression, ast.Name):
            module, name = self.imports.get(expression.id, (self.module, expression.id))
        elif isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            module, inner = self.imports.get(expression.value.id, ("", ""))
            module, name = f"{module}.{inner}" if inner else module, expression.attr
        else:
            return None
        return getattr(import_module(module), name, None) if name in names and module.startswith(ROOT) else None

    def text(self, expression: ast.expr) -> str | None:
        """A string literal, the template of an f-string, or a constant of this module; None for anything else."""
        if isinstance(expression, ast.Constant):
            return expression.value if isinstance(expression.value, str) else None
        if isinstance(expression, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in expression.values]
            return "".join(map(str, parts))
        return self.constants.get(expression.id) if isinstance(expression, ast.Name) else None


def parse(path: Path, module: str, text: str) -> SourceFile:
    """Parse a file, with all its imports, nested ones included."""
    source = SourceFile(module, ast.parse(text))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            source.imports.update({name.asname or name.name: (node.module, name.name) for name in node.names})
        elif isinstance(node, ast.Import):
            source.imports.update({name.asname or name.name: (name.name, "") for name in node.names})
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            source.constants.update(
                {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
            )
    return source


def module_name(path: Path, folder: Path) -> str:
    """`meristem.a.b` for the file a/b.py of the package."""
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def purposes(folder: Path, functions: Sequence[Callable[..., Any]], draw_types: Sequence[Any]) -> set[str]:
    """The purposes in all calls of these functions, and of parameters with one of these types."""
    purpose_strings: set[str] = set()
    homes = {str(inspect.getsourcefile(inspect.unwrap(function))) for function in functions}
    words = re.compile(rf"\b({'|'.join(_module_words(functions) | _names_of(draw_types))})\b")
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if str(path) not in homes and words.search(text) is None:
            continue  # parsing all files would take seconds
        source = parse(path, module_name(path, folder), text)
        for call in [*_function_calls(source, functions), *_draw_calls(source, draw_types)]:
            texts = {purpose for argument in _arguments(call) if (purpose := source.text(argument)) is not None}
            unread = f"{path}:{call.lineno}: this draw's purpose cannot be read here; write its string into the call"
            assert texts or str(path) in homes, unread
            purpose_strings |= texts
    return purpose_strings


def _module_words(functions: Sequence[Callable[..., Any]]) -> set[str]:
    """Last name parts of the modules that define the functions, and of packages that re-export them."""
    modules = {function.__module__ for function in functions}
    packages = {
        package
        for function in functions
        if hasattr(sys.modules[package := function.__module__.rpartition(".")[0]], function.__name__)
    }
    return {module.rpartition(".")[2] for module in modules | packages}


def _names_of(objects: Sequence[Any]) -> set[str]:
    """The names of these objects in the package's modules; a type alias does not know its name."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == ROOT]
    return {
        name for module in modules for name, value in vars(module).items() if any(value is object for object in objects)
    }


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _function_calls(source: SourceFile, functions: Sequence[Callable[..., Any]]) -> Iterator[ast.Call]:
    names = frozenset(function.__name__ for function in functions)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and any(source.object_of(node.func, names) is function for function in functions):
            yield node


def _draw_calls(source: SourceFile, types: Sequence[Any]) -> Iterator[ast.Call]:
    """Calls of a parameter that is annotated with one of the types."""
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        annotations = {
            argument.arg: argument.annotation for argument in (*function.args.args, *function.args.kwonlyargs)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                annotation = annotations.get(node.func.id)
                if annotation is not None and _is_one_of(source, annotation, types):
                    yield node


def _is_one_of(source: SourceFile, annotation: ast.expr, types: Sequence[Any]) -> bool:
    imported = frozenset(name for _, name in source.imports.values())
    return any(source.object_of(annotation, imported) is type_name for type_name in types)


def templates_in(function: Callable[..., Any]) -> set[str]:
    """The f-strings of a function with its own hash."""
    source = SourceFile("", ast.parse(inspect.getsource(function)))
    strings = [node for node in ast.walk(source.tree) if isinstance(node, ast.JoinedStr)]
    return {text for node in strings if (text := source.text(node)) is not None}
