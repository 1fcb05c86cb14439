"""Export of a run to a folder that transformers opens: config.json, safetensors, tokenizer, model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError, did_you_mean
from meristem.config.recipe import ReinforceRecipe
from meristem.interfaces.objective import OBJECTIVES
from meristem.interop.atomic_folder import atomic_folder
from meristem.interop.card_metadata import NO_OPTIONS, CardOptions
from meristem.interop.export_alternatives import suggest_alternatives
from meristem.interop.exported_card import build_exported_card
from meristem.interop.model_files import build_model_files, write_model
from meristem.interop.model_type import TASK_KEY, ModelType, iter_export_types, shared_head
from meristem.interop.task_export import prepare_task_export
from meristem.utils.result_tables import Tabular

REWARD_HEADS = ("leash", "value")
"""Heads that exist only during reward training."""


@dataclass(frozen=True, kw_only=True)
class ExportResult(Tabular):
    """The exported folder."""

    folder: Path
    architecture: str
    parameters: int
    notes: tuple[str, ...] = ()
    """What was left out or added to fit the transformers class."""

    def __repr__(self) -> str:
        return f"ExportResult({self.summary().splitlines()[0]})"

    def summary(self) -> str:
        """A few lines for the command line."""
        first = f"{self.architecture}, {self.parameters / 1e6:.1f} M parameters, in {self.folder}"
        return "\n".join([first, *self.notes])


def export_run(
    run: Path,
    out: Path,
    *,
    architecture: str | None = None,
    drop_crf: bool = False,
    extra_files: Mapping[str, str] | None = None,
    card_options: CardOptions = NO_OPTIONS,
) -> ExportResult:
    """Write config.json, weights, tokenizer and a model card, complete or not at all.

    Heads that the transformers class lacks are an error unless `architecture` names the class; `drop_crf` exports a
    tagger without its CRF. A head that is a model of its own in transformers goes into a subfolder of its name.
    `extra_files` (path → content) are written beside.
    """
    from meristem.interop import elmo_files  # elmo_files imports this module

    loaded = load_run(run)
    if loaded.recipe.model.family == "elmo" and loaded.recipe.tuned_task is None:
        return elmo_files.export_elmo(loaded, out)
    task = next((name for name in loaded.learner.model.heads if shared_head(name)), None)
    task_export = prepare_task_export(loaded, drop_crf=drop_crf)
    loaded = task_export.loaded
    model_type = find_export_type(loaded, architecture)
    model_type, heads, chosen_class = _select_heads(model_type, loaded, architecture)
    if architecture is None and task_export.head is not None and task_export.head not in heads:
        task_name = task_export.head if loaded.recipe.tuned_task is None else loaded.recipe.tuned_task.name
        raise MeristemError(f"transformers has no {model_type.name} with a head for task {task_name}")
    subfolder_types = _subfolder_heads(model_type, loaded, heads)
    omitted = _omitted_heads(model_type, loaded, (*heads, *subfolder_types), chosen_class)
    if architecture is None and task_export.head is None and omitted:  # the head of a task run must be in the class
        hint = f"--architecture {chosen_class} exports it without {' and '.join(omitted)}"
        raise MeristemError(f"no {model_type.name} class has all heads of this run; {hint}")
    model = build_model_files(model_type, task_export, heads, chosen_class, {TASK_KEY: task} if task else {})
    subfolder_models = {
        name: build_model_files(head_type, task_export, (name,), cls)
        for name, (cls, head_type) in subfolder_types.items()
    }
    notes = [*task_export.notes, *(reason for reason in omitted.values()), *model.notes]
    notes += [f"{name}: {files.architecture} in the subfolder {name}" for name, files in subfolder_models.items()]
    card = build_exported_card(loaded, chosen_class, heads, notes, tuple(subfolder_models), card_options)
    with atomic_folder(out) as folder:
        write_model(folder, model, {"README.md": card, **(extra_files or {})})
        for name, files in subfolder_models.items():
            write_model(folder / name, files)
    parameters = model.parameters + sum(files.parameters for files in subfolder_models.values())
    return ExportResult(folder=out, architecture=chosen_class, parameters=parameters, notes=tuple(notes))


def find_export_type(loaded: LoadedRun, architecture: str | None = None) -> type[ModelType]:
    """The transformers model type of a run, the one with the requested class if there are several."""
    recipe, problems, fitting = loaded.recipe, list[str](), list[type[ModelType]]()
    head_kinds = {head.kind for head in loaded.learner.model.head_specs.values()}
    for model_type in iter_export_types(recipe.model.family):
        differences = model_type.unsupported_settings(recipe.model, head_kinds)
        differences += _unsupported_objectives(model_type, loaded)
        if differences:
            problems.append(f"{model_type.name} has no {', '.join(differences)}")
        else:
            fitting.append(model_type)
    if fitting:
        named = [kind for kind in fitting if architecture in (*kind.architectures, *kind.standalone_types)]
        return (named or fitting)[0]
    if not problems:
        raise MeristemError(f"transformers has no {recipe.model.family}: {suggest_alternatives(loaded)}")
    raise MeristemError(
        f"transformers has no model with this architecture: {'; '.join(problems)}. {suggest_alternatives(loaded)}"
    )


def _unsupported_objectives(model_type: type[ModelType], loaded: LoadedRun) -> list[str]:
    """Objectives whose attention pattern this model type does not support."""
    if model_type.attention_mode is None:
        return []
    if loaded.recipe.tuned_task is not None:
        mode = loaded.recipe.tuned_task.backbone_mode
        return [f"task.backbone_mode={mode}"] if mode not in (None, model_type.attention_mode) else []
    objective_names = {part.name for source in loaded.recipe.objectives.values() for part in source}
    return [
        f"objective={name}"
        for name in sorted(objective_names)
        if model_type.attention_mode not in OBJECTIVES[name].requires
    ]


def _select_heads(
    model_type: type[ModelType], loaded: LoadedRun, architecture: str | None
) -> tuple[type[ModelType], tuple[str, ...], str]:
    """The model type, the exported heads and the class: task heads before pretraining heads, then the most heads.

    A head that was new at import and never trained does not determine the class, unless requested.
    """
    if architecture is not None:
        classes = _all_fitting_classes(model_type, loaded)
        if architecture not in classes:
            raise MeristemError(
                f"this run cannot be exported as {architecture}{did_you_mean(architecture, list(classes))}"
            )
        return *classes[architecture], architecture
    fitting = _fitting_classes(model_type, loaded)
    recipe_heads, untrained = set(loaded.recipe.heads) - model_type.optional_heads, _untrained_heads(loaded)
    trained_heads = {
        name: set(heads) - model_type.optional_heads for name, heads in fitting.items() if not untrained & set(heads)
    }
    chosen_class = max(
        trained_heads, key=lambda name: (len(recipe_heads & trained_heads[name]), len(trained_heads[name]))
    )
    return model_type, fitting[chosen_class], chosen_class


def _untrained_heads(loaded: LoadedRun) -> set[str]:
    """Heads that were new at import and never trained."""
    return set(loaded.state.get("new", ()))


def _fitting_classes(model_type: type[ModelType], loaded: LoadedRun) -> dict[str, tuple[str, ...]]:
    """The transformers classes that the run's heads fit, with those heads."""
    run_heads = set(loaded.learner.model.heads)
    return {
        name: tuple(head for head in heads if head in run_heads)
        for name, heads in model_type.architectures.items()
        if set(heads) - model_type.optional_heads <= run_heads
    }


def _all_fitting_classes(
    model_type: type[ModelType], loaded: LoadedRun
) -> dict[str, tuple[type[ModelType], tuple[str, ...]]]:
    """The same with the model type of each class, those of heads that are models of their own included."""
    own_classes = {name: (model_type, heads) for name, heads in _fitting_classes(model_type, loaded).items()}
    standalone_classes = {
        name: (head_type, heads)
        for head_type in model_type.standalone_types.values()
        for name, heads in _fitting_classes(head_type, loaded).items()
    }
    return standalone_classes | own_classes


def _subfolder_heads(
    model_type: type[ModelType], loaded: LoadedRun, heads: Sequence[str]
) -> dict[str, tuple[str, type[ModelType]]]:
    """Trained heads that are models of their own in transformers → their class and model type."""
    candidates = set(loaded.learner.model.heads) - set(heads) - _untrained_heads(loaded)
    return {
        name: (cls, model_type.standalone_types[cls])
        for name, cls in model_type.subfolder_heads.items()
        if name in candidates
    }


def _omitted_heads(
    model_type: type[ModelType], loaded: LoadedRun, heads: Sequence[str], architecture: str
) -> dict[str, str]:
    """Trained heads that a class lacks → a note with the class that has them."""
    reward_heads = REWARD_HEADS if isinstance(loaded.recipe, ReinforceRecipe) else ()
    omitted = [
        name for name in loaded.learner.model.heads if name not in {*heads, *reward_heads, *_untrained_heads(loaded)}
    ]
    others = _all_fitting_classes(model_type, loaded)
    reasons = {}
    for name in omitted:
        classes = [other for other, (_, class_heads) in others.items() if name in class_heads]
        hint = f"; --architecture {classes[0]} exports it" if classes else ""
        reasons[name] = f"{name}: left out, since {architecture} has no such head{hint}"
    return reasons
