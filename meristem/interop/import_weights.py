"""Import of published weights: a folder saved by transformers becomes a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meristem.blocks.meta_init import on_meta_device
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import Recipe, recipe_yaml, resolve_recipe
from meristem.config.validation import MAX_SIZE
from meristem.interfaces.backbone import Model
from meristem.interfaces.task import TASKS
from meristem.interop import tokenizer_conversion
from meristem.interop.atomic_folder import atomic_folder
from meristem.interop.foreign_checkpoint import ForeignCheckpoint, MemoryWeights
from meristem.interop.model_type import (
    INIT_SETTINGS,
    TASK_KEY,
    ModelType,
    derived_settings,
    find_model_type,
    shared_head,
)
from meristem.interop.weight_matching import find_spelling, load_parameters
from meristem.interop.weights_folder import FolderWeights, format_names, read_config
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils import randomness
from meristem.utils.result_tables import Tabular
from meristem.utils.shell_quoting import shell_path


@dataclass(frozen=True, kw_only=True)
class ImportResult(Tabular):
    """The imported run."""

    run: Path
    recipe: Recipe
    parameters: int
    architecture: str
    new_weights: tuple[str, ...]
    """Parameters of heads that the folder lacks, newly initialised."""
    unused_tensors: tuple[str, ...]
    """Tensors of the folder that the model does not use."""
    notices: tuple[str, ...] = ()
    """Warnings to read before using the run."""

    def __repr__(self) -> str:
        return f"ImportResult({self.summary().splitlines()[0]})"

    def summary(self) -> str:
        """A few lines for the command line."""
        objectives = " + ".join(part.name for parts in self.recipe.objectives.values() for part in parts)
        lines = [
            f"{self.architecture}: {self.recipe.model.family}, {self.parameters / 1e6:.1f} M parameters, in {self.run}",
            f"continue training with {objectives}: meristem pretrain {shell_path(self.run)} YOUR-TEXT",
        ]
        task_names = [name for name in self.recipe.heads if name in TASKS]
        lines += [f"ready to predict ({name}): meristem predict {shell_path(self.run)}" for name in task_names]
        if self.new_weights:
            new_heads = sorted({weight_name.split(".")[1] for weight_name in self.new_weights})
            lines.append(f"newly initialised, since the folder has none: {', '.join(new_heads)}")
        if self.unused_tensors:
            lines.append(f"unused tensors: {format_names(list(self.unused_tensors))}")
        lines += self.notices
        return "\n".join(lines)


def import_folder(folder: Path, out: Path) -> ImportResult:
    """Read a folder, check every tensor, and write a run, complete or not at all."""
    refuse_existing(out)
    from meristem.interop import elmo_files  # elmo_files imports this module

    if elmo_files.is_elmo_folder(folder):
        return elmo_files.import_elmo(folder, out)
    config = read_config(folder)
    model_type = find_model_type(str(config.get("model_type")))
    _find_architecture(model_type, config, folder / "config.json")  # an unsupported class before a missing tokenizer
    tokenizer = tokenizer_conversion.read_tokenizer(folder, model_type, config)
    with FolderWeights(folder) as weights:
        return _import_weights(model_type, config, tokenizer, weights, folder, out)


def import_checkpoint(checkpoint: ForeignCheckpoint, out: Path) -> ImportResult:
    """Write the run of another program's checkpoint, complete or not at all."""
    refuse_existing(out)
    model_type = find_model_type(str(checkpoint.config.get("model_type")))
    weights = MemoryWeights(checkpoint.path, checkpoint.tensors)
    return _import_weights(
        model_type, checkpoint.config, checkpoint.tokenizer, weights, checkpoint.path, out, checkpoint.notices
    )


def refuse_existing(out: Path) -> None:
    """Raise an error if the run's folder exists."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MeristemError(f"{out} already exists, and an import overwrites nothing: choose another --out")


def _import_weights(
    model_type: type[ModelType],
    config: Mapping[str, Any],
    tokenizer: Tokenizer,
    weights: FolderWeights,
    source: Path,
    out: Path,
    notices: tuple[str, ...] = (),
) -> ImportResult:
    """Build the model that config and weights describe, load every tensor, and write the run."""
    config_path = source / "config.json" if source.is_dir() else source
    architecture = _find_architecture(model_type, config, config_path)
    architecture, head_names = _find_heads(model_type, architecture, weights)
    head_names = tuple(_task_head_name(name, config) for name in head_names)
    recipe = _build_recipe(
        model_type, model_type.complete_config(config, weights), head_names, tokenizer, config_path, out.name
    )
    model = _build_model(recipe, tokenizer, weights, config_path)
    tensors, unused = load_parameters(model_type, model, weights, recipe, _imported_names(model, head_names))
    subfolder_heads = _read_subfolder_heads(model_type, model, recipe, source, tensors)
    for head_tensors in subfolder_heads.values():
        tensors |= head_tensors
    return save_import(
        out,
        recipe,
        tokenizer,
        model,
        tensors,
        _init_new_heads(model, tensors, recipe),
        architecture=architecture,
        new_heads=[name for name in model.heads if name not in (*head_names, *subfolder_heads)],
        unused_tensors=unused,
        notices=(*notices, *_tokenizer_warning(recipe, tokenizer)),
    )


def _tokenizer_warning(recipe: Recipe, tokenizer: Tokenizer) -> tuple[str, ...]:
    """A warning if most embedding rows have no token: the tokenizer is probably another model's, or truncated."""
    num_rows = recipe.tokenizer.padded_vocab_size or tokenizer.vocab_size
    if tokenizer.vocab_size * 2 >= num_rows:
        return ()
    return (
        f"WARNING: the tokenizer has {tokenizer.vocab_size:,} tokens, and the weights have rows for {num_rows:,}: "
        "it is probably not the one they were trained with, and most text will be unknown to it",
    )


def _find_architecture(model_type: type[ModelType], config: Mapping[str, Any], config_path: Path) -> str:
    architectures = config.get("architectures") or [next(iter(model_type.architectures))]
    architecture = str(architectures[0] if isinstance(architectures, list) else architectures)
    if architecture not in model_type.architectures:
        raise MeristemError(
            f"{config_path}: {architecture} is not supported; supported classes of {model_type.name}: "
            f"{', '.join(model_type.architectures)}"
        )
    return architecture


def _find_heads(
    model_type: type[ModelType], architecture_name: str, weights: FolderWeights
) -> tuple[str, tuple[str, ...]]:
    """The class and its heads, optional ones only if their weights exist.

    Published BERT folders name the masked-LM class and also have the next-sentence head: the class with both is used.
    """

    def is_present(head: str) -> bool:
        modules = (module for rule in model_type.heads[head].rules for module in rule.their_names)
        return all(
            find_spelling(model_type, module_name, weights)
            or find_spelling(model_type, f"{module_name}.weight", weights)
            for module_name in modules
        )

    own_heads = model_type.architectures[architecture_name]
    wider_classes = {
        name: heads
        for name, heads in model_type.architectures.items()
        if own_heads
        and set(own_heads) < set(heads)
        and all(is_present(head) for head in heads if head not in own_heads)
    }
    architecture = max(wider_classes, key=lambda name: len(wider_classes[name]), default=architecture_name)
    heads = model_type.architectures[architecture]
    return architecture, tuple(name for name in heads if name not in model_type.optional_heads or is_present(name))


def _task_head_name(name: str, config: Mapping[str, Any]) -> str:
    """The name of the task whose head this is, if config.json says that the class was exported for another task."""
    task = config.get(TASK_KEY)
    return str(task) if isinstance(task, str) and shared_head(task) == name else name


def _build_recipe(
    model_type: type[ModelType],
    config: Mapping[str, Any],
    head_names: tuple[str, ...],
    tokenizer: Tokenizer,
    config_path: Path,
    name: str,
) -> Recipe:
    """The recipe of a run of this model."""
    objectives = [name for name, heads in model_type.objective_heads.items() if set(heads) <= set(head_names)]
    labels = tokenizer_conversion.label_names(config)
    head_settings = {
        name: {"kind": head.kind, "sizes": dict(head.sizes)}
        | ({"labels": labels, "problem": config.get("problem_type")} if mapping.classes == 0 else {})
        for name in head_names
        if not any(name in model_type.objective_heads[objective] for objective in objectives)
        if (mapping := model_type.head_mapping(name)) is not None
        for head in [mapping.to_head(len(labels))]
    }
    num_rows = config.get("vocab_size", tokenizer.vocab_size)
    if type(num_rows) is not int or num_rows < 1:
        raise MeristemError(f"{config_path}: vocab_size={num_rows!r} is not a valid number of tokens")
    if num_rows < tokenizer.vocab_size:
        raise MeristemError(
            f"{config_path}: the tokenizer has {tokenizer.vocab_size:,} tokens, but the weights only have rows for "
            f"{num_rows:,}"
        )
    settings = {
        "tokenizer": {
            "kind": tokenizer_conversion.tokenizer_kind(tokenizer),
            "vocab_size": max(tokenizer.vocab_size, 512),
            "padded_vocab_size": num_rows if num_rows > tokenizer.vocab_size else None,
        },
        "model": model_type.settings_from_config(config, str(config_path)).model_dump(mode="json"),
        "objective": [
            model_type.objective_recipe(objective, config)
            for objective in objectives or list(model_type.objective_heads)[:1]
        ],
        "heads": head_settings,
    }
    try:
        return resolve_recipe(name, settings)
    except RecipeError as error:
        raise MeristemError(f"{config_path}: {error}") from None


def _build_model(recipe: Recipe, tokenizer: Tokenizer, weights: FolderWeights, config_path: Path) -> Model:
    """The model without its weights, on the meta device."""
    for key, value in {**recipe.model.model_dump(), "vocab_size": recipe.tokenizer.padded_vocab_size}.items():
        limit = len(weights) if key.endswith("layers") else MAX_SIZE  # each layer has at least one tensor
        if isinstance(value, int) and value > limit:
            raise MeristemError(f"{config_path}: {key} of {value:,} is too large: at most {limit:,} here")
    with on_meta_device():
        return build_learner(recipe, tokenizer).model


def _imported_names(model: Model, head_names: tuple[str, ...]) -> list[str]:
    """Parameters that the folder must have: all but those of new heads."""
    new_prefixes = tuple(f"heads.{name}." for name in model.heads if name not in head_names)
    return [name for name, _ in model.named_parameters() if not name.startswith(new_prefixes)]


def _init_new_heads(model: Model, imported_names: Collection[str], recipe: Recipe) -> dict[str, Tensor]:
    """Newly initialised weights of new heads, drawn from the seed of the run."""
    torch.default_generator.manual_seed(randomness.stream_key(recipe.train.seed, "weights") & 0x7FFF_FFFF_FFFF_FFFF)
    new_names = {name for name, _ in model.named_parameters()} - set(imported_names)
    tensors: dict[str, Tensor] = {}
    for name in dict.fromkeys(new_name.split(".")[1] for new_name in sorted(new_names)):
        head = model.head_specs[name]
        module = model.backbone.build_head(head.kind, **dict(head.sizes))
        tensors |= {
            full_name: parameter.detach()
            for part, parameter in module.named_parameters()
            if (full_name := f"heads.{name}.{part}") in new_names
        }
    return tensors


def _read_subfolder_heads(
    model_type: type[ModelType], model: Model, recipe: Recipe, folder: Path, tensors: Mapping[str, Tensor]
) -> dict[str, dict[str, Tensor]]:
    """Tensors of heads that are separate models in subfolders; shared tensors must be equal."""
    tensors_by_head: dict[str, dict[str, Tensor]] = {}
    for head, architecture in model_type.subfolder_heads.items():
        subfolder, head_type = folder / head, model_type.standalone_types[architecture]
        if head not in model.heads or not (subfolder / "config.json").is_file():
            continue
        if subfolder.is_symlink():
            raise MeristemError(f"{subfolder}: symbolic links are not followed; put the folder itself there")
        config = read_config(subfolder)
        own_settings = derived_settings(head_type.exported_settings(recipe.model, model))
        folder_settings = derived_settings(head_type.settings_from_config(config, str(subfolder)))
        if differing := [
            key for key in folder_settings if key not in INIT_SETTINGS and own_settings[key] != folder_settings[key]
        ]:
            raise MeristemError(
                f"{subfolder}: is not the {head} of this model, since these settings differ: {', '.join(differing)}"
            )
        names = [name for name, _ in model.named_parameters()]
        head_names = [name for name in names if name.startswith(f"heads.{head}.")]
        shared_names = [
            name for name in names if name.startswith("backbone.") and not name.startswith(head_type.excluded_prefixes)
        ]
        with FolderWeights(subfolder) as weights:
            head_tensors, _ = load_parameters(head_type, model, weights, recipe, [*head_names, *shared_names])
        if differing := [name for name in shared_names if not torch.equal(head_tensors[name], tensors[name])]:
            raise MeristemError(
                f"{subfolder}: has its own embeddings, but here they must be shared: {format_names(differing)}"
            )
        tensors_by_head[head] = {name: head_tensors[name] for name in head_names}
    return tensors_by_head


def save_import(
    out: Path,
    recipe: Recipe,
    tokenizer: Tokenizer,
    model: Model,
    tensors: Mapping[str, Tensor],
    new_tensors: Mapping[str, Tensor],
    *,
    architecture: str,
    new_heads: Sequence[str],
    unused_tensors: tuple[str, ...] = (),
    notices: tuple[str, ...] = (),
) -> ImportResult:
    """Write the run of imported and newly initialised weights; its state names the heads that are new."""
    state = checkpoint_state(model, {**tensors, **new_tensors})
    run = write_run(out, recipe, tokenizer, state, {"new": list(new_heads)})
    return ImportResult(
        run=run.path,
        recipe=recipe,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        architecture=architecture,
        new_weights=tuple(new_tensors),
        unused_tensors=unused_tensors,
        notices=notices,
    )


def checkpoint_state(model: Model, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of a checkpoint: every name, tied ones with the same tensor."""
    owner = {id(value): name for name, value in model.named_parameters()}
    return {name: tensors[owner[id(value)]] for name, value in model.state_dict(keep_vars=True).items()}


def write_run(
    out: Path, recipe: Recipe, tokenizer: Tokenizer, tensors: dict[str, Tensor], state: dict[str, Any]
) -> RunFolder:
    """Write the run to a temporary folder and rename it when it is complete."""
    with atomic_folder(out) as unfinished:
        run = RunFolder.create(unfinished, recipe_yaml(recipe), None)
        tokenizer.save(run.tokenizer_path)
        save_checkpoint(
            run.checkpoints,
            Snapshot(
                step=0,
                model=tensors,
                optimizer={},
                memory={},
                state=state,
                recipe=recipe_yaml(recipe),
                tokenizer=run.tokenizer_path,
            ),
        )
    return RunFolder.open(out)
