"""Earlier names of settings, names of other libraries, migration of older recipes, and the names that are hashed."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import meristem
from meristem.config.errors import RecipeError
from meristem.config.recipe import parse_recipe_file, read_recipe, recipe_yaml, resolve_recipe
from meristem.config.recipe_format import RECIPE_FORMAT
from meristem.config.setting_names import inherited_table, with_hashed_names
from meristem.config.settings import Settings
from meristem.config.settings_reference import PAGE, render_page
from meristem.config.validation import build_settings
from meristem.corpus.settings import CorpusSettings
from meristem.reinforce.reward_base import REWARDS
from meristem.serving.settings import ServingSettings

RUNS = Path(__file__).parent / "golden" / "runs"
REPOSITORY = Path(__file__).parents[1]


def all_settings() -> list[type[Settings]]:
    """Every settings class of the package."""
    for package in (
        "models",
        "objectives",
        "tasks",
        "reinforce",
        "corpus",
        "dataset",
        "training",
        "serving",
        "evaluation",
    ):
        for module in pkgutil.walk_packages([str(Path(meristem.__file__).parent / package)], f"meristem.{package}."):
            if "datatrove" not in module.name:
                importlib.import_module(module.name)
    classes, seen_classes = [Settings], set()
    for cls in classes:
        classes += [
            subclass
            for subclass in cls.__subclasses__()
            if subclass not in seen_classes and not seen_classes.add(subclass)
        ]  # type: ignore[func-returns-value]
    return [cls for cls in classes if cls.__module__.startswith("meristem.")]


def test_tables_name_settings_that_exist() -> None:
    renamed = 0
    for cls in all_settings():
        renamed_table = inherited_table(cls, "renamed")
        fields = cls.model_fields.keys()
        assert not renamed_table.keys() & fields, f"{cls.__name__}: an earlier name is a setting again"
        assert renamed_table.keys() <= {*renamed_table} and set(renamed_table.values()) <= fields, (
            f"{cls.__name__}: {set(renamed_table.values()) - fields}"
        )
        renamed += len(vars(cls).get("renamed", {}))
        for name, advice in inherited_table(cls, "foreign_names").items():
            target = advice.partition("=")[0].partition(".")[0]
            assert name not in fields and (" " in advice or target in fields), f"{cls.__name__}.{name}: {advice}"
    assert renamed > 190


def refusal(*overrides: str, recipe: str = "bert-mini") -> str:
    with pytest.raises(RecipeError) as error:
        resolve_recipe(*read_recipe(recipe), overrides)
    return str(error.value)


@pytest.mark.parametrize(("override", "answer"), [
    ("train.rate=3e-4", "train.rate is now train.learning_rate; write train.learning_rate=3e-4"),
    ("store.picture=16", "store.picture is now dataset.image_size; write dataset.image_size=16"),
    ("objective.mask_share=0.7",
     "objective.mask_share is now objective.mask_replace_prob; write objective.mask_replace_prob=0.7"),
    ("corpus.quality.shortest_words=3",
     "corpus.quality.shortest_words is now corpus.quality.min_words; write corpus.quality.min_words=3"),
    ("from.lora.layers=[all]",
     "from.lora.layers is now from.lora.target_modules; write from.lora.target_modules=[all]"),
    ("corpus.picture=file", "corpus.picture is now corpus.image; write corpus.image=file"),
    ("lr=3e-4", "lr: unknown setting; write train.learning_rate=3e-4"),
    ("train.lr=3e-4", "train.lr: unknown setting; write train.learning_rate=3e-4"),
    ("model.lr=0.1", "model.lr: unknown setting; write train.learning_rate=0.1"),
    ("n_layer=4", "n_layer: unknown setting; write model.layers=4"),
    ("model.num_attention_heads=8", "model.num_attention_heads: unknown setting; write model.heads=8"),
    ("model.vocab_size=100", "model.vocab_size: unknown setting; write tokenizer.vocab_size=100"),
    ("seed=1", "seed: unknown setting; write train.seed=1"),
    ("dropout=0.1", "dropout: unknown setting; write model.dropout=0.1"),
    ("mlm_probability=0.2", "mlm_probability: unknown setting; write objective.mask_rate=0.2"),
    ("warmup_ratio=0.1", "warmup_ratio: unknown setting; write train.warmup=0.1"),
    ("bf16=true", "bf16: unknown setting; write train.precision=bfloat16"),
    ("lr_scheduler_type=linear", "lr_scheduler_type: unknown setting; write train.schedule=linear"),
    ("output_dir=x", "output_dir: unknown setting; the folder of a run is given with --out FOLDER"),
])  # fmt: skip
def test_other_names_are_answered_with_the_line_to_write(override: str, answer: str) -> None:
    assert refusal(override) == answer


@pytest.mark.parametrize("name", [
    "d_model", "num_hidden_layers", "n_head", "n_embd", "hidden_dim", "intermediate_size", "max_seq_len", "block_size",
    "max_position_embeddings", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps",
    "warmup_steps", "weight_decay", "max_grad_norm", "max_steps", "save_steps", "eval_steps", "logging_steps", "fp16",
    "gradient_checkpointing", "resume_from_checkpoint", "num_beams", "max_new_tokens", "do_sample", "batch_size",
    "epochs", "num_labels", "learning_rate",
])  # fmt: skip
def test_usual_names_of_other_libraries_are_answered(name: str) -> None:
    answer = refusal(f"{name}=1")
    assert answer.startswith(f"{name}: unknown setting; ") and "known:" not in answer


def test_a_recipe_file_and_rewards_are_answered_too(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("model: {family: bert, width: 32}\nobjective: mlm\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"^model.width is now model.hidden_size; write model.hidden_size=32$"):
        resolve_recipe(*read_recipe(path))
    path.write_text("store: {}\nobjective: mlm\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="store is now dataset; rename that section"):
        resolve_recipe(*read_recipe(path))
    with pytest.raises(RecipeError, match=r"reward\.slack is now reward\.tolerance; write reward\.tolerance=0\.1"):
        build_settings(REWARDS["length"].Settings, {"target": 3, "slack": 0.1}, "reward")


@pytest.mark.parametrize("run", sorted(path.name for path in RUNS.iterdir()))
def test_an_older_recipe_is_migrated_and_hashed_under_its_own_names(run: str, tmp_path: Path) -> None:
    path = RUNS / run / "recipe.yaml"
    recipe, saved = resolve_recipe(run, parse_recipe_file(path)), yaml.safe_load(path.read_text(encoding="utf-8"))
    if "format" not in saved:  # the names of format 1 are those that are hashed
        assert json.dumps(recipe.to_hashed_dict()) == json.dumps(saved)
    recipe_path = tmp_path / "recipe.yaml"
    recipe_path.write_text(recipe_yaml(recipe), encoding="utf-8")
    assert yaml.safe_load(recipe_path.read_text(encoding="utf-8"))["format"] == RECIPE_FORMAT
    assert resolve_recipe(run, parse_recipe_file(recipe_path)) == recipe


def test_the_format_number_decides(tmp_path: Path) -> None:
    path, sections = tmp_path / "recipe.yaml", "model: {family: bert, width: 32}\nobjective: mlm\n"
    path.write_text(f"format: 1\n{sections}", encoding="utf-8")
    assert parse_recipe_file(path)["model"] == {"family": "bert", "hidden_size": 32}
    path.write_text(sections, encoding="utf-8")
    assert parse_recipe_file(path)["model"] == {"family": "bert", "width": 32}
    path.write_text("format: 2\ncorpus: {source: a.jsonl, picture: file}\ndata: {picture: path}\n", encoding="utf-8")
    expected = {"corpus": {"source": "a.jsonl", "image": "file"}, "data": {"image": "path"}}
    assert parse_recipe_file(path) == expected
    path.write_text(sections, encoding="utf-8")
    (tmp_path / "checkpoints").mkdir()  # now it is the recipe of a run
    assert parse_recipe_file(path)["model"] == {"family": "bert", "hidden_size": 32}
    for version, message in ((RECIPE_FORMAT + 1, "update meristem"), ("two", "not a format number")):
        path.write_text(f"format: {version}\n{sections}", encoding="utf-8")
        with pytest.raises(RecipeError, match=message):
            parse_recipe_file(path)


def test_migration_reaches_lists_nested_settings_and_overrides_of_a_judge(tmp_path: Path) -> None:
    older: dict[str, Any] = {
        "format": 1,
        "rewards": [
            {"name": "grammar", "judge": {"model.width": 8, "train.rate": 0.1}},
            {"name": "length", "slack": 1},
        ],
        "judge": [{"name": "meaning", "learn": {"width": 3}}],
        "policy": {"count": 3, "kl": {"adapt": 0.1}},
        "mix": [{"objective": [{"name": "nsp", "rate": 0.5}], "corpus": {"near": {"words": 3}}, "weight": 1}],
        "from": {"thaw": 2, "lora": {"layers": ["all"]}},
    }
    path = tmp_path / "older.yaml"
    path.write_text(yaml.safe_dump(older), encoding="utf-8")
    migrated = parse_recipe_file(path)
    judge_settings = {"model.hidden_size": 8, "train.learning_rate": 0.1}
    assert migrated == {
        "rewards": [{"name": "grammar", "judge_settings": judge_settings}, {"name": "length", "tolerance": 1}],
        "judge": [{"name": "meaning", "word2vec": {"vector_size": 3}}],
        "policy": {"num_generations": 3, "kl": {"adaptation_rate": 0.1}},
        "mix": [
            {"objective": [{"name": "nsp", "negative_rate": 0.5}], "corpus": {"near_dedup": {"words": 3}}, "weight": 1}
        ],
        "from": {"unfreeze_every": 2, "lora": {"target_modules": ["all"]}},
    }


def test_cache_keys_and_signatures_use_the_first_names() -> None:
    corpus = CorpusSettings.model_validate({"near_dedup": True, "quality": {"min_words": 3}, "pii": True})
    fields = corpus.cache_key_fields()
    assert {"near", "quality", "private", "shortest"} <= fields.keys() and "memory_mb" not in fields["near"]
    assert fields["quality"]["shortest_words"] == 3
    hashed = with_hashed_names(corpus, corpus.model_dump(mode="json"))
    assert not hashed.keys() & {"near_dedup", "pii", "min_characters"}


def test_the_settings_page_is_current() -> None:
    current = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert current == render_page(), "run: python -m meristem.config.settings_reference"


def test_the_server_takes_every_setting_as_an_option() -> None:
    from meristem.cli import serve, studio

    for command, port in ((serve.serve, 8000), (studio.studio, 8642)):
        parameters = inspect.signature(command.with_options([])).parameters
        assert ServingSettings.model_fields.keys() <= parameters.keys() and parameters["port"].default == port
