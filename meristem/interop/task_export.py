"""Export of task runs: the task's head under its transformers name, its labels, its input template."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.recipe_parts import HeadSettings
from meristem.evaluation.run_tasks import TRANSFORMERS_PROBLEM_TYPES
from meristem.interfaces.backbone import Model
from meristem.interfaces.task import Task
from meristem.interop.model_type import SHARED_HEADS

UNSUPPORTED_TASKS = {
    "commands": "a class with an intent head and a slot head",
    "probe": "a class with a head on every layer",
}
"""Tasks without a transformers class → what the class would need."""
CRF_FEATURE = "a CRF over tags (task.crf)"


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
    task_settings = task.settings.model_dump()
    notes = _drop_crf(loaded.learner.model, task_settings) if drop_crf else ()
    _check_exportable(task, task_settings)
    name = SHARED_HEADS.get(task.name, task.name)
    model = loaded.learner.model
    if task.name not in model.heads:  # a generation task uses an objective's head
        return TaskExport(loaded=loaded, max_length=task_settings.get("max_length"))
    if task_settings["backbone_mode"] == "encoder_decoder":
        model.decoder_start_ids = tuple(task_settings["decoder_start_ids"][:1]) or None
    head = _rename_head(model, task.name, name)
    labels = tuple(
        task_settings.get("labels") or (("LABEL_0",) if task_settings.get("problem_type") == "regression" else ())
    )
    heads = {
        name: HeadSettings(
            kind=head.kind,
            sizes=dict(head.sizes),
            labels=labels,
            problem=TRANSFORMERS_PROBLEM_TYPES.get(task_settings.get("problem_type") or ""),  # type: ignore[arg-type]  # one of three
        )
    }
    return TaskExport(
        loaded=replace(loaded, recipe=replace(loaded.recipe, heads={**loaded.recipe.heads, **heads})),
        head=name,
        max_length=task_settings["max_length"],
        notes=(*notes, *_rescale_regression(model, name, task_settings)),
    )


def _rename_imported_heads(loaded: LoadedRun) -> LoadedRun:
    """A run whose heads were imported, each renamed as in its class."""
    heads = dict(loaded.recipe.heads)
    for name in [head_name for head_name in heads if head_name in SHARED_HEADS]:
        heads[SHARED_HEADS[name]] = heads.pop(name)
        _rename_head(loaded.learner.model, name, SHARED_HEADS[name])
    return replace(loaded, recipe=replace(loaded.recipe, heads=heads))


def _drop_crf(model: Model, task_settings: dict[str, Any]) -> tuple[str, ...]:
    """Remove a tagger's CRF, in place: this model is only exported."""
    if not task_settings.get("crf"):
        return ()
    task_settings["crf"] = False
    del model.heads["crf"]
    model.head_specs = {name: head for name, head in model.head_specs.items() if name != "crf"}
    return (
        "CRF: left out (--drop-crf), so each word gets its own best tag: tags differ from those of meristem predict",
    )


def _check_exportable(task: Task, task_settings: dict[str, Any]) -> None:
    """Raise an error that lists the features without a transformers class."""
    both_orders = task.name == "pair" and task.max_rows_per_sample > 1 and not task_settings.get("siamese")
    obstacles = {
        UNSUPPORTED_TASKS.get(task.name, ""): task.name in UNSUPPORTED_TASKS,
        CRF_FEATURE: task_settings.get("crf"),
        "two texts encoded separately (task.siamese)": task_settings.get("siamese"),
        "a pair encoded in both orders (task.pair_orders)": both_orders,
        "a mix of layers (task.scalar_mix)": task_settings.get("scalar_mix")
        or task_settings.get("backbone_mode") == "both_directions",
        f"a task-specific network (task.network={task_settings.get('network')})": task_settings.get("network", "none")
        != "none",
        f"a head on pooled states (task.pooling={task_settings.get('pooling')})": task_settings.get("pooling")
        is not None,
    }
    if missing := [feature for feature, is_needed in obstacles.items() if is_needed]:
        crf_only = missing == [CRF_FEATURE]
        hint = "; --drop-crf exports the per-word scores without it, whose tags differ" if crf_only else ""
        raise MeristemError(
            f"task {task.name}: transformers has no class for it, since it needs {' and '.join(missing)}; "
            f"meristem predict and meristem.load(run).predict work with the run as it is{hint}"
        )


def _rename_head(model: Model, name: str, new_name: str) -> Any:
    """Rename a head of the model, in place: this model is only exported."""
    if new_name != name:
        model.heads[new_name] = model.heads.pop(name)
        model.head_specs = {
            new_name if head_name == name else head_name: head for head_name, head in model.head_specs.items()
        }
    return model.head_specs[new_name]


def _rescale_regression(model: Model, name: str, task_settings: dict[str, Any]) -> tuple[str, ...]:
    """Fold the data's range into the head's last linear layer, so that it predicts numbers of that range."""
    if task_settings.get("problem_type") != "regression":
        return ()
    low, high = task_settings["target_range"]
    last_linear = [module for module in model.heads[name].modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        last_linear.weight.mul_((high - low) or 1.0)
        if last_linear.bias is not None:
            last_linear.bias.mul_((high - low) or 1.0).add_(low)
    if last_linear.bias is None and low:
        return (f"regression: the transformers class has no bias on its scores, so add {low:g} to its output",)
    return ()
