"""Export of task runs: the task's head under its transformers name, its labels, its input template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.recipe_parts import HeadSettings
from meristem.evaluation.run_tasks import TRANSFORMERS_PROBLEM_TYPES
from meristem.interfaces.backbone import Model
from meristem.interfaces.task import Task
from meristem.interfaces.task_parts import HeadClasses
from meristem.interop.model_type import shared_head
from meristem.tasks.components.tag_head import CRF_OBSTACLE


@dataclass(frozen=True, kw_only=True)
class TaskExport:
    """A run prepared for export with its task's head."""

    loaded: LoadedRun
    head: str | None = None
    """The head that the class must have."""
    max_length: int | None = None
    """Maximum tokens of a text."""
    notes: tuple[str, ...] = ()


def prepare_task_export(loaded: LoadedRun, *, drop_crf: bool = False) -> TaskExport:
    """The run with its task's head renamed as in transformers; unsupported features are an error.

    `drop_crf` removes a tagger's CRF, so that its per-word scores can be exported.
    """
    task = next((candidate for candidate in loaded.learner.objectives.values() if isinstance(candidate, Task)), None)
    if task is None:
        return TaskExport(loaded=_rename_imported_heads(loaded))
    model, parts, max_length = loaded.learner.model, task.parts, task.settings.max_length
    notes = _drop_crf(model, parts.export_obstacles) if drop_crf else ()
    _check_exportable(task, dropped=(CRF_OBSTACLE,) if drop_crf else ())
    name = task.signature.export_head
    if name is None:  # a generation task uses an objective's head
        return TaskExport(loaded=loaded, max_length=max_length)
    if task.settings.backbone_mode == "encoder_decoder":
        model.decoder_start_ids = tuple(task.settings.decoder_start_ids[:1]) or None
    head, classes = _rename_head(model, task.name, name), parts.head.classes
    exported_head = HeadSettings(
        kind=head.kind,
        sizes=dict(head.sizes),
        labels=classes.labels if classes.target_range is None else ("LABEL_0",),
        problem=TRANSFORMERS_PROBLEM_TYPES.get(classes.problem_type or ""),  # type: ignore[arg-type]  # one of three
    )
    return TaskExport(
        loaded=replace(loaded, recipe=replace(loaded.recipe, heads={**loaded.recipe.heads, name: exported_head})),
        head=name,
        max_length=max_length,
        notes=(*notes, *_rescale_regression(model, name, classes)),
    )


def _rename_imported_heads(loaded: LoadedRun) -> LoadedRun:
    """A run whose heads were imported, each renamed as in its class."""
    heads = dict(loaded.recipe.heads)
    for name in [head_name for head_name in heads if shared_head(head_name)]:
        heads[shared_head(name)] = heads.pop(name)
        _rename_head(loaded.learner.model, name, shared_head(name))
    return replace(loaded, recipe=replace(loaded.recipe, heads=heads))


def _drop_crf(model: Model, obstacles: Sequence[str]) -> tuple[str, ...]:
    """Remove a tagger's CRF, in place: this model is only exported."""
    if CRF_OBSTACLE not in obstacles:
        return ()
    del model.heads["crf"]
    model.head_specs = {name: head for name, head in model.head_specs.items() if name != "crf"}
    return (
        "CRF: left out (--drop-crf), so each word gets its own best tag: tags differ from those of meristem predict",
    )


def _check_exportable(task: Task, dropped: Sequence[str]) -> None:
    """Raise an error that lists the features without a transformers class."""
    obstacles = [obstacle for obstacle in task.parts.export_obstacles if obstacle not in dropped]
    if task.signature.export_head is None and task.signature.output != "text" and not obstacles:
        obstacles = ["a class with its head"]
    if obstacles:
        hint = "; --drop-crf exports the per-word scores without it, whose tags differ"
        raise MeristemError(
            f"task {task.name}: transformers has no class for it, since it needs {' and '.join(obstacles)}; "
            f"meristem predict and meristem.load(run).predict work with the run as it is"
            f"{hint if obstacles == [CRF_OBSTACLE] else ''}"
        )


def _rename_head(model: Model, name: str, new_name: str) -> Any:
    """Rename a head of the model, in place: this model is only exported."""
    if new_name != name:
        model.heads[new_name] = model.heads.pop(name)
        model.head_specs = {
            new_name if head_name == name else head_name: head for head_name, head in model.head_specs.items()
        }
    return model.head_specs[new_name]


def _rescale_regression(model: Model, name: str, classes: HeadClasses) -> tuple[str, ...]:
    """Fold the data's range into the head's last linear layer, so that it predicts numbers of that range."""
    if classes.target_range is None:
        return ()
    low, high = classes.target_range
    last_linear = [module for module in model.heads[name].modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        last_linear.weight.mul_((high - low) or 1.0)
        if last_linear.bias is not None:
            last_linear.bias.mul_((high - low) or 1.0).add_(low)
    if last_linear.bias is None and low:
        return (f"regression: the transformers class has no bias on its scores, so add {low:g} to its output",)
    return ()
