"""Ignored settings: user settings that would have no effect are refused, with the setting to use instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from meristem.config.conditions import AnyCondition, Condition
from meristem.config.errors import RecipeError
from meristem.config.recipe import PretrainRecipe, Recipe, ReinforceRecipe
from meristem.config.settings import Settings, conditions_of
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.training.user_settings import UserSetting, settings_by_name, settings_in_file


def refuse_ignored(recipe: Recipe, overrides: Mapping[str, Any]) -> None:
    """Raise for an override that would have no effect in this run; `null`, which unsets a setting, is allowed."""
    for name, value in overrides.items():
        if value is None:
            continue
        user_settings = list(settings_by_name(recipe, name, value))
        for setting_name in (name, *(setting.name for setting in user_settings)):
            if reason := _ignored_reason(recipe, setting_name):
                raise RecipeError(f"{setting_name}: {reason}")
        for setting in user_settings:
            if reason := _unmet_reason(recipe, setting):
                raise RecipeError(f"{setting.name}: {reason}")


def refuse_ignored_in_file(recipe: Recipe, mapping: Mapping[str, Any], base_recipe: Recipe | None) -> None:
    """Raise for a setting in the user's recipe file that would have no effect in its run.

    Allowed are defaults that are written out, and settings that had an effect until an override switched something
    off: `base_recipe` is the recipe without overrides, None if it is not valid.
    """
    base_settings = () if base_recipe is None else settings_in_file(base_recipe, mapping)
    effective = {setting.name for setting in base_settings if not _unmet_needs(setting)}
    for setting in settings_in_file(recipe, mapping):
        reason = None if setting.is_default else _wrong_kind_reason(recipe, setting.name)
        if reason is None and not setting.is_default and setting.name not in effective:
            reason = _unmet_reason(recipe, setting)
        if reason:
            raise RecipeError(f"{setting.name}: {reason}")


def _ignored_reason(recipe: Recipe, name: str) -> str | None:
    """Why a setting has no effect in a run of this kind; None if it has one."""
    return _wrong_kind_reason(recipe, name) or _decided_elsewhere_reason(recipe, name)


def _wrong_kind_reason(recipe: Recipe, name: str) -> str | None:
    """Why a setting belongs to another kind of run (pretraining, fine-tuning, rewards); None if it does not."""
    section = name.partition(".")[0]
    learns_from_text = isinstance(recipe, PretrainRecipe)
    run_kind = "a policy" if isinstance(recipe, ReinforceRecipe) else "a task"
    if name == "train.batch_samples" and learns_from_text:
        return "pretraining counts its batches in tokens: train.batch_tokens"
    if name == "train.batch_tokens" and not learns_from_text:
        return f"{run_kind} counts its batches in samples: train.batch_samples"
    if name in ("train.batch_ramp", "train.length_ramp") and not learns_from_text:
        return f"{run_kind} reads samples that are not cut, in batches of one size; leave it out"
    if name == "train.evaluate_tokens" and not learns_from_text:
        return f"{run_kind} is evaluated on all validation samples (data.validation, data.held_out)"
    if section in ("corpus", "dataset") and not learns_from_text:
        return f"{run_kind} is trained on labelled samples or prompts, not on a corpus: data.train=FILE"
    if name == "from.recipe" and not isinstance(recipe, ReinforceRecipe):
        return "belongs to meristem reinforce, which trains that recipe first; from=RUN starts from a run"
    return None


def _decided_elsewhere_reason(recipe: Recipe, name: str) -> str | None:
    """Why a setting is decided by the model, its initial weights or the data instead; None if it is not."""
    section, _, field = name.partition(".")
    start = recipe.start
    learns_from_text = isinstance(recipe, PretrainRecipe)
    keeps_tokenizer = start.path is not None and start.tokenizer == "keep"
    keeps_tokenizer = keeps_tokenizer and (start.load in ("all", "encoder") or not learns_from_text)
    if section == "tokenizer" and field not in ("", "padded_vocab_size") and keeps_tokenizer:
        return f"the tokenizer of {start.path} is kept; from.tokenizer=own makes one for this run"
    if name == "dataset.max_unknown" and not keeps_tokenizer and recipe.tokenizer.path is None:
        return "it is for a tokenizer that is loaded (tokenizer.path=FILE), and this run trains its own"
    if name in ("policy.use_delimiter", "policy.start_ids"):
        return "it is taken from the run given by `from`; leave it out"
    if name == "task.max_choices":
        return "it is counted in the training data; leave it out"
    family = MODEL_FAMILIES[recipe.model.family]
    if name == "dataset.image_size" and "image" not in family.capabilities:
        return f"{recipe.model.family} has no image input; leave it out"
    if name == "train.gradient_checkpointing" and not family.supports_gradient_checkpointing:
        return f"{recipe.model.family} does not support gradient checkpointing; leave it out"
    if name == "task.decoder_start_ids" and "encoder_decoder" not in family.capabilities:
        return f"it is for the decoder of an encoder-decoder, and {recipe.model.family} is none; leave it out"
    return None


def _unmet_needs(setting: UserSetting) -> list[AnyCondition]:
    needs = conditions_of(type(setting.settings), setting.field)
    return [need for need in needs if not need.is_met(setting.settings)]


def _unmet_reason(recipe: Recipe, setting: UserSetting) -> str | None:
    """Why a setting has no effect without another, and what to set; None if all its conditions are met."""
    unmet_needs = _unmet_needs(setting)
    if not unmet_needs:
        return None
    first_conditions = [need.conditions[0] for need in unmet_needs]
    current_values = " and ".join(
        f"{setting.section_path}.{first_condition.setting}={_format_value(first_condition.current_value(setting.settings))}"
        for first_condition in first_conditions
    )
    fixes = [
        [fix for condition in need.conditions for fix in _possible_fixes(recipe, setting, condition)]
        for need in unmet_needs
    ]
    advice = f"set {' and '.join(' or '.join(fix) for fix in fixes)}, or leave it out" if all(fixes) else "leave it out"
    return f"has no effect with {current_values}; {advice}"


def _format_value(value: Any) -> str:
    """A value as it is written on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _possible_fixes(recipe: Recipe, setting: UserSetting, condition: Condition) -> Iterator[str]:
    """Settings that would meet a condition, without those that would be refused themselves."""
    name = f"{setting.section_path}.{condition.setting}"
    target = next((candidate for candidate in settings_by_name(recipe, name) if candidate.name == name), None)
    if _ignored_reason(recipe, name) or (target is not None and _unmet_needs(target)):
        return
    if condition.above is not None:
        yield f"{name} above {condition.above:g}"
    elif not condition.values:
        yield name
    else:
        valid_values = [value for value in condition.values if _is_valid_value(setting.settings, condition, value)]
        if suggested := [value for value in valid_values if value is not None] or valid_values:
            yield f"{name}={' or '.join(map(_format_value, suggested))}"


def _is_valid_value(settings: Settings, condition: Condition, value: Any) -> bool:
    """Whether a section remains valid with this value."""
    values = settings.model_dump()
    *keys, last_key = condition.setting.split(".")
    node = values
    for key in keys:
        node = node[key]
    node[last_key] = value
    try:
        type(settings).model_validate(values)
    except ValidationError:
        return False
    return True
