"""Output of the commands: messages on stderr, results on stdout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meristem.utils import untrusted_files
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from rich.console import Console

    from meristem.api import LoadedModel
    from meristem.cli.options import Checkpoint, Precision, Quantize
    from meristem.generation.generated_text import GeneratedText


def stderr_console() -> Console:
    """The console for progress and messages, on stderr."""
    from meristem.utils.console import TerminalConsole

    return TerminalConsole(stderr=True)


def print_message(text: str) -> None:
    """Print a message on stderr verbatim: no highlighting, no line wrapping."""
    stderr_console().print(text, highlight=False, markup=False, soft_wrap=True)


def load_model(
    run: Path, which: Checkpoint, *, precision: Precision = "float32", quantize: Quantize = None
) -> LoadedModel:
    """Load a run and print its notices (such as damaged checkpoints that were skipped, or how it computes)."""
    from meristem import api

    loaded = api.load(run, which=which, precision=precision, quantize=quantize)
    for notice in loaded.loaded_run.notices:
        print_message(notice)
    return loaded


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    emit(untrusted_files.to_json(value))


def generated_text_json(prompt: object, generated: GeneratedText) -> dict[str, Any]:
    """A generated text with its prompt as JSON data."""
    fields = {name: getattr(generated, name) for name in ("text", "score", "finished", "seed")}
    return {"prompt": str(prompt), **fields}


def print_evaluation(evaluation: Mapping[str, Any]) -> None:
    """Print one metric per line, with its confidence interval if there is one; notices go to stderr."""
    for notice in evaluation.get("notices", ()):
        print_message(notice)
    intervals = evaluation.get("intervals", {})
    for name, value in evaluation["metrics"].items():
        interval = "  95 %: {:.6g} to {:.6g}".format(*intervals[name]) if name in intervals else ""
        number = "none" if math.isnan(value) else f"{value:.6g}"
        emit(f"{name:<24} {number:<10}{interval}".rstrip())
    for name, share in evaluation.get("unknown", {}).items():
        emit(f"{f'{name} tokens':<24} {share:<10.6g}".rstrip())
    if evaluation.get("signature"):
        emit(evaluation["signature"])
