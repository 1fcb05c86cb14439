"""The command line: the list of commands, error messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from meristem.cli import (
    attention,
    compare,
    doctor,
    embed,
    exposure,
    federate,
    import_export,
    inference,
    label_noise_command,
    reward_command,
    robustness_command,
    score,
    serve,
    studio,
    train,
)
from meristem.config.errors import MeristemError, RecipeError
from meristem.training.launch import (
    is_lost_process_error,
    is_rank_zero_process,
    keep_command_line,
    report_exit_code,
)
from meristem.utils import interrupts
from meristem.utils.system_errors import name_file_in_errors, system_error_message
from meristem.utils.terminal import OUTPUT_NAME, emit, escape_for_stream, escape_library_messages


class PrintableGroup(TyperGroup):
    """The command group; control characters of wrong arguments are escaped in its usage errors."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the arguments before the command."""
        with _printable_usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of the command and run it."""
        with _printable_usage():
            return super().invoke(ctx)


@contextmanager
def _printable_usage() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error, whose class is private in typer
            error.message = escape_for_stream(error.message, sys.stderr)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    name="meristem",
    cls=PrintableGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Raw text in, a pretrained language model out.\n\n"
    "First steps: [bold]meristem pretrain[/bold] trains a small BERT on built-in text in three minutes; "
    "[bold]meristem pretrain gpt2-mini my-texts/[/bold] a small GPT-2 on yours.",
)


def _print_version(value: bool) -> None:
    """Print the versions that a bug report needs, and exit."""
    if not value:
        return
    import platform
    from importlib import metadata

    import meristem

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    emit(f"meristem {meristem.__version__}, Python {platform.python_version()}, torch {torch}, {platform.platform()}")
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the versions of meristem, Python and torch.",
        ),
    ] = False,
) -> None:
    """Options without a command."""


for command in (
    train.pretrain,
    train.finetune,
    train.reinforce,
    compare.compare,
    inference.predict,
    train.corpus,
    inference.evaluate,
    inference.generate,
    inference.fill,
    score.score,
    score.detect,
    embed.embed,
    attention.attention,
    federate.federate,
    reward_command.reward,
    exposure.exposure,
    robustness_command.robustness,
    label_noise_command.label_noise,
    import_export.import_,
    import_export.export,
    import_export.push,
    serve.serve,
    studio.studio,
    train.recipes,
    train.describe,
    doctor.doctor,
):
    app.command(name=command.__name__.rstrip("_").replace("_", "-"), cls=getattr(command, "command_class", None))(
        command
    )


def main() -> NoReturn:
    """Run the command; errors are printed as one message, with `--debug` as tracebacks."""
    interrupts.install_handler()
    escape_library_messages()
    if isinstance(sys.stdout, TextIOWrapper):  # names or terminals that are not UTF-8 must not stop the output
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _exit_code()
    except KeyboardInterrupt:  # while the error was being reported
        code = _report_interrupt()
    interrupts.mark_exiting()
    if code or _launch_failed():
        _exit_failed(code)
    sys.exit(0)


def _launch_failed() -> bool:
    """Whether this process or another one of its launch has reported an error; the launcher returns its exit code."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return False
    from meristem.training.launch import is_launch_ended

    return is_launch_ended()


def _exit_failed(code: int) -> NoReturn:
    """Exit after a failure; one of several processes does not wait for the others, which may be gone."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # torch's process group waits for them as long as train.distributed_timeout
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _exit_code() -> int:
    """Run the command, report errors, and return the exit code."""
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        _refuse_undecodable(sys.argv[1:])
        with keep_command_line(sys.argv[1:]):
            code = _run_app()
        with name_file_in_errors(OUTPUT_NAME):
            sys.stdout.flush()
        return _report_interrupt() if interrupts.was_interrupted() else code
    except KeyboardInterrupt:
        return _exit_if_distributed(_report_interrupt())
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        if interrupts.was_interrupted() and not hasattr(error, "signal_number"):
            return _exit_if_distributed(_report_interrupt())  # a library turned the interrupt into another error
        interrupts.mark_exiting()
        _discard_output(error)
        if debug:
            emit(traceback.format_exc(), end="", err=True)
            return _exit_if_distributed(1)
        return _exit_if_distributed(_report_error(error))


def _exit_if_distributed(code: int) -> int:
    """The exit code of a failed command; one of several processes exits here, while its exception exists.

    The exception's frames hold the process group, whose destructor waits for the other processes.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and (code or _launch_failed()):
        _exit_failed(code)
    return code


def _run_app() -> int:
    """The exit code of the command that the arguments name."""
    try:
        app(prog_name="meristem", standalone_mode=True)
    except SystemExit as system_exit:
        return system_exit.code if isinstance(system_exit.code, int) else int(system_exit.code is not None)
    return 0


def _report_interrupt() -> int:
    interrupts.announce_stop()
    interrupts.mark_exiting()
    return 130


def _refuse_undecodable(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8 at the start: they could not be written into a recipe or a log."""
    for argument in arguments:
        if argument.encode("utf-8", "replace").decode() != argument:
            raise MeristemError(f"{argument!a} is not UTF-8: rename the file or folder, or write the text in UTF-8")


def _discard_output(error: Exception) -> None:
    """Discard output that could not be written: Python would try again at exit, and print a traceback."""
    if isinstance(error, OSError) and error.filename == OUTPUT_NAME:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_error(error: Exception) -> int:
    """Print the error and return the exit code: 2 for a wrong recipe or argument, otherwise 1, or 128 + signal."""
    if is_lost_process_error(error):
        emit(f"meristem: {error}", err=True)
        return 1  # the launcher then restarts all processes
    if not isinstance(error, MeristemError):
        if (message := system_error_message(error)) is not None:
            emit(f"meristem: {message}", err=True)
            return report_exit_code(1)
        emit(
            f"meristem: an unexpected {type(error).__name__}: {error}\n"
            "This is a bug in meristem; run the same command with --debug to see where.",
            err=True,
        )
        return 1
    if is_rank_zero_process():
        emit(f"meristem: {error}", err=True)
    number = getattr(error, "signal_number", None)
    return report_exit_code(128 + int(number) if number is not None else 2 if isinstance(error, RecipeError) else 1)
