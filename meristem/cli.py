"""The command line: the verbs in their order, and errors that speak to the person."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from meristem.verbs import embedding, looking, rewarding, scoring, serving, studio, training, using, weights

app = typer.Typer(
    name="meristem",
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
    print(f"meristem {meristem.__version__}, Python {platform.python_version()}, torch {torch}, {platform.platform()}")
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
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        app(prog_name="meristem", standalone_mode=True)
        sys.exit(0)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        _exit_failed(130)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        if debug:
            traceback.print_exc()
            _exit_failed(1)
        _exit_failed(_told(error))


def _exit_failed(code: int) -> NoReturn:
    """End a command that failed; one of several processes does not wait for the others, which may be gone."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # torch's process group, when it is destroyed at a normal exit, waits for them as long as train.timeout
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _told(error: Exception) -> int:
    """Print what a person can act on, and choose the exit code."""
    from meristem.errors import MeristemError, RecipeError, disk_problem
    from meristem.training.launching import judged, lost, speaks

    if lost(error):
        print(f"meristem: {error}", file=sys.stderr)
        return 1  # which asks for a new start
    if isinstance(error, OSError) and (problem := disk_problem(error)) is not None:
        print(f"meristem: {problem}", file=sys.stderr)
        return judged(1)
    if not isinstance(error, MeristemError):
        print(
            f"meristem: an unexpected {type(error).__name__}: {error}\n"
            "This is a fault in meristem; the same command with --debug shows where.",
            file=sys.stderr,
        )
        return 1
    if speaks():
        print(f"meristem: {error}", file=sys.stderr)
    number = getattr(error, "number", None)
    return judged(128 + int(number) if number is not None else 2 if isinstance(error, RecipeError) else 1)
