"""The page docs/reference/commands.md: every command with its arguments, options and examples, from the typer app.

python -m meristem.cli.command_reference
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from meristem.cli.app import app

PAGE = Path("docs/reference/commands.md")
INTRODUCTION = """\
# Commands

Every command with its arguments and options, made from the code by `python -m meristem.cli.command_reference`.
`meristem COMMAND --help` prints the same in a terminal. Settings (`train.minutes=3`) are listed in the
[settings reference](settings.md). Every command takes `--help`, and `--debug`, which prints a traceback instead of a
message. Exit codes: 0 done, 1 failed, 2 wrong use, 130 and 143 stopped, after saving."""
TYPE_NAMES = {int: "integer", float: "number", str: "text", Path: "path", bool: "", Any: "any"}


def render_page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    for info in app.registered_commands:
        assert info.name is not None and info.callback is not None
        parts += _command_parts(info.name, info.callback)
    return "\n\n".join(parts) + "\n"


def _command_parts(name: str, function: Any) -> Iterator[str]:
    with_options = getattr(function, "with_options", None)
    full_function = function if with_options is None else with_options([])
    full_app = typer.Typer(add_completion=False)
    full_app.command(name=name)(full_function)
    signature = inspect.signature(full_function, eval_str=True).parameters
    parameters = [item for item in typer.main.get_command(full_app).params if item.name in signature]
    shown = [(item, signature[str(item.name)].annotation) for item in parameters if not getattr(item, "hidden", False)]
    arguments = [(_argument_name(item), item, kind) for item, kind in shown if item.param_type_name == "argument"]
    options = [(_option_names(item), item, kind) for item, kind in shown if item.param_type_name == "option"]
    usage = " ".join([name, *(argument for argument, *_ in arguments), *(["[options]"] if options else [])])
    yield f"## meristem {name}"
    yield f"```text\nmeristem {usage}\n```"
    yield from _help_parts(inspect.getdoc(function) or "")
    rows = [_row(*row) for row in [*arguments, *options]]
    yield "\n".join(["| argument or option | type | default | meaning |", "| --- | --- | --- | --- |", *rows])


def _argument_name(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    name = (parameter.name or "").rstrip("_").upper() + ("…" if parameter.nargs != 1 else "")
    return name if parameter.required else f"[{name}]"


def _option_names(parameter: Any) -> str:
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _row(names: str, parameter: Any, annotation: Any) -> str:
    cells = (_type_name(annotation), _default(parameter), _plain(parameter.help or ""))
    return " | ".join([f"| `{names}`", *(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells)]) + " |"


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        return _type_name(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " | ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(_type_name(part) for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) in (list, tuple):
        return f"{_type_name(get_args(annotation)[0])}, several"
    return TYPE_NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    return "" if default in (None, (), [], False, "") else f"`{default}`"


def _help_parts(text: str) -> Iterator[str]:
    """The docstring as Markdown: lines with a command become blocks of code."""
    for paragraph in re.split(r"\n\s*\n", text):
        for is_code, lines in groupby(paragraph.splitlines(), key=_is_command):
            stripped = [line.strip() for line in lines]
            yield "\n".join(["```text", *stripped, "```"]) if is_code else _plain(" ".join(stripped))


def _is_command(line: str) -> bool:
    return bool(re.match(r"\s*(meristem|cat) [a-z]", line)) and not line.rstrip().endswith(".")


def _plain(text: str) -> str:
    """Text without the terminal's markup, and with a setting or a command in it as code."""
    return re.sub(r"\[/?(bold|dim|italic)\]", "", text).replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render_page(), encoding="utf-8")
