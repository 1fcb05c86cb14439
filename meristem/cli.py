"""The command line: the verbs in their order, and errors that speak to the person."""

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

from meristem import interrupts
from meristem.errors import MeristemError, RecipeError
from meristem.system_errors import naming_file, system_error_message
from meristem.terminal import OUTPUT, emit, escape_library_messages, for_stream
from meristem.training.launching import judged, lost, speaks
from meristem.verbs import embedding, looking, rewarding, scoring, serving, studio, training, using, weights


class PrintableGroup(TyperGroup):
    """The commands, whose messages about wrong arguments show no control characters of these."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the words before the command."""
        with _printable_usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Read the words after the command, and run it."""
        with _printable_usage():
            return super().invoke(ctx)


@contextmanager
def _printable_usage() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error, whose class typer keeps to itself
            error.message = for_stream(error.message, sys.stderr)  # type: ignore[attr-defined]
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


def _print_version(wanted: bool) -> None:
    """This version, and those a report of a problem needs."""
    if not wanted:
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
    """Options that need no command."""


for verb in (
    training.pretrain,
    training.finetune,
    training.reinforce,
    using.predict,
    training.corpus,
    using.evaluate,
    using.generate,
    using.fill,
    scoring.score,
    scoring.detect,
    embedding.embed,
    looking.attention,
    rewarding.reward,
    weights.import_,
    weights.export,
    serving.serve,
    studio.studio,
    training.recipes,
    training.describe,
):
    app.command(name=verb.__name__.rstrip("_"))(verb)


def main() -> NoReturn:
    """Run the command; people get sentences, `--debug` gets tracebacks."""
    interrupts.install_handler()
    escape_library_messages()
    if isinstance(sys.stdout, TextIOWrapper):  # a name that is no UTF-8, or a terminal that is none, stops no answer
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _exit_code()
    except KeyboardInterrupt:  # while its end was being told
        code = _interrupted()
    interrupts.ending()
    if code or _launch_failed():
        _exit_failed(code)
    sys.exit(0)


def _launch_failed() -> bool:
    """Whether this process or another of its launch has said why it cannot go on; the launcher returns that code."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return False
    from meristem.training.launching import condemned

    return condemned()


def _exit_failed(code: int) -> NoReturn:
    """End a command that failed; one of several processes does not wait for the others, which may be gone."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # torch's process group, when it is destroyed at a normal exit, waits for them as long as train.timeout
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _exit_code() -> int:
    """Run the command and say what went wrong."""
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        _refuse_undecodable(sys.argv[1:])
        code = _run_app()
        with naming_file(OUTPUT):
            sys.stdout.flush()
        return _interrupted() if interrupts.was_pressed() else code
    except KeyboardInterrupt:
        return _failed(_interrupted())
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        if interrupts.was_pressed() and not hasattr(error, "number"):
            return _failed(_interrupted())  # what a library made of it
        interrupts.ending()
        _drop_unwritten(error)
        if debug:
            emit(traceback.format_exc(), end="", err=True)
            return _failed(1)
        return _failed(_told(error))


def _failed(code: int) -> int:
    """The exit code of a command that failed; one of several processes ends here, while its exception exists.

    The exception's frames hold the process group, which waits for the other processes when it is freed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and (code or _launch_failed()):
        _exit_failed(code)
    return code


def _run_app() -> int:
    """The exit code of the command that the arguments name."""
    try:
        app(prog_name="meristem", standalone_mode=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _interrupted() -> int:
    interrupts.announce()
    interrupts.ending()
    return 130


def _refuse_undecodable(arguments: Sequence[str]) -> None:
    """Refuse arguments that are no UTF-8 before anything begins: they could not be written into a recipe or a log."""
    for argument in arguments:
        if argument.encode("utf-8", "replace").decode() != argument:
            raise MeristemError(f"{argument!a} is not UTF-8: rename the file or folder, or write the text in UTF-8")


def _drop_unwritten(error: Exception) -> None:
    """Forget output that could not be written: Python would try once more at the end, and show a traceback."""
    if isinstance(error, OSError) and error.filename == OUTPUT:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: Exception) -> int:
    """Print what a person can act on, and choose the exit code."""
    if lost(error):
        emit(f"meristem: {error}", err=True)
        return 1  # which asks for a new start
    if not isinstance(error, MeristemError):
        if (message := system_error_message(error)) is not None:
            emit(f"meristem: {message}", err=True)
            return judged(1)
        emit(
            f"meristem: an unexpected {type(error).__name__}: {error}\n"
            "This is a fault in meristem; the same command with --debug shows where.",
            err=True,
        )
        return 1
    if speaks():
        emit(f"meristem: {error}", err=True)
    number = getattr(error, "number", None)
    return judged(128 + int(number) if number is not None else 2 if isinstance(error, RecipeError) else 1)
