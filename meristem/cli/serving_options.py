"""Options of `serve` and `studio`: one for each setting of the server, with its help, bounds and default."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from meristem.config.errors import RecipeError

HELP_PANEL = "Server"
CommandFunction = Callable[..., None]


def takes_serving_settings(**defaults: Any) -> Callable[[CommandFunction], CommandFunction]:
    """Decorator of a command whose last parameter is `settings`: each setting of the server becomes an option.

    The options are made when the command is run, so that `meristem --help` does not import the settings.
    """

    def decorate(command: CommandFunction) -> CommandFunction:
        class ServingCommand(TyperCommand):
            def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
                _refuse_renamed(args)
                full_app = typer.Typer(rich_markup_mode="rich", add_completion=False)
                full_app.command(name=info_name)(_with_options(command, defaults))
                return typer.main.get_command(full_app).make_context(info_name, args, parent=parent, **extra)

        listed = _with_parameters(command, _own_parameters(command), command)
        listed.command_class = ServingCommand  # type: ignore[attr-defined]  # read where commands are registered
        return listed

    return decorate


def _with_options(command: CommandFunction, defaults: dict[str, Any]) -> CommandFunction:
    """The command with one parameter per setting, which are validated and passed on as `settings`."""
    from meristem.config.validation import build_settings
    from meristem.serving.settings import ServingSettings

    fields = ServingSettings.model_fields

    def run(**arguments: Any) -> None:
        own_arguments = {name: value for name, value in arguments.items() if name not in fields}
        values = {name: value for name, value in arguments.items() if name in fields}
        command(**own_arguments, settings=build_settings(ServingSettings, values, command.__name__))

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name, field.default),
            annotation=Annotated[field.annotation, _option(name, field)],
        )
        for name, field in fields.items()
    ]
    return _with_parameters(run, [*_own_parameters(command), *parameters], command)


def _refuse_renamed(args: list[str]) -> None:
    """Raise for an option under its earlier name."""
    from meristem.serving.settings import ServingSettings

    for old, new in ServingSettings.renamed.items():
        if any(argument.partition("=")[0] == f"--{old.replace('_', '-')}" for argument in args):
            raise RecipeError(f"--{old.replace('_', '-')} is now --{new.replace('_', '-')}")


def _option(name: str, field: Any) -> Any:
    """The option of a setting; bounds that exclude their limit are checked with the settings."""
    bounds = {key: getattr(rule, key) for rule in field.metadata for key in ("ge", "le") if hasattr(rule, key)}
    return typer.Option(
        f"--{name.replace('_', '-')}",
        help=field.description,
        min=bounds.get("ge"),
        max=bounds.get("le"),
        rich_help_panel=HELP_PANEL,
    )


def _own_parameters(command: CommandFunction) -> list[inspect.Parameter]:
    """The parameters of a command except `settings`, with evaluated annotations."""
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    return [
        parameter.replace(annotation=hints[parameter.name]) for parameter in parameters if parameter.name != "settings"
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
