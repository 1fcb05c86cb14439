"""The tasks of a model: the one it was trained for here, or those whose heads came along with published weights."""

from __future__ import annotations

import shlex
from typing import Any

from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.generation.way import verbs_of
from meristem.learning.assemble import needs_of
from meristem.learning.learner import begin_of, task_way
from meristem.recipe import HeadSettings
from meristem.settings import find, names
from meristem.task import Task

PROBLEMS = {
    "regression": "regression",
    "single_label_classification": "single",
    "multi_label_classification": "multiple",
}
"""Their names of what a head predicts → ours."""


def tasks_of(revived: Revived) -> dict[str, Task]:
    """By name; a head is a task's where both have the same name."""
    found = {one.name: one for one in revived.learner.objectives.values() if isinstance(one, Task)}
    taught = revived.recipe.task
    if revived.recipe.policy is not None and taught is not None:  # what it answered before it was rewarded
        found[taught.name] = find("tasks", taught.name)(taught, revived.tokenizer)
    for name, head in revived.recipe.heads.items():
        if name in names("tasks") and name not in found and name not in revived.state.get("new", ()):
            found[name] = _task(name, head, revived)
    return found


def _task(name: str, head: HeadSettings, revived: Revived) -> Task:
    """A task that reads texts as the published model does: the tokenizer's own frame, or none."""
    task: type[Task] = find("tasks", name)
    problem = PROBLEMS[head.problem] if head.problem else "regression" if len(head.labels) == 1 else "single"
    known: dict[str, Any] = {
        "way": _way(task, revived),
        "length": revived.recipe.model.length,
        "begin": begin_of(revived.learner.objectives) or (),
        "framed": False,
        "labels": () if problem == "regression" else head.labels,
        "problem": problem,
        "range": (0.0, 1.0) if problem == "regression" else None,  # what it says is the number itself
    }
    told = {key: value for key, value in known.items() if key in task.Settings.model_fields}
    return task(task.Settings.model_validate({"name": name, **told}), revived.tokenizer)


def _way(task: type[Task], revived: Revived) -> str:
    """How the backbone reads: the one way it can, or the way of its objective."""
    return task_way(task, type(revived.learner.model.backbone), needs_of(revived.recipe))


def the_task(tasks: dict[str, Task], revived: Revived, wanted: str | None = None) -> Task:
    """The one that is asked for, or the only one; what a run without any can do instead is said."""
    place = revived.run.path
    if not tasks:
        can = verbs_of(revived.learner.model)
        instead = f"it can {' and '.join(can)}; " if can else ""
        raise MeristemError(
            f"{place} has no task to predict: {instead}"
            f"meristem finetune classification {shlex.quote(f'from={place}')} data.train=FILE teaches it one"
        )
    if wanted is not None and wanted not in tasks:
        raise MeristemError(f"{place} has no task {wanted}; it has {', '.join(tasks)}")
    return tasks[wanted] if wanted is not None else next(iter(tasks.values()))
