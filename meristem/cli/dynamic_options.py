"""Options that are made when a command is run, because they follow from a class of settings or from a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

CommandFunction = Callable[..., None]
OptionMaker = Callable[[Sequence[str], Sequence[inspect.Parameter]], Mapping[str, inspect.Parameter]]
"""The arguments of a command line and the command's own parameters → value name → parameter with its option."""


def takes_options(
    parameter: str, make_options: OptionMaker, build: Callable[[dict[str, Any]], Any]
) -> Callable[[CommandFunction], CommandFunction]:
    """Decorator of a command: `make_options` adds options, whose values by name are passed to `parameter` by `build`.

    Options are made when the command is run, so that `meristem --help` imports nothing for them.
    """

    def decorate(command: CommandFunction) -> CommandFunction:
        own = _own_parameters(command, parameter)

        class DynamicCommand(TyperCommand):
            def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
                full_app = typer.Typer(rich_markup_mode="rich", add_completion=False)
                full_app.command(name=info_name)(with_options(args))
                return typer.main.get_command(full_app).make_context(info_name, args, parent=parent, **extra)

        def with_options(args: Sequence[str]) -> CommandFunction:
            """The command with the options for a command line."""
            options = make_options(args, own)
            names = {option.name: name for name, option in options.items()}

            def run(**arguments: Any) -> None:
                values = {name: arguments.pop(option) for option, name in names.items()}
                command(**arguments, **{parameter: build(values)})

            return _with_parameters(run, [*own, *options.values()], command)

        listed = _with_parameters(command, own, command)
        listed.command_class = DynamicCommand  # type: ignore[attr-defined]  # read where commands are registered
        listed.with_options = with_options  # type: ignore[attr-defined]
        return listed

    return decorate


def _own_parameters(command: CommandFunction, without: str) -> list[inspect.Parameter]:
    """The parameters of a command except one, with evaluated annotations."""
    evaluated = {name: text for name, text in command.__annotations__.items() if name not in (without, "return")}
    annotated = type("Annotated", (), {"__annotations__": evaluated, "__module__": command.__module__})
    hints = get_type_hints(annotated, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    return [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in parameters
        if parameter.name != without
    ]


def _with_parameters(
    function: CommandFunction, parameters: list[inspect.Parameter], documented: CommandFunction
) -> CommandFunction:
    """The function with these parameters, and name and help of the documented one."""

    @wraps(documented)
    def wrapper(*arguments: Any, **options: Any) -> None:
        function(*arguments, **options)

    del wrapper.__wrapped__  # its signature is not that of the documented function
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
