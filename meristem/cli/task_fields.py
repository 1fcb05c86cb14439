"""Options of `predict` and `attention`: one for each input field that the run's task declares in its signature."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meristem.cli.dynamic_options import CommandFunction, takes_options
from meristem.config.errors import MeristemError

if TYPE_CHECKING:
    from meristem.interfaces.task_signature import InputField

HELP_PANEL = "Fields of the run's task"


def takes_task_fields(command: CommandFunction) -> CommandFunction:
    """Decorator of a command with a parameter `fields`: the values of a task's input fields by name."""
    return takes_options("fields", _make_options, _given_values)(command)


def _make_options(arguments: Sequence[str], own: Sequence[inspect.Parameter]) -> dict[str, inspect.Parameter]:
    """An option per field of the run's task; those of other tasks are hidden, for a message that names the right ones.

    Without a run those of all tasks are listed. A field that has the name of another option of the command is left out:
    it is given in JSON lines.
    """
    run_tasks = _task_names(arguments)
    reserved_names = {"", "--help", *(name for parameter in own for name in _option_names(parameter))}
    options: dict[str, inspect.Parameter] = {}
    for task_name, field in _fields(run_tasks):
        if field.option not in reserved_names and field.request_name not in options:
            is_shown = task_name in run_tasks or not run_tasks
            options[field.request_name] = _option(field, "" if run_tasks else task_name, hidden=not is_shown)
    return options


def _task_names(arguments: Sequence[str]) -> list[str]:
    """The tasks of the run that the arguments name; empty if there is none."""
    from meristem.checkpoint.run_folder import RunFolder

    for argument in arguments:
        with suppress(OSError, MeristemError):  # an argument may be a long text; a broken run is reported when loaded
            if not argument.startswith("-") and Path(argument).is_dir():
                from meristem.checkpoint.load_run import load_recipe
                from meristem.interfaces.task import TASKS

                recipe = load_recipe(RunFolder.open(Path(argument)))
                tuned = () if recipe.tuned_task is None else (recipe.tuned_task.name,)
                return [name for name in (*tuned, *recipe.heads) if name in TASKS]
    return []


def _fields(first_tasks: Sequence[str]) -> Iterator[tuple[str, InputField]]:
    """(task name, field) of all tasks, these first."""
    from meristem.interfaces.task import TASKS

    for name in first_tasks:
        yield from ((name, field) for field in TASKS[name].signature.inputs)
    for name, task in TASKS.items():
        yield from ((name, field) for field in task.signature.inputs)


def _option(field: InputField, task_name: str, *, hidden: bool) -> inspect.Parameter:
    about = "An image file." if field.kind == "image" else field.help
    needed = "" if field.required else " Optional."
    repeated = " Give it once per item." if field.is_list else ""
    example = f" As for {task_name}." if task_name else ""
    option = typer.Option(
        field.option,
        metavar="FILE" if field.kind == "image" else "TEXT",
        help=f"{about}{needed}{repeated}{example}",
        show_default=False,
        hidden=hidden,
        rich_help_panel=HELP_PANEL,
    )
    return inspect.Parameter(
        f"field_{field.request_name}",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[list[str] | None if field.is_list else str | None, option],
    )


def _option_names(parameter: inspect.Parameter) -> Iterator[str]:
    """The options of a parameter of a command: those declared, or the one named after it."""
    for declared in getattr(parameter.annotation, "__metadata__", ()):
        yield from getattr(declared, "param_decls", None) or (f"--{parameter.name.replace('_', '-')}",)


def _given_values(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != []}
