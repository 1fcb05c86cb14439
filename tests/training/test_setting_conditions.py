"""Settings that depend on another setting: each is refused without it and accepted with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from meristem.config.conditions import AnyCondition, Condition
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.overrides import apply_overrides
from meristem.config.recipe import (
    Recipe,
    builtin_recipes,
    builtin_reward_recipes,
    builtin_task_recipes,
    parse_recipe_file,
    resolve_recipe,
)
from meristem.config.sections import SECTIONS, section_class
from meristem.config.settings import Settings, conditions_of
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS
from meristem.recipe_resolution import resolve_pretrain_recipe, resolve_task_recipe
from meristem.reinforce.reward_base import REWARDS
from meristem.reinforce_resolution import check_reinforce_recipe
from meristem.training.ignored_settings import refuse_ignored, refuse_ignored_in_file
from meristem.training.user_settings import settings_in_file

TEXT: dict[str, Any] = {"model": {"family": "gpt2"}, "objective": "clm"}
TASK: dict[str, Any] = {"model": {"family": "transformer"}, "task": "classification"}
POLICY: dict[str, Any] = {"model": {"family": "gpt2"}, "policy": {}, "rewards": ["repetition"]}
REQUIRED: dict[str, dict[str, Any]] = {
    "clicks": {"table": "a.csv"}, "function": {"call": "a:b"}, "includes": {"required": ["sea"]},
    "length": {"target": 9}, "classifier": {"run": "a"}, "grammar": {"corpus": "a.txt"}, "meaning": {"corpus": "a.txt"},
}  # fmt: skip


def sections() -> Iterator[tuple[str, type[Settings], dict[str, Any]]]:
    """Every class of settings in a recipe: where it stands, and a recipe that has it there."""
    for section in SECTIONS:
        kind = {"data": TASK, "grid": TASK, "start": POLICY}.get(section, TEXT)
        yield "from" if section == "start" else section, section_class(section), kind
    for name in MODEL_FAMILIES:
        yield "model", MODEL_FAMILIES[name].Settings, {**TEXT, "model": {"family": name}}
    for name in OBJECTIVES:
        yield "objective", OBJECTIVES[name].Settings, {**TEXT, "objective": name}
    for name in TASKS:
        yield "task", TASKS[name].Settings, {**TASK, "task": {"name": name}}
    yield "policy", section_class("policy"), POLICY
    yield "policy.kl", section_class("policy").model_fields["kl"].annotation, POLICY
    for name in REWARDS:
        reward = {"name": name, **REQUIRED.get(name, {})}
        yield f"rewards.{name}", REWARDS[name].Settings, {**POLICY, "rewards": [reward]}


def declared() -> Iterator[tuple[str, str, tuple[AnyCondition, ...], dict[str, Any]]]:
    """Every setting that needs another: its section, name, conditions, and a recipe without overrides."""
    for section_path, cls, mapping in sections():
        for field in cls.model_fields:
            if needs := conditions_of(cls, field):
                yield section_path, field, needs, mapping


CASES = list(declared())
OTHERS = {"way": "causal", "problem": "single", "format": "parquet", "path": "x.json", "validation": "a.tsv",
          "run": "a", "vectors": "v.txt", "schedule": "constant", "kind": "characters", "recipe": "gpt2-mini",
          "test": "a.tsv", "correct": "a.txt", "generator": "1/4"}  # fmt: skip


EITHER = {"vectors": "corpus", "corpus": "vectors"}
"""Settings of rewards.meaning, which takes one of the two."""


def candidates(settings: Any, condition: Condition) -> Iterator[Any]:
    """Values of all sorts for the other setting, of which some fulfil a condition and some do not."""
    *steps, last = condition.setting.split(".")
    for step in steps:
        settings = getattr(settings, step)
    annotation = type(settings).model_fields[last].annotation
    yield from condition.values
    if condition.above is not None:
        yield from (int(condition.above), int(condition.above) + 1)
    inner = (annotation, *get_args(annotation))
    literals = [option for kind in inner for option in get_args(kind) if not isinstance(option, type)]
    yield from (*literals, None, False, True, 0, 8, OTHERS.get(last))
    yield from ("regression", "encoder_decoder", "image", "squad", "text", "none")


def with_condition(
    mapping: dict[str, Any], section_path: str, condition: Condition, *, should_be_met: bool, overrides: dict[str, Any]
) -> dict[str, Any]:
    """Overrides under which one condition holds, or does not."""
    name = f"{section_path}.{condition.setting}"
    for value in candidates(section(resolve_recipe("x", mapping, overrides), section_path), condition):
        tried = {**overrides, name: value}
        if section_path == "rewards.meaning":
            tried[f"{section_path}.{EITHER[condition.setting]}"] = None if value is not None else "a.txt"
        try:
            recipe = resolve_recipe("x", mapping, tried)
        except RecipeError:
            continue
        if condition.is_met(section(recipe, section_path)) == should_be_met:
            return tried
    raise AssertionError(f"no value of {name} makes the condition {should_be_met}")


def section(recipe: Recipe, section_path: str) -> Any:
    """The settings of one section of a recipe."""
    first, *path = section_path.split(".")
    node = getattr(recipe, "start" if first == "from" else first)
    node = node[0] if isinstance(node, tuple) else node
    return getattr(node, path[0]) if path and first == "policy" else node


def with_all(mapping: dict[str, Any], section_path: str, needs: tuple[AnyCondition, ...]) -> dict[str, Any]:
    """Overrides under which everything that a setting needs is there."""
    overrides: dict[str, Any] = {}
    for need in needs:
        if not need.is_met(section(resolve_recipe("x", mapping, overrides), section_path)):
            overrides = with_condition(
                mapping, section_path, need.conditions[0], should_be_met=True, overrides=overrides
            )
    return overrides


def test_there_are_many() -> None:
    assert len(CASES) > 60
    sections = {section_path.split(".")[0] for section_path, *_ in CASES}
    assert {"objective", "task", "model", "tokenizer", "rewards", "policy", "train", "from", "data"} <= sections


IDS = [f"{mapping.get('task', mapping['model'])}-{section_path}.{field}" for section_path, field, _, mapping in CASES]


@pytest.mark.parametrize(("section_path", "field", "needs", "mapping"), CASES, ids=IDS)
def test_a_declared_dependence(
    section_path: str, field: str, needs: tuple[AnyCondition, ...], mapping: dict[str, Any]
) -> None:
    all_met = {} if mapping.get("task") == {"name": "probe"} else with_all(mapping, section_path, needs)
    explicit = {f"{section_path}.{field}": "anything"}  # not even its usual value is taken where it has no effect
    if all_met or all(need.is_met(section(resolve_recipe("x", mapping), section_path)) for need in needs):
        refuse_ignored(resolve_recipe("x", mapping, all_met), explicit)
    for need in needs:
        unmet = all_met
        for condition in need.conditions:
            unmet = with_condition(mapping, section_path, condition, should_be_met=False, overrides=unmet)
        recipe = resolve_recipe("x", mapping, unmet)
        assert not need.is_met(section(recipe, section_path))
        sentence = rf"^{section_path}\.{field}: has no effect with {section_path}\..*leave it out$"
        with pytest.raises(RecipeError, match=sentence) as error:
            refuse_ignored(recipe, explicit)
        for recommendation in recommended(str(error.value)):
            refuse_ignored(resolve_recipe("x", mapping, {**unmet, **recommendation}), recommendation)


def recommended(sentence: str) -> Iterator[dict[str, Any]]:
    """The settings that an answer recommends with a value."""
    _, _, mend = sentence.rpartition("; ")
    for word in mend.removeprefix("set ").replace(",", "").split(" and "):
        name, equals, values = word.partition("=")
        if equals:
            first = values.split(" or ")[0].split()[0]
            yield {name: {"null": None, "true": True, "false": False}.get(first, first)}


@pytest.mark.parametrize(("recipe", "override", "sentence"), [
    ("bert-mini", "objective.span_geometric_p=0.3",
     "with objective.unit=token; set objective.unit=span, or leave it out"),
    ("bert-mini", "objective.mlm.max_span_length=3", "set objective.mlm.unit=span, or leave it out"),
    ("bert-mini", "objective={name: mlm, span_geometric_p: 0.3}", "objective.span_geometric_p: has no effect with"),
    ("gpt2-mini", "model.rotary_base=5000", "set model.position_encoding=rotary, or leave it out"),
    ("gpt2-mini", "model.attention_window_every=2",
     "with model.attention_window=null; set model.attention_window, or leave it out"),
    ("electra-mini", "objective.discriminator_weight=9", None),
    ("gpt2-mini", "from.load=encoder", "set from.path, or leave it out"),
    ("gpt2-mini", "dataset.image_size=16", "gpt2 has no image input"),
    ("rnn-mini", "train.gradient_checkpointing=true", "rnn does not support gradient checkpointing"),
])  # fmt: skip
def test_pretraining_answers_in_one_sentence(recipe: str, override: str, sentence: str | None) -> None:
    if sentence is None:
        assert resolve_pretrain_recipe(recipe, [override])
        return
    with pytest.raises(RecipeError) as error:
        resolve_pretrain_recipe(recipe, [override])
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_no_answer_recommends_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"task.network_hidden_size: has no effect with task.network=none; leave it out$"
    ):
        resolve_task_recipe("probe", ["task.network_hidden_size=64"])  # a probe has no network of its own
    (tmp_path / "prompts.txt").write_text("The old\n")
    rewards = {"policy": {}, "data": {"train": str(tmp_path / "prompts.txt")}, "from": {"recipe": "gpt2-mini"},
               "rewards": [{"name": "meaning", "corpus": "builtin:microworld-en"}]}  # fmt: skip
    (tmp_path / "r.yaml").write_text(str(rewards))
    with pytest.raises(RecipeError, match=r"^rewards.meaning.max_vectors: .*; leave it out$"):
        check_reinforce_recipe(
            tmp_path / "r.yaml", ["rewards.meaning.max_vectors=9"]
        )  # vectors and a corpus exclude another


def test_a_recipe_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "model: {family: bert}\nobjective: {name: mlm, span_geometric_p: 0.3}\ntrain: {muon_momentum: 0.95}\n"
    )
    with pytest.raises(RecipeError, match=r"^objective.span_geometric_p: has no effect .* set objective.unit=span"):
        resolve_pretrain_recipe(path)
    assert resolve_pretrain_recipe(path, ["objective.unit=span"]).train.muon_momentum == 0.95  # a default, written out
    path.write_text("model: {family: bert}\nobjective: {name: mlm, unit: span, span_geometric_p: 0.3}\n")
    assert resolve_pretrain_recipe(path, ["objective.unit=word"])  # an ablation need not edit the file
    path.write_text("model: {family: bert}\ntask: pair\ndata: {train: a.tsv}\ncorpus: {source: a.txt}\n")
    with pytest.raises(RecipeError, match=r"^corpus.source: a task is trained on labelled samples"):
        resolve_task_recipe(path)


def test_shipped_recipes_hold_nothing_that_has_no_effect() -> None:
    for name, path in {**builtin_recipes(), **builtin_task_recipes(), **builtin_reward_recipes()}.items():
        mapping = apply_overrides(parse_recipe_file(path), {})
        shaped = mapping if "policy" not in mapping else {"model": {"family": "gpt2"}, **mapping}
        recipe = resolve_recipe(name, shaped)
        assert list(settings_in_file(recipe, mapping))
        refuse_ignored_in_file(recipe, mapping, None)


@pytest.mark.parametrize(("task_settings", "golds", "sentence"), [
    ({"threshold": 0.4}, ("good", "bad"), "task.threshold: .* a single problem; set task.problem_type=multiple"),
    ({"class_weights": "balanced"}, (0.1, 0.7), "task.class_weights: .* a regression problem; set task"),
])  # fmt: skip
def test_a_problem_that_the_labels_decide(task_settings: dict[str, Any], golds: tuple[Any, ...], sentence: str) -> None:
    task = TASKS["classification"]
    samples = [Sample(inputs={"text": "a"}, gold=gold) for gold in golds * 2]
    with pytest.raises(MeristemError, match=sentence):
        task.fit_settings(task.Settings.model_validate(task_settings), samples)
