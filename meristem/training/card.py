"""A model card: what a run is, what it saw, how good it is, how to use it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from meristem import bounded
from meristem.learning.learner import Learner
from meristem.recipe import Recipe
from meristem.training.journal import duration
from meristem.training.standing import Standing

LONGEST_COMMAND = 4096
"""Characters of a command that is read from a card: the time `shlex` needs grows with their square."""


def text(
    recipe: Recipe,
    learner: Learner,
    sources: Sequence[str],
    standing: Standing,
    validation: Mapping[str, float],
    test: Mapping[str, float],
    commands: Sequence[str],
    left: Sequence[str] = (),
) -> str:
    """The card in Markdown."""
    parameters = sum(p.numel() for p in learner.model.parameters())
    model = recipe.model
    kind = "language model" if recipe.task is None else f"model for {recipe.task.name}"
    lines = [
        f"# {recipe.name}",
        "",
        f"A {model.family} {kind} with {parameters / 1e6:.1f} M parameters "
        f"({model.layers} layers × {model.width}, up to {model.length} tokens), "
        f"trained with Meristem for {standing.step:,} steps on {standing.tokens:,} tokens "
        f"({standing.flops:.2e} FLOPs, {duration(standing.seconds)}){_begun(recipe)}.",
        "",
        "## Text" if recipe.task is None else "## Data",
        "",
        *(f"- {source}" for source in sources),
        "",
        *left,
        "## Numbers",
        "",
        "| measure | validation | test |",
        "| --- | --- | --- |",
        *(
            f"| {name} | {_cell(validation, name)} | {_cell(test, name)} |"
            for name in dict.fromkeys([*validation, *test])
        ),
        "",
        "## Use",
        "",
        "```bash",
        *commands,
        "```",
        "",
        "The whole recipe is in `recipe.yaml`; the same command goes on with the run where the budget grows.",
        "",
        _limits(recipe),
        "",
    ]
    return "\n".join(lines)


def read_card(run: Path, name: str) -> str:
    """The card of a run folder as anybody may have left it, or a heading alone where there is none."""
    path = run / "README.md"
    return bounded.content(path, bounded.SMALL.size).decode("utf-8", "replace") if path.is_file() else f"# {name}\n"


def command_words(line: str) -> list[str]:
    """The words of a command in a card; none where the line is no `meristem` command."""
    if len(line) > LONGEST_COMMAND or not line.startswith("meristem "):
        return []
    try:
        return shlex.split(line)
    except ValueError:
        return []


def with_section(text: str, title: str, lines: Sequence[str], *, before: str) -> str:
    """A card with a section of this title, put before another one; a section of the same title is replaced."""
    first, *sections = text.split("\n## ")
    kept = [section for section in sections if not section.startswith(f"{title}\n")]
    place = next((number for number, one in enumerate(kept) if one.startswith(f"{before}\n")), len(kept))
    kept.insert(place, "\n".join([title, "", *lines]))
    return "\n## ".join([first, *kept])


def _begun(recipe: Recipe) -> str:
    """Where a task's weights come from."""
    if recipe.task is None:
        return ""
    return f", begun from `{recipe.start.path}`" if recipe.start.path is not None else ", from scratch"


def _limits(recipe: Recipe) -> str:
    if recipe.task is None or recipe.start.path is None:
        what = "text" if recipe.task is None else "data"
        return f"Trained on the {what} named above and nothing else: it repeats what is said there, and its mistakes."
    return "It knows what the weights it began from had read and the data named above, with the mistakes of both."


def _cell(values: Mapping[str, float], name: str) -> str:
    if name not in values:
        return "–"
    return f"{values[name]:.4g}" if math.isfinite(values[name]) else "none"

