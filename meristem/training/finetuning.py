"""Fine-tuning: a task on labelled data, beginning from a run's weights, from some of them, or from nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from meristem.checkpoint.revive import recipe_of
from meristem.checkpoint.run import Run
from meristem.errors import RecipeError
from meristem.labelled.reading import Splits, splits
from meristem.learning.assemble import needs_of, objectives_of
from meristem.learning.learner import begin_of, carries, task_way
from meristem.learning.team import ALONE, Team, several
from meristem.recipe import Recipe
from meristem.settings import find
from meristem.shell_commands import shell_path
from meristem.task import Task
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train as train_tokenizer
from meristem.training.ending import Ended
from meristem.training.grid import run_grid
from meristem.training.labelling import Labelled
from meristem.training.running import run_recipe


def finetune(recipe: Recipe, out: Path, *, fresh: bool, console: Console) -> Ended:
    """Learn a task, or go on learning it, until the budget is used up; with each of a grid's settings in turn."""
    if recipe.task is None:
        raise RecipeError(f"{recipe.name} is a recipe for pretraining: meristem pretrain {shell_path(recipe.name)}")
    recipe, task, found = understood(recipe)
    if recipe.grid is None or not recipe.grid.wanted:
        return _one(recipe, out, task, found, fresh=fresh, console=console)
    if not found.samples.get("validation"):
        raise RecipeError("grid: the best is chosen on validation samples; give data.validation or data.held_out")
    if several():
        raise RecipeError("grid: its runs are made one after the other by one process; leave out --processes")
    each = partial(_one, task=task, found=found, fresh=False, console=console)
    return run_grid(recipe, out, each, fresh=fresh, console=console)


def _one(recipe: Recipe, out: Path, task: type[Task], found: Splits, *, fresh: bool, console: Console) -> Ended:
    """One run on samples that were read."""

    def gather(recipe: Recipe, before: Run | None, console: Console, team: Team) -> Labelled:
        tokenizer = Tokenizer.load(before.tokenizer_path) if before is not None else tokenizer_of(recipe, task, found)
        return labelled(recipe, task, found, tokenizer, team)

    return run_recipe(recipe, out, gather=gather, fresh=fresh, console=console)


def understood(recipe: Recipe) -> tuple[Recipe, type[Task], Splits]:
    """The samples read, and the recipe with what they and the model tell."""
    task: type[Task] = find("tasks", recipe.task.name)
    carries(task, find("models", recipe.model.family), recipe.model.family)
    found = splits(recipe.data, task.shaped(recipe.task))
    return completed(recipe, task, found), task, found


def labelled(recipe: Recipe, task: type[Task], found: Splits, tokenizer: Tokenizer, team: Team = ALONE) -> Labelled:
    """Samples that were read, as material."""
    made = task(recipe.task, tokenizer)
    strange = [line for split, some in found.samples.items() if split != "train" for line in made.strange(some)]
    notices = [*found.notices, *strange]
    return Labelled(tokenizer=tokenizer, samples=found.samples, task=made, notices=notices, team=team)


def completed(recipe: Recipe, task: type[Task], found: Splits) -> Recipe:
    """The recipe with what the data and the model tell: labels and their column, how the backbone reads, how much."""
    settings = task.learn(recipe.task, found.samples["train"])
    fields = type(settings).model_fields
    told: dict[str, object] = {}
    if "way" in fields and recipe.task.way is None:
        told["way"] = way_of(recipe, task)
    if "length" in fields and recipe.task.length is None:
        told["length"] = recipe.model.length
    if "picture" in fields and recipe.task.picture is None:
        told["picture"] = recipe.model.picture
    if "begin" in fields and not recipe.task.begin and recipe.start.path is not None:
        told["begin"] = _begin(Path(recipe.start.path))
    columns = {setting: name for setting, name in found.gold_columns.items() if getattr(recipe.data, setting) is None}
    return replace(recipe, task=settings.model_copy(update=told), data=recipe.data.model_copy(update=columns))


def way_of(recipe: Recipe, task: type[Task]) -> str:
    """How the backbone will read: the one way it can, or the way it was pretrained in."""
    pretrained = () if recipe.start.path is None else needs_of(recipe_of(Run.open(Path(recipe.start.path))))
    return task_way(task, find("models", recipe.model.family), pretrained)


def _begin(path: Path) -> tuple[int, ...]:
    run = Run.open(path)
    return begin_of(objectives_of(recipe_of(run), Tokenizer.load(run.tokenizer_path))) or ()


def tokenizer_of(recipe: Recipe, task: type[Task], found: Splits) -> Tokenizer:
    """That of the run that is begun from, or one trained on the task's own texts; with the marks a task asks for."""
    start = recipe.start
    if start.path is not None and start.tokenizer == "keep":
        tokenizer = Tokenizer.load(Run.open(Path(start.path)).tokenizer_path)
    else:
        tokenizer = train_tokenizer(
            recipe.tokenizer, (text for one in found.samples["train"] for text in task.texts(one))
        )
    marked: Tokenizer = task.marks(recipe.task, tokenizer)
    return marked
