"""Fine-tuning a task on labelled data, from pretrained weights, from part of them, or from scratch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from rich.console import Console

from meristem.checkpoint.load_run import load_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import RecipeError
from meristem.config.recipe import FinetuneRecipe, Recipe
from meristem.distributed.initialization import is_distributed
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.finetune.augmentation import check_augmentation, noisy_samples
from meristem.finetune.grid import run_grid
from meristem.finetune.labelled_data import LabelledData
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS, Task
from meristem.labelled.load import DatasetSplits, load_splits
from meristem.learning.build import build_objectives, required_capabilities
from meristem.learning.learner import check_task, decoder_start_ids, task_backbone_mode
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer
from meristem.training.run_result import RunResult
from meristem.training.trainer import run_recipe
from meristem.utils.shell_quoting import shell_path


def finetune(recipe: Recipe, out: Path, *, fresh: bool, console: Console) -> RunResult:
    """Train a task until the budget is used up, resuming if the run exists; or every run of a hyperparameter grid."""
    if not isinstance(recipe, FinetuneRecipe):
        raise RecipeError(f"{recipe.name} is a recipe for pretraining: meristem pretrain {shell_path(recipe.name)}")
    recipe, task, data_splits = prepare_task(recipe)
    if not recipe.grid.has_several_runs:
        return _finetune_run(recipe, out, task, data_splits, fresh=fresh, console=console)
    if not data_splits.samples.get("validation"):
        raise RecipeError("grid: the best run is chosen on validation samples; set data.validation or data.held_out")
    if is_distributed():
        raise RecipeError("grid: its runs are trained one after the other in one process; leave out --processes")
    train_run = partial(_finetune_run, task=task, data_splits=data_splits, fresh=False, console=console)
    return run_grid(recipe, out, train_run, fresh=fresh, console=console)


def _finetune_run(
    recipe: FinetuneRecipe, out: Path, task: type[Task], data_splits: DatasetSplits, *, fresh: bool, console: Console
) -> RunResult:
    """Train one run on samples that are already loaded."""

    def load_data(
        recipe: FinetuneRecipe, existing_run: RunFolder | None, console: Console, distributed: DistributedContext
    ) -> LabelledData:
        tokenizer = (
            Tokenizer.load(existing_run.tokenizer_path)
            if existing_run is not None
            else build_tokenizer(recipe, task, data_splits)
        )
        return build_labelled_data(recipe, task, data_splits, tokenizer, distributed)

    return run_recipe(recipe, out, load_data=load_data, fresh=fresh, console=console)


def prepare_task(recipe: FinetuneRecipe) -> tuple[FinetuneRecipe, type[Task], DatasetSplits]:
    """Load the samples, and complete the recipe with what is inferred from them and the model."""
    task = TASKS[recipe.task.name]
    check_task(task, MODEL_FAMILIES[recipe.model.family], recipe.model.family)
    if recipe.data.augment is not None:
        check_augmentation(recipe.data.augment, task.sample_type_for(recipe.task), recipe.task.name)
    data_splits = load_splits(recipe.data, task.sample_type_for(recipe.task), task.signature.column_fields)
    return complete_recipe(recipe, task, data_splits), task, data_splits


def build_labelled_data(
    recipe: FinetuneRecipe,
    task: type[Task],
    data_splits: DatasetSplits,
    tokenizer: Tokenizer,
    distributed: DistributedContext = SINGLE_PROCESS,
) -> LabelledData:
    """Loaded samples as training data, with warnings about labels that the training data do not have."""
    built_task = task(recipe.task, tokenizer)
    task_notices = [
        line
        for split, samples in data_splits.samples.items()
        if split != "train"
        for line in built_task.metrics.unseen_labels(samples)
    ]
    notices = [*data_splits.notices, *task_notices]
    return LabelledData(
        recipe=recipe,
        tokenizer=tokenizer,
        samples=data_splits.samples,
        task=built_task,
        notices=notices,
        distributed=distributed,
    )


def complete_recipe(recipe: FinetuneRecipe, task: type[Task], data_splits: DatasetSplits) -> FinetuneRecipe:
    """The recipe with settings inferred from data and model: labels, their column, backbone mode, maximum length."""
    settings = task.complete_settings(task.fit_settings(recipe.task, data_splits.samples["train"]), recipe.model)
    inferred: dict[str, object] = {}
    if settings.backbone_mode is None:
        inferred["backbone_mode"] = infer_backbone_mode(recipe, task)
    if not settings.decoder_start_ids and recipe.start.path is not None:
        inferred["decoder_start_ids"] = _decoder_start_ids(Path(recipe.start.path))
    label_columns = {
        setting: name for setting, name in data_splits.gold_columns.items() if getattr(recipe.data, setting) is None
    }
    return replace(recipe, task=settings.model_copy(update=inferred), data=recipe.data.model_copy(update=label_columns))


def infer_backbone_mode(recipe: FinetuneRecipe, task: type[Task]) -> str:
    """Backbone mode: the only one it supports, or the one it was pretrained in."""
    pretrained_needs = (
        () if recipe.start.path is None else required_capabilities(load_recipe(RunFolder.open(Path(recipe.start.path))))
    )
    return task_backbone_mode(task, MODEL_FAMILIES[recipe.model.family], pretrained_needs)


def _decoder_start_ids(path: Path) -> tuple[int, ...]:
    run = RunFolder.open(path)
    return decoder_start_ids(build_objectives(load_recipe(run), Tokenizer.load(run.tokenizer_path))) or ()


def build_tokenizer(recipe: FinetuneRecipe, task: type[Task], data_splits: DatasetSplits) -> Tokenizer:
    """The pretrained run's tokenizer, or one trained on the task's texts; with the special tokens a task needs."""
    start = recipe.start
    if start.path is not None and start.tokenizer == "keep":
        tokenizer = Tokenizer.load(RunFolder.open(Path(start.path)).tokenizer_path)
    else:
        samples: Iterable[Sample] = data_splits.samples["train"]
        if recipe.data.augment is not None:  # otherwise what noise makes of a word would be unknown tokens
            noisy = noisy_samples(data_splits.samples["train"], task.sample_type_for(recipe.task), recipe.data.augment)
            samples = chain(samples, noisy)
        tokenizer = train_tokenizer(
            recipe.tokenizer, (text for sample in samples for text in task.sample_texts(sample))
        )
    return task.extend_tokenizer(recipe.task, tokenizer)
