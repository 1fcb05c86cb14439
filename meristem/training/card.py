"""A model card: what a run is, what it saw, how good it is, how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meristem.learning.learner import Learner
from meristem.recipe import Recipe
from meristem.training.journal import duration
from meristem.training.standing import Standing


def text(
    recipe: Recipe,
    learner: Learner,
    sources: Sequence[str],
    standing: Standing,
    validation: Mapping[str, float],
    test: Mapping[str, float],
    commands: Sequence[str],
) -> str:
    """The card in Markdown."""
    parameters = sum(p.numel() for p in learner.model.parameters())
    model = recipe.model
    lines = [
        f"# {recipe.name}",
        "",
        f"A {model.family} language model with {parameters / 1e6:.1f} M parameters "
        f"({model.layers} layers × {model.width}, up to {model.length} tokens), "
        f"trained with Meristem for {standing.step:,} steps on {standing.tokens:,} tokens "
        f"({standing.flops:.2e} FLOPs, {duration(standing.seconds)}).",
        "",
        "## Text",
        "",
        *(f"- {source}" for source in sources),
        "",
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
        "Trained on the text named above and nothing else: it repeats what that text says, and its mistakes.",
        "",
    ]
    return "\n".join(lines)


def _cell(values: Mapping[str, float], name: str) -> str:
    return f"{values[name]:.4g}" if name in values else "–"

