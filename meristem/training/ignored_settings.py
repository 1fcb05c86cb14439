"""Settings that a run would ignore: refused where a person gave them, with the setting to use instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from meristem.dependences import Condition
from meristem.errors import RecipeError
from meristem.recipe import Recipe
from meristem.settings import Settings, find, needs_of
from meristem.training.given_settings import GivenSetting, given_by_name, given_in_file


def refuse_ignored(recipe: Recipe, overrides: Mapping[str, Any]) -> None:
    """Refuse settings among the overrides that this run would not read; `null`, which unsets one, is never refused."""
    for name, value in overrides.items():
        if value is None:
            continue
        found = list(given_by_name(recipe, name, value))
        for known in (name, *(one.name for one in found)):
            if reason := _ignored(recipe, known):
                raise RecipeError(f"{known}: {reason}")
        for one in found:
            if reason := _needed(recipe, one):
                raise RecipeError(f"{one.name}: {reason}")


def refuse_ignored_in_file(recipe: Recipe, mapping: Mapping[str, Any], alone: Recipe | None) -> None:
    """Refuse settings of a person's own recipe file that its run would not read.

    A default that is written out is no wish, and neither is a setting that had its effect before an override switched
    something off: `alone` is the recipe without overrides, where it is one.
    """
    effective = {one.name for one in given_in_file(alone, mapping) if not _unmet(one)} if alone is not None else set()
    for one in given_in_file(recipe, mapping):
        reason = None if one.is_default else _other_kind(recipe, one.name)
        if reason is None and not one.is_default and one.name not in effective:
            reason = _needed(recipe, one)
        if reason:
            raise RecipeError(f"{one.name}: {reason}")


def _ignored(recipe: Recipe, name: str) -> str | None:
    """Why a setting would change nothing in a run of this kind; None where it counts."""
    return _other_kind(recipe, name) or _elsewhere(recipe, name)


def _other_kind(recipe: Recipe, name: str) -> str | None:
    """Why a setting belongs to another kind of run: pretraining, a task, rewards."""
    section = name.partition(".")[0]
    learns_from_text = recipe.task is None and recipe.policy is None
    kind = "a task" if recipe.policy is None else "a policy"
    if name == "train.batch_samples" and learns_from_text:
        return "pretraining counts its batches in tokens: train.batch_tokens"
    if name == "train.batch_tokens" and not learns_from_text:
        return f"{kind} counts its batches in samples: train.batch_samples"
    if name == "train.evaluate_tokens" and not learns_from_text:
        return f"{kind} is evaluated on all validation samples (data.validation, data.held_out)"
    if section in ("corpus", "store") and not learns_from_text:
        return f"{kind} reads labelled samples or prompts, not a corpus: data.train=FILE"
    if name == "from.recipe" and recipe.policy is None:
        return "belongs to meristem reinforce, which trains that recipe first; from=RUN starts from a run"
    return None


def _elsewhere(recipe: Recipe, name: str) -> str | None:
    """Why a setting is decided by the model, its start or the data instead."""
    section, _, rest = name.partition(".")
    start = recipe.start
    learns_from_text = recipe.task is None and recipe.policy is None
    keeps = start.path is not None and start.tokenizer == "keep"
    keeps = keeps and (start.take in ("all", "encoder") or not learns_from_text)
    if section == "tokenizer" and rest not in ("", "room") and keeps:
        return f"the tokenizer of {start.path} is kept; from.tokenizer=own makes one for this run"
    if name == "store.max_unknown" and not keeps and recipe.tokenizer.path is None:
        return "it is for a tokenizer that comes from elsewhere (tokenizer.path=FILE), and this run trains its own"
    if name in ("policy.framed", "policy.begin"):
        return "the run that is started from decides it; leave it out"
    if name == "task.choices":
        return "it is counted in the training data; leave it out"
    family = find("models", recipe.model.family)
    if name == "store.picture" and "image" not in family.can:
        return f"{recipe.model.family} sees no pictures; leave it out"
    if name == "train.recompute" and not family.recomputes:
        return f"{recipe.model.family} computes no activations again; leave it out"
    if name == "task.begin" and "encoder_decoder" not in family.can:
        return f"only a decoder begins after tokens, and {recipe.model.family} has none; leave it out"
    return None


def _unmet(one: GivenSetting) -> bool:
    return any(not need.met(one.settings) for need in needs_of(type(one.settings), one.field))


def _needed(recipe: Recipe, one: GivenSetting) -> str | None:
    """Why a setting has no effect for want of another, and what switches it on; None where all it needs is there."""
    unmet = [need for need in needs_of(type(one.settings), one.field) if not need.met(one.settings)]
    if not unmet:
        return None
    first = [need.conditions[0] for need in unmet]
    now = " and ".join(f"{one.place}.{other.setting}={_written(other.current(one.settings))}" for other in first)
    ways = [[way for condition in need.conditions for way in _ways(recipe, one, condition)] for need in unmet]
    mend = f"set {' and '.join(' or '.join(way) for way in ways)}, or leave it out" if all(ways) else "leave it out"
    return f"has no effect with {now}; {mend}"


def _written(value: Any) -> str:
    """A value as the command line takes it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _ways(recipe: Recipe, one: GivenSetting, condition: Condition) -> Iterator[str]:
    """What can be set so that a condition holds, as far as that would not be refused itself."""
    name = f"{one.place}.{condition.setting}"
    at = next((found for found in given_by_name(recipe, name) if found.name == name), None)
    if _ignored(recipe, name) or (at is not None and _unmet(at)):
        return
    if condition.above is not None:
        yield f"{name} above {condition.above:g}"
    elif not condition.values:
        yield name
    else:
        possible = [value for value in condition.values if _possible(one.settings, condition, value)]
        if wanted := [value for value in possible if value is not None] or possible:
            yield f"{name}={' or '.join(map(_written, wanted))}"


def _possible(settings: Settings, condition: Condition, value: Any) -> bool:
    """Whether a section takes a value in place of what it has."""
    plain = settings.model_dump()
    *steps, last = condition.setting.split(".")
    node = plain
    for step in steps:
        node = node[step]
    node[last] = value
    try:
        type(settings).model_validate(plain)
    except ValidationError:
        return False
    return True
