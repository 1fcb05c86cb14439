"""Recipes by name or file, with what the runs they begin from tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.checkpoint.revive import recipe_of
from meristem.checkpoint.run import Run
from meristem.errors import RecipeError
from meristem.interop.starting import run_for
from meristem.labelled.reading import check_sources
from meristem.learning.assemble import needs_of
from meristem.learning.learner import task_way
from meristem.overrides import as_mapping, override, written_out
from meristem.recipe import RECIPES, Recipe, read, resolve, shipped_rewards, shipped_tasks
from meristem.reinforce.named import functions_named, refuse_functions, refuse_rewards, run_around
from meristem.settings import find
from meristem.training import finetuning, pretraining
from meristem.training.ignored_settings import refuse_ignored, refuse_ignored_in_file
from meristem.training.rewarding import check_rewards, desk, rewarded
from meristem.training.suited import suited

Overrides = Mapping[str, Any] | Sequence[str]
ANY_DATA = ("held_out", "limit", "seed")
"""Settings of `data` that name neither a file nor a column."""
FROM_START = ("model", "tokenizer")
"""Sections that a task or a policy takes over from the run it starts from."""


def recipe_for(recipe: str | Path, overrides: Overrides = (), source: str | None = None) -> Recipe:
    """A recipe by name or file, with a source and overrides put in."""
    name, mapping = read(recipe)
    refuse_rewards(recipe, mapping)
    if source is not None:
        mapping = {**mapping, "corpus": {**(mapping.get("corpus") or {}), "source": source}}
    return _heeded(_with_published_start(name, mapping, overrides), overrides, _own_file(recipe, mapping))


def _with_published_start(name: str, mapping: Mapping[str, Any], overrides: Overrides) -> Recipe:
    """A recipe for text; published weights that it begins from are imported, and their shape and tokenizer are taken.

    A run that it begins from leaves the recipe its own shape, as ever; settings among the overrides always count.
    """
    found = resolve(name, mapping, overrides)
    if found.start.path is None or found.task is not None or found.policy is not None:
        return found
    path = run_for(found.start.path)
    if path == Path(found.start.path) or found.start.take == "nothing":
        return found
    before = recipe_of(Run.open(path))
    sections = {"model": before.model.model_dump(mode="json")} if found.start.take == "all" else {}
    if sections and found.start.tokenizer == "keep":
        sections["tokenizer"] = before.tokenizer.model_dump(mode="json")
    found = resolve(name, {**written_out(mapping), **sections}, overrides)
    return replace(found, start=found.start.model_copy(update={"path": str(path)}))


def task_recipe(recipe: str | Path | None = None, overrides: Overrides = ()) -> Recipe:
    """A recipe for a task: by name or file, else the one named like its task; the model is that of `from`.

    Settings of `model` in the recipe, and the rate of a shipped one, are for a start from scratch; those among the
    overrides always count.
    """
    told = override({}, overrides)
    chosen = recipe or (told.get("task") or {}).get("name") or "classification"
    name, mapping = read(chosen)
    refuse_rewards(chosen, mapping)
    mapping = written_out(mapping)
    mapping = _own_data(mapping, overrides)
    start = {**(mapping.get("start") or {}), **(told.get("start") or {})}
    if start.get("path") in (None, "scratch", "none"):
        return _heeded(resolve(name, mapping, overrides), overrides, _own_file(recipe, mapping))
    if get_close_matches(str(start["path"]), ["scratch"]) and not Path(start["path"]).exists():
        raise RecipeError(f"from: there is no run {start['path']}, did you mean scratch?")
    own = _own_file(recipe, mapping, FROM_START)
    path = run_for(start["path"])  # published weights are imported where they were not yet
    before = recipe_of(Run.open(path))
    mapping["model"], mapping["tokenizer"] = (
        getattr(before, part).model_dump(mode="json") for part in ("model", "tokenizer")
    )
    rate = suited(before)
    if rate is not None and str(chosen) in shipped_tasks() and mapping["task"]["name"] != "probe" and _moves(start):
        mapping["train"]["rate"] = rate
    if str(chosen) in shipped_tasks() and mapping["task"].get("lm") and not _reads_causally(mapping, before):
        del mapping["task"]["lm"]  # GPT-1's second loss, which the recipe has for its own causal model
    found = _heeded(resolve(name, mapping, overrides), overrides, own)
    return replace(found, start=found.start.model_copy(update={"path": str(path)}))


def _heeded(recipe: Recipe, overrides: Overrides, own_file: Mapping[str, Any] | None) -> Recipe:
    """The recipe, unless it was given settings that its run would ignore, among overrides or in a file of one's own."""
    refuse_ignored(recipe, as_mapping(overrides))
    if own_file is not None:
        refuse_ignored_in_file(recipe, own_file, _alone(recipe, own_file))
    return recipe


def _own_file(
    recipe: str | Path | None, mapping: Mapping[str, Any], replaced: Collection[str] = ()
) -> Mapping[str, Any] | None:
    """What a person wrote into a recipe file; nothing for recipes that are shipped or that a run wrote.

    Sections that are `replaced` by those of the run that is started from are left out.
    """
    path = Path(recipe or "")
    if path.suffix not in {".yaml", ".yml"} or RECIPES in path.resolve().parents or run_around(path) is not None:
        return None
    return {key: value for key, value in written_out(mapping).items() if key not in replaced}


def _alone(recipe: Recipe, own_file: Mapping[str, Any]) -> Recipe | None:
    """A recipe file without overrides; nothing where it is no whole recipe."""
    try:
        return resolve(recipe.name, {"model": recipe.model.model_dump(mode="json"), **own_file})
    except RecipeError:
        return None


def _own_data(mapping: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """A recipe without its built-in data and the columns of these, where the overrides bring data of their own."""
    data = mapping.get("data") or {}
    own = override({}, overrides).get("data") or {}
    if "train" not in own or not isinstance(data, Mapping):
        return dict(mapping)
    builtin = str(data.get("train")).startswith("builtin:") and _set_name(own["train"]) != _set_name(data.get("train"))
    kept = {key: value for key, value in data.items() if not str(value).startswith("builtin:")}
    return {**mapping, "data": {key: value for key, value in kept.items() if key in ANY_DATA or not builtin}}


def _set_name(source: Any) -> str:
    """A data set without its size and seed: `builtin:microworld-pos?size=40` is `builtin:microworld-pos`."""
    return str(source).partition("?")[0]


def _reads_causally(mapping: Mapping[str, Any], before: Recipe) -> bool:
    """Whether a task would read from left to right on the model of another run."""
    task, family = find("tasks", str(mapping["task"]["name"])), find("models", before.model.family)
    return bool(task.ways & family.can) and task_way(task, family, needs_of(before)) == "causal"


def _moves(start: Mapping[str, Any]) -> bool:
    """Whether all weights are taken and learn."""
    return start.get("take", "all") == start.get("learns", "all") == "all" and "lora" not in start


def policy_recipe(recipe: str | Path, overrides: Overrides, start: Path, console: Console) -> Recipe:
    """A recipe for rewards with the model of `from`; where that is a recipe, it becomes a run in `start` first."""
    name, mapping = read(recipe)
    mapping = _own_data(mapping, overrides)
    told = override(mapping, overrides)
    if (run := run_around(Path(recipe))) is not None:
        for section in ("rewards", "judge"):
            refuse_functions(told.get(section), run, named=functions_named(as_mapping(overrides)))
    if "policy" not in told:
        raise RecipeError(f"{name} has no policy; recipes with rewards: {', '.join(shipped_rewards())}")
    begun = told.get("start") or {}
    if begun.get("path") is None and begun.get("recipe") is None:
        raise RecipeError("from: rewards need a model that writes: from=RUN, or from.recipe=NAME to train one first")
    path = run_for(begun["path"] if begun.get("path") else _begun(begun["recipe"], start, console))
    before = recipe_of(Run.open(path))
    shape = before.model.model_dump(mode="json")
    shape |= {key: 0.0 for key in shape if key.endswith("dropout")}  # what was written must be what is read again
    words = before.tokenizer.model_dump(mode="json")
    whole = {**written_out(mapping), "model": shape, "tokenizer": words}
    resolved = _heeded(resolve(name, whole, overrides), overrides, None)
    return replace(resolved, start=resolved.start.model_copy(update={"path": str(path)}))


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A recipe for rewards with all that it needs: a start that is trained, rewards and judges that are fitted."""

    recipe: Recipe
    rewards: Any
    judge: Any


def made_ready(recipe: str | Path, overrides: Overrides, out: Path, console: Console) -> Ready:
    """What is lacking is trained and fitted first, once; the start beside the run, the rest where all runs find it.

    Whatever can be refused is refused before any of that takes its minutes.
    """
    check_before_training(recipe, overrides)
    resolved = policy_recipe(recipe, overrides, Path(f"{out}-start"), console)
    rewards = rewarded(resolved.rewards, desk(), console)
    judge = rewarded(resolved.judge, desk(), console) if resolved.judge else None
    return Ready(recipe=resolved, rewards=rewards, judge=judge)


def check_before_training(recipe: str | Path, overrides: Overrides) -> None:
    """Refuse wrong settings, missing prompts and rewards that cannot work: no model is needed to know that."""
    name, mapping = read(recipe)
    told = override(_own_data(mapping, overrides), overrides)
    if "policy" not in told or (Path(recipe) / "recipe.yaml").is_file():
        return  # policy_recipe says what is wrong; and it refuses functions that a run names, before any is imported
    anything = {"model": {"family": "gpt2"}, "tokenizer": {}}  # the start's own follow; every other section is checked
    resolved = resolve(name, {**told, **anything})
    own = {key: value for key, value in as_mapping(overrides).items() if key.split(".")[0] not in FROM_START}
    _heeded(resolved, own, _own_file(recipe, mapping, FROM_START))
    if resolved.data.train is None:
        raise RecipeError("data.train: missing; give a file of prompts: a prompt a line, or columns prompt and target")
    check_sources(resolved.data)
    check_rewards([*resolved.rewards, *resolved.judge])


def _begun(recipe: str, out: Path, console: Console) -> Path:
    """The run of a recipe that is trained, or gone on with, before another can begin."""
    if Run(out).exists() and Run(out).finished is not None:
        return out
    console.print(f"First the model that writes: {recipe} in {out}", highlight=False, markup=False, soft_wrap=True)
    if "task" in read(recipe)[1]:
        return finetuning.finetune(task_recipe(recipe), out, fresh=False, console=console).run
    return pretraining.pretrain(recipe_for(recipe), out, fresh=False, console=console).run
