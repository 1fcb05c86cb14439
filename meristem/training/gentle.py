"""The rate at which all weights of a wide model learn a task, where none is given.

The recipes of tasks are made for mini models of width 256; a published BERT of width 768 forgets everything at their
rates. The papers' rates (2e-5 to 5e-5 for width 768, 1e-5 to 3e-5 for 1,024) lie near 3e-4 · (256 / width)².
"""

from __future__ import annotations

from typing import Any

from meristem.recipe import Recipe

WIDTH, RATE = 256, 3e-4
"""What a mini model has, and a rate that all of them bear."""


def gentle(model: Any) -> float | None:
    """The rate for a Transformer of this shape; none where a recipe's own will do."""
    width = int(getattr(model, "width", WIDTH))
    if width <= WIDTH or not hasattr(model, "heads"):  # recurrent nets learn at rates of their own
        return None
    return float(f"{RATE * (WIDTH / width) ** 2:.1e}")


def told(recipe: Recipe) -> str:
    """What is said of a run that learns so."""
    if recipe.task is None or recipe.train.rate != gentle(recipe.model):
        return ""
    return f"; all of it learns at {recipe.train.rate:g}, which suits its width (train.rate sets another)"
