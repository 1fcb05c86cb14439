"""The tasks of a run: the one it was fine-tuned for, or those whose heads came with imported weights."""

from __future__ import annotations

import shlex

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.recipe_parts import HeadSettings
from meristem.generation.head_selection import supported_operations
from meristem.interfaces.task import TASKS, Task
from meristem.interfaces.task_parts import HeadClasses
from meristem.learning.build import required_capabilities
from meristem.learning.learner import decoder_start_ids, task_backbone_mode

TRANSFORMERS_PROBLEM_TYPES = {
    "single": "single_label_classification",
    "multiple": "multi_label_classification",
    "regression": "regression",
}
"""Our problem types → those of transformers."""
PROBLEM_TYPES = {theirs: ours for ours, theirs in TRANSFORMERS_PROBLEM_TYPES.items()}


def run_tasks(loaded_run: LoadedRun) -> dict[str, Task]:
    """Tasks by name; a head belongs to the task of the same name."""
    tasks = {
        objective.name: objective for objective in loaded_run.learner.objectives.values() if isinstance(objective, Task)
    }
    task_settings = loaded_run.recipe.tuned_task
    if task_settings is not None and task_settings.name not in tasks:  # before reward training
        tasks[task_settings.name] = TASKS[task_settings.name](task_settings, loaded_run.tokenizer)
    for name, head in loaded_run.recipe.heads.items():
        if name in TASKS and name not in tasks and name not in loaded_run.state.get("new", ()):
            tasks[name] = _build_task(name, head, loaded_run)
    return tasks


def _build_task(name: str, head: HeadSettings, loaded_run: LoadedRun) -> Task:
    """A task for an imported head: the tokenizer's own special tokens, or none."""
    task_class = TASKS[name]
    problem_type = PROBLEM_TYPES[head.problem] if head.problem else "regression" if len(head.labels) == 1 else "single"
    # the only mode that the backbone has, or that of its objective
    backbone_mode = task_backbone_mode(
        task_class, type(loaded_run.learner.model.backbone), required_capabilities(loaded_run.recipe)
    )
    is_regression = problem_type == "regression"
    classes = HeadClasses(
        labels=() if is_regression else head.labels,
        problem_type=problem_type,
        target_range=(0.0, 1.0) if is_regression else None,  # the head predicts the number itself
    )
    task_settings = {
        "name": name,
        "backbone_mode": backbone_mode,
        "max_length": loaded_run.recipe.model.max_length,
        "decoder_start_ids": decoder_start_ids(loaded_run.learner.objectives) or (),
        "add_special_tokens": False,
        **task_class.Settings.of_classes(classes),
    }
    return task_class(task_class.Settings.model_validate(task_settings), loaded_run.tokenizer)


def select_task(tasks: dict[str, Task], loaded_run: LoadedRun, name: str | None = None) -> Task:
    """The named task, or the only one; the error for a run without tasks says what it can do instead."""
    run_path = loaded_run.run.path
    if not tasks:
        operations = supported_operations(loaded_run.learner.model)
        alternatives = f"it supports {' and '.join(operations)}; " if operations else ""
        raise MeristemError(
            f"{run_path} has no task to predict: {alternatives}"
            f"meristem finetune classification {shlex.quote(f'from={run_path}')} data.train=FILE trains one"
        )
    if name is not None and name not in tasks:
        raise MeristemError(f"{run_path} has no task {name}; it has {', '.join(tasks)}")
    return tasks[name] if name is not None else next(iter(tasks.values()))
