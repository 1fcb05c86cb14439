"""What cannot be private: recipes whose samples depend on each other are refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from meristem.config.errors import RecipeError
from meristem.config.recipe import FinetuneRecipe, PretrainRecipe, Recipe
from meristem.interfaces.backbone import MODEL_FAMILIES


def refuse_shared_samples(recipe: Recipe) -> None:
    """Raise if `train.privacy` is set and the gradient of a unit would depend on other units."""
    privacy = recipe.train.privacy
    if privacy is None:
        return
    unit = unit_of(recipe)
    if privacy.unit not in ("auto", unit):
        raise RecipeError(
            f"train.privacy.unit: {privacy.unit} cannot be protected here: each step draws {unit}s; set it to {unit}, "
            "or leave it out"
        )
    for obstacle in _obstacles(recipe):
        raise RecipeError(f"train.privacy: {obstacle}")


def unit_of(recipe: Recipe) -> str:
    """The unit of protection: a document in pretraining, a labelled sample in fine-tuning."""
    return "document" if isinstance(recipe, PretrainRecipe) else "sample"


def _obstacles(recipe: Recipe) -> Iterator[str]:
    if not isinstance(recipe, PretrainRecipe | FinetuneRecipe):
        yield "rewards compare generated texts of one prompt with each other and with earlier steps; leave it out"
        return
    for name, parts in recipe.objectives.items():
        for settings in parts:
            if settings.privacy_obstacle is not None:
                yield f"objective {settings.name} of source {name}: {settings.privacy_obstacle}"
    if recipe.train.single_task_baselines:
        yield "train.single_task_baselines trains further runs on the same data; set it to false"
    if not isinstance(recipe, PretrainRecipe):
        return
    if recipe.dataset.shuffle_documents:
        yield "dataset.shuffle_documents packs documents, and rows are of one document each; leave it out"
    requested = recipe.dataset.contiguous_batches
    is_contiguous = recipe.model.carries_memory if requested is None else requested
    if is_contiguous and "memory" in MODEL_FAMILIES[recipe.model.family].capabilities:
        yield (
            f"the memory of {recipe.model.family} carries one text into the rows of the next; set "
            "dataset.contiguous_batches=false, which trains without memory"
        )
