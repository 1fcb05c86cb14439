from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meristem.config.errors import RecipeError
from meristem.config.overrides import apply_overrides
from meristem.config.recipe import (
    Recipe,
    builtin_recipes,
    parse_recipe_file,
    read_recipe,
    recipe_summary,
    resolve_recipe,
)
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES
from meristem.learning.build import check_recipe

BERT: dict[str, Any] = {
    "model": {"family": "bert", "layers": 2, "hidden_size": 32, "heads": 2, "max_length": 16},
    "objective": ["mlm", "nsp"],
    "train": {"minutes": 3},
}


def resolve(*overrides: str, **sections: Any) -> Recipe:
    return resolve_recipe("test", {**BERT, **sections}, list(overrides))


def refusal_message(*overrides: str, **sections: Any) -> str:
    with pytest.raises(RecipeError) as error:
        resolve(*overrides, **sections)
    return str(error.value)


# ---------------------------------------------------------------- overrides


def test_dotted_settings_replace_what_the_recipe_says() -> None:
    recipe = resolve(
        "train.learning_rate=3e-4",
        "model.layers=5",
        "tokenizer.kind=bpe",
        "corpus.source=builtin:microworld",
        "train.seed=7",
    )
    assert recipe.train.learning_rate == 3e-4
    assert recipe.model.layers == 5
    assert recipe.tokenizer.kind == "bpe"
    assert recipe.corpus.source == "builtin:microworld"
    assert recipe.train.seed == 7


def test_a_mapping_of_overrides_is_the_same() -> None:
    recipe = resolve_recipe("test", BERT, {"train.learning_rate": 3e-4, "from": "runs/x"})
    assert recipe == resolve("train.learning_rate=3e-4", "from=runs/x")


def test_yaml_reads_3e_4_as_a_string_and_settings_as_a_number() -> None:
    assert yaml.safe_load("3e-4") == "3e-4"
    assert resolve(train={"learning_rate": "3e-4", "steps": 5}).train.learning_rate == 3e-4


def test_the_recipe_given_is_left_as_it_was() -> None:
    before = yaml.safe_dump(BERT)
    resolve("train.steps=5", "objective.mask_rate=0.3", "model.hidden_size=64")
    assert yaml.safe_dump(BERT) == before


def test_overrides_given_are_left_as_they_were() -> None:
    overrides = {"model": {"family": "gpt2", "layers": 2}, "model.layers": 3}
    assert apply_overrides({}, overrides)["model"] == {"family": "gpt2", "layers": 3}
    assert overrides["model"] == {"family": "gpt2", "layers": 2}


@pytest.mark.parametrize(
    "override", ["train.steps=9", "train.epochs=2", "train.tokens=1e6", "train.flops=1e12", "train.minutes=1"]
)
def test_a_budget_given_replaces_the_recipes(override: str) -> None:
    kind, _, value = override.removeprefix("train.").partition("=")
    assert resolve(override).train.budget == (kind, float(value))


def test_two_budgets_in_one_recipe_are_refused() -> None:
    assert refusal_message(train={"steps": 5, "minutes": 3}) == "train: a run has one budget, not steps and minutes"


def test_a_run_without_a_budget_has_three_minutes() -> None:
    assert resolve(train={}).train.budget == ("minutes", 3.0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.learning_rat=1", "train.learning_rat: unknown setting, did you mean learning_rate?"),
        ("model.layer=1", "model.layer: unknown setting, did you mean layers?"),
        ("model.family=brt", "model.family: no 'brt', did you mean bert?"),
        ("objective.mask_rat=0.2", "objective.mask_rat: unknown setting, did you mean mask_rate?"),
        ("objective=mml", "objective.name: no 'mml', did you mean mlm?"),
        ("trian.rate=1", "trian.rate: unknown setting, did you mean train?"),
        ("rate=1", "rate: unknown setting; write train.learning_rate=1"),
        ("source=x", "source: unknown setting; write corpus.source=x"),
        (
            "tokenizer.kind=wordpeace",
            "tokenizer.kind: no tokenizer kind 'wordpeace', did you mean wordpiece? (got 'wordpeace')",
        ),
        (
            "train.learning_rate",
            "'train.learning_rate': settings are given as key=value, for instance train.learning_rate=3e-4",
        ),
        ("=3", "'=3': settings are given as key=value, for instance train.learning_rate=3e-4"),
        (
            "train.save_every=soon",
            "train.save_every: expected steps (500), time (30s, 10m, 2h) or epochs (1epoch) (got 'soon')",
        ),
        ("model.heads=3", "model: heads: 3 does not divide a hidden size of 32; 2 does"),
    ],
)
def test_mistakes_are_answered_with_what_is_right(override: str, message: str) -> None:
    assert refusal_message(override) == message


def test_an_unknown_section_is_named() -> None:
    assert refusal_message(trains={"steps": 1}) == "trains: unknown section, did you mean train?"
    assert refusal_message(form="x") == "form: unknown section, did you mean from?"


# ---------------------------------------------------------------- objectives


def test_a_setting_finds_the_part_that_has_it() -> None:
    recipe = resolve("objective.mask_rate=0.3", "objective.negatives=swap")
    assert [part.name for part in recipe.objective] == ["mlm", "nsp"]
    assert recipe.objective[0].mask_rate == 0.3
    assert recipe.objective[1].negatives == "swap"


def test_a_setting_that_several_parts_have_must_say_which() -> None:
    message = refusal_message("objective.weight=2")
    assert message == "objective.weight: several objectives have it; use objective.mlm.weight or objective.nsp.weight"
    recipe = resolve("objective.mlm.weight=2", "objective.1.weight=3")
    assert [part.weight for part in recipe.objective] == [2.0, 3.0]


def test_an_objective_may_be_a_word_a_mapping_or_a_list() -> None:
    forms = ["mlm", ["mlm"], {"name": "mlm"}, [{"name": "mlm"}]]
    assert len({resolve(objective=form).objective for form in forms}) == 1
    assert resolve("objective=mlm").objective == resolve(objective="mlm").objective
    assert [part.name for part in resolve("objective=[mlm, nsp]").objective] == ["mlm", "nsp"]


def test_objectives_that_make_no_sense_are_refused() -> None:
    assert "an objective may occur only once" in refusal_message(objective=["mlm", "mlm"])
    assert refusal_message(objective=[]) == f"objective: empty; known: {', '.join(OBJECTIVES)}"
    assert refusal_message("objective.mlm.mask_rate.deeper=1") == (
        "objective.mlm.mask_rate.deeper: expected objective.SETTING or objective.NAME.SETTING"
    )
    with pytest.raises(RecipeError, match="objective: missing"):
        resolve_recipe("test", {"model": {"family": "bert"}})


def test_a_family_that_cannot_carry_an_objective_names_those_that_can() -> None:
    with pytest.raises(RecipeError) as error:
        check_recipe(resolve("objective=clm"))
    message = str(error.value)
    causal = [name for name in MODEL_FAMILIES if "causal" in MODEL_FAMILIES[name].capabilities]
    bidirectional_causal = [name for name in MODEL_FAMILIES if "bidirectional" in MODEL_FAMILIES[name].capabilities]
    assert {"gpt", "gpt2", "modern"} <= set(causal) and {"bert", "electra", "modern", "roberta"} <= set(
        bidirectional_causal
    )
    assert "objective clm needs a causal backbone, and bert is bidirectional" in message
    assert f"Families that support it: {', '.join(causal)} (model.family=…)" in message
    assert "objectives bert supports: mlm, nsp, rtd (objective=…)" in message
    check_recipe(resolve("objective=clm", "model.family=modern"))
    with pytest.raises(RecipeError, match=f"Families that support it: {', '.join(bidirectional_causal)} "):
        check_recipe(resolve("model.family=gpt2"))


def test_a_batch_smaller_than_a_row_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"train.batch_tokens: 8 is less than one row of model.max_length=16 tokens"):
        check_recipe(resolve("train.batch_tokens=8"))
    with pytest.raises(RecipeError, match=r"train.micro_batch_tokens: 8 is less"):
        check_recipe(resolve("train.micro_batch_tokens=8"))


# ---------------------------------------------------------------- mix and from

MIX: dict[str, Any] = {
    "model": {**BERT["model"], "family": "modern"},
    "corpus": {"source": "builtin:pydocs", "test": 0.1},
    "mix": [
        {"weight": 3, "objective": "mlm", "corpus": "builtin:microworld"},
        {"objective": ["mlm"]},
        {"objective": "clm", "name": "writing"},
    ],
}


def test_a_mix_has_named_sources_with_their_own_text() -> None:
    recipe = resolve_recipe("test", MIX)
    assert [(s.name, s.weight) for s in recipe.sources()] == [("mlm", 3.0), ("mlm-1", 1.0), ("writing", 1.0)]
    assert [s.corpus.source for s in recipe.mix] == ["builtin:microworld", "builtin:pydocs", "builtin:pydocs"]
    assert [s.corpus.test for s in recipe.mix] == [0.1] * 3
    assert recipe.objective == ()


def test_mix_entries_are_addressed_by_number() -> None:
    recipe = resolve_recipe("test", MIX, ["mix.0.weight=5", "mix.1.corpus.source=texts", "mix.2.objective=mlm"])
    assert recipe.mix[0].weight == 5
    assert recipe.mix[1].corpus.source == "texts"
    assert recipe.mix[2].objective[0].name == "mlm"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mix.0.weight=0", "mix.0.weight: 0 is not a positive number"),
        ("mix.0.weight=true", "mix.0.weight: True is not a positive number"),
        ("mix.7.weight=1", "mix.7.weight: expected a number from 0 to 2 in place of '7'"),
        ("mix.0.wieght=1", "mix.0.wieght: unknown setting, did you mean weight?"),
        ("mix.1.corpus.sauce=x", "mix.1.corpus.sauce: unknown setting, did you mean source?"),
        ("mix=[]", "mix: expected a list of {weight, objective, corpus}"),
        (
            "objective=mlm",
            "objective and mix: a recipe has one or the other; each entry of a mix has its own objective",
        ),
    ],
)
def test_a_wrong_mix_is_refused(override: str, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        resolve_recipe("test", MIX, [override])
    assert str(error.value) == message


def test_a_recipe_without_a_mix_has_one_source() -> None:
    (source,) = resolve().sources()
    assert (source.name, source.weight, source.objective) == ("main", 1.0, resolve().objective)


def test_from_is_short_for_its_path() -> None:
    long = resolve(**{"from": {"path": "runs/x", "embeddings_only_steps": 5}})
    assert long.start.path == "runs/x"
    assert (
        resolve("from=runs/x", "from.embeddings_only_steps=5")
        == long
        == resolve("from.embeddings_only_steps=5", **{"from": "runs/x"})
    )
    assert refusal_message("from.pth=x") == "from.pth: unknown setting, did you mean path?"


# ---------------------------------------------------------------- reading and writing


@pytest.mark.parametrize("name", builtin_recipes())
def test_shipped_recipes_resolve_say_what_they_are_and_fit_together(name: str) -> None:
    recipe_name, mapping = read_recipe(name)
    assert recipe_name == name
    assert 10 < len(recipe_summary(builtin_recipes()[name])) < 120
    check_recipe(resolve_recipe(name, mapping))


@pytest.mark.parametrize("name", builtin_recipes())
def test_a_resolved_recipe_read_again_is_itself(name: str) -> None:
    recipe = resolve_recipe(*read_recipe(name))
    dumped = yaml.safe_dump(recipe.to_dict(), sort_keys=False, allow_unicode=True)
    resolved = resolve_recipe(name, yaml.safe_load(dumped))
    assert resolved == recipe
    assert resolved.to_dict() == recipe.to_dict()


def test_a_resolved_mix_read_again_is_itself() -> None:
    recipe = resolve_recipe("test", MIX, ["from=runs/x"])
    assert resolve_recipe("test", yaml.safe_load(yaml.safe_dump(recipe.to_dict()))) == recipe


OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "train.learning_rate": st.floats(1e-6, 1, exclude_min=True),
        "train.steps": st.integers(1, 10**9),
        "train.seed": st.integers(0, 2**31),
        "train.schedule": st.sampled_from(["cosine", "linear", "inverse_sqrt", "constant_then_decay", "constant"]),
        "train.max_grad_norm": st.none() | st.floats(0.1, 10),
        "train.save_every": st.sampled_from([5, "10m", "1epoch", "2.5h"]),
        "train.betas": st.tuples(st.floats(0, 0.99), st.floats(0, 0.999)).map(list),
        "model.layers": st.integers(1, 100),
        "model.ffn_size": st.none() | st.integers(8, 5000),
        "model.dropout": st.floats(0, 0.9),
        "model.bias": st.booleans(),
        "model.position_encoding": st.sampled_from(["learned", "sinusoidal", "rotary", "none"]),
        "model.attention_window": st.none() | st.integers(1, 99),
        "tokenizer.vocab_size": st.integers(300, 10**6),
        "dataset.intra_document_mask": st.booleans(),
        "from.embeddings_only_steps": st.integers(0, 100),
        "corpus.source": st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20).filter(
            lambda s: s.strip() == s
        ),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(builtin_recipes())), overrides=OVERRIDES)
def test_any_valid_recipe_survives_being_written_down(name: str, overrides: dict[str, Any]) -> None:
    model_fields = type(resolve_recipe(*read_recipe(name)).model).model_fields
    for key in [key for key in overrides if key.startswith("model.")]:  # families differ in what they can be told
        field = model_fields.get(key.removeprefix("model."))
        if field is None or (
            get_origin(field.annotation) is Literal and overrides[key] not in get_args(field.annotation)
        ):
            del overrides[key]
    recipe = resolve_recipe(*read_recipe(name), overrides)
    for key, value in overrides.items():
        section, field = key.split(".")
        section_settings = getattr(recipe, "start" if section == "from" else section)
        field_value = getattr(section_settings, field)
        assert (list(field_value) if isinstance(field_value, tuple) else field_value) == value
    assert resolve_recipe(recipe.name, yaml.safe_load(yaml.safe_dump(recipe.to_dict(), allow_unicode=True))) == recipe


def test_an_unknown_recipe_and_a_missing_file_are_named() -> None:
    with pytest.raises(RecipeError, match=r"no recipe 'bert-mni', did you mean bert-mini\?"):
        read_recipe("bert-mni")
    with pytest.raises(RecipeError, match=r"no recipe file nowhere/x\.yaml"):
        read_recipe("nowhere/x.yaml")


@pytest.mark.parametrize(
    "content", [b"a: [1", b"- 1\n- 2", b"\xff\xfe\x00", b"a: !!python/object/apply:os.system ['true']", b"[" * 5000]
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"x\.yaml: (not valid YAML|not UTF-8|a recipe is a mapping)"):
        parse_recipe_file(path)


def test_an_own_file_is_read_and_named_after_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("model: {family: gpt2}\nobjective: clm\n", encoding="utf-8")
    recipe = resolve_recipe(*read_recipe(path))
    assert (recipe.name, recipe.model.family) == ("mine", "gpt2")
    assert recipe.with_name("yours").name == "yours"
