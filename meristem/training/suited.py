"""The rate at which all weights of a run, or of published weights, learn a task where none is given.

The recipes of tasks begin with nothing, with a model of width 256. What was trained before wants another rate:
published models lie near 3e-4 · (256 / width)² (the papers' 2e-5 to 5e-5 for width 768, 1e-5 to 3e-5 for 1,024), and
matrices that Muon made are larger and move less, so that three times as much suits them (docs/log.md).
"""

from __future__ import annotations

from meristem.recipe import Recipe

WIDTH, RATE, MUON = 256, 3e-4, 1e-3
"""A mini model's width, and what suits one that AdamW trained, or Muon."""


def suited(before: Recipe) -> float | None:
    """The rate for a Transformer with that past; none where a recipe's own will do."""
    model, muon = before.model, before.train.optimizer == "muon"
    if not hasattr(model, "heads") or (model.width <= WIDTH and not muon):  # recurrent nets learn at rates of their own
        return None
    return float(f"{(MUON if muon else RATE) * min(1.0, WIDTH / model.width) ** 2:.1e}")


def told(recipe: Recipe, before: Recipe) -> str:
    """What is said of a run that learns so; nothing where it does not."""
    if recipe.task is None or recipe.train.rate != suited(before):
        return ""
    return f"All of it learns at {recipe.train.rate:g}, which suits how it was trained before (train.rate sets another)"
