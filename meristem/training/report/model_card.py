"""Model card (README.md) of a run: model, training data, metrics, usage and limitations."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from meristem.config.recipe import Recipe
from meristem.learning.learner import Learner
from meristem.training.run_logger import format_duration
from meristem.training.train_state import TrainState
from meristem.utils import untrusted_files

MAX_COMMAND_CHARS = 4096
"""Longest command that is parsed from a card: the time of `shlex` is quadratic in its length."""


def render_card(
    recipe: Recipe,
    learner: Learner,
    sources: Sequence[str],
    state: TrainState,
    validation: Mapping[str, float],
    test: Mapping[str, float],
    commands: Sequence[str],
    report_lines: Sequence[str] = (),
) -> str:
    """The model card in Markdown."""
    parameters = sum(p.numel() for p in learner.model.parameters())
    model = recipe.model
    kind = "language model" if recipe.tuned_task is None else f"model for {recipe.tuned_task.name}"
    lines = [
        f"# {recipe.name}",
        "",
        f"A {model.family} {kind} with {parameters / 1e6:.1f} M parameters "
        f"({model.layers} layers × {model.hidden_size}, up to {model.max_length} tokens), "
        f"trained with Meristem for {state.step:,} steps on {state.tokens:,} tokens "
        f"({state.flops:.2e} FLOPs, {format_duration(state.seconds)}){_start_phrase(recipe)}.",
        "",
        "## Text" if recipe.tuned_task is None else "## Data",
        "",
        *(f"- {source}" for source in sources),
        "",
        *report_lines,
        "## Numbers",
        "",
        "| measure | validation | test |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {_format_cell(validation, name)} | {_format_cell(test, name)} |"
            for name in dict.fromkeys([*validation, *test])
        ),
        "",
        "## Use",
        "",
        "```bash",
        *commands,
        "```",
        "",
        "The full recipe is in `recipe.yaml`; the same command with a larger budget resumes training.",
        "",
        _limitations(recipe),
        "",
    ]
    return "\n".join(lines)


def read_card(run_path: Path, name: str) -> str:
    """The card of a run folder (untrusted text), or only a heading if there is none."""
    path = run_path / "README.md"
    return untrusted_files.read_bytes(path).decode("utf-8", "replace") if path.is_file() else f"# {name}\n"


def split_command(line: str) -> list[str]:
    """Arguments of a `meristem` command in a card; empty for any other line."""
    if len(line) > MAX_COMMAND_CHARS or not line.startswith("meristem "):
        return []
    try:
        return shlex.split(line)
    except ValueError:
        return []


def insert_section(card: str, title: str, lines: Sequence[str], *, before: str) -> str:
    """The card with a section inserted before another one; a section of the same title is replaced."""
    first, *sections = card.split("\n## ")
    others = [section for section in sections if not section.startswith(f"{title}\n")]
    position = next((index for index, section in enumerate(others) if section.startswith(f"{before}\n")), len(others))
    others.insert(position, "\n".join([title, "", *lines]))
    return "\n## ".join([first, *others])


def _start_phrase(recipe: Recipe) -> str:
    """Phrase on where a task's weights come from."""
    if recipe.tuned_task is None:
        return ""
    return f", starting from `{recipe.start.path}`" if recipe.start.path is not None else ", from scratch"


def _limitations(recipe: Recipe) -> str:
    if recipe.tuned_task is None or recipe.start.path is None:
        kind = "text" if recipe.tuned_task is None else "data"
        return f"Trained only on the {kind} named above: the model reproduces its content, mistakes and biases."
    return "Trained on the data named above, starting from pretrained weights: it has the mistakes and biases of both."


def _format_cell(values: Mapping[str, float], name: str) -> str:
    if name not in values:
        return "–"
    return f"{values[name]:.4g}" if math.isfinite(values[name]) else "none"
