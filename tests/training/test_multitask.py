"""Multi-task model of text and images: all objectives in one run, baselines, initial weights and tasks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from run_factory import RunFactory

import meristem
from meristem.api import LoadedModel
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import Recipe, read_recipe, resolve_recipe
from meristem.evaluation.attention_maps import attention_maps
from meristem.finetune.finetuning import finetune
from meristem.generation.generation_inputs import input_template
from meristem.learning.build import build_learner
from meristem.recipe_resolution import resolve_task_recipe
from meristem.samples.microworld import draw, generate_scene
from meristem.serving.model_registry import ServedRun
from meristem.training import budget, single_task_baselines
from meristem.training.pretraining import pretrain
from meristem.training.report.model_card import insert_section
from meristem.training.run_result import RunResult

ENCODER = {"layers": 1, "hidden_size": 16, "heads": 2, "max_length": 32}
MODEL = {"family": "multitask", **ENCODER, "patch_size": 8}
TEXT, PAIRS = "builtin:microworld-en?size=24", "builtin:microworld-pairs?size=60&to=zh"
MIX = [
    {"objective": ["mlm", "nsp"], "corpus": TEXT, "weight": 2},
    {"objective": "clm", "corpus": TEXT},
    {"objective": "denoising", "corpus": TEXT},
    {"objective": "seq2seq", "corpus": PAIRS},
    {"objective": "caption", "corpus": "builtin:microworld-pictures?size=60"},
]
TERMS = {"mlm+nsp": ("mlm", "nsp"), **{name: (name,) for name in ("clm", "denoising", "seq2seq", "caption")}}


def recipe_of(steps: int = 12, **parts: Any) -> Recipe:
    """A tiny recipe; settings of train are given with their section's name in front."""
    train = {"steps": steps, "batch_tokens": 128, "log_every": 1, "threads": 1, "evaluate_tokens": 256,
             "evaluate_every": 100, "schedule": "constant", "warmup": 0, "learning_rate": 3e-3}  # fmt: skip
    return resolve_recipe("tiny", {
        "corpus": {"processes": 1, "validation": 0.1, "test": 0.1}, "model": MODEL, "mix": MIX,
        "tokenizer": {"kind": "bpe", "vocab_size": 300, "sentinels": 10}, **parts,
        "train": {**train, **parts.get("train", {})},
    })  # fmt: skip


def train(recipe: Recipe, out: Path, console: Console | None = None) -> RunResult:
    return pretrain(recipe, out, fresh=False, console=console or Console(quiet=True))


@dataclass(frozen=True)
class Trained:
    """A mixed run with its baselines."""

    recipe: Recipe
    result: RunResult
    output: str

    @property
    def folder(self) -> Path:
        return self.result.run

    def losses(self, run: str = "") -> list[dict[str, Any]]:
        """The lines of training in a run's metrics."""
        lines = (self.folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [line for line in map(json.loads, lines) if line["kind"] == "train"]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """Twelve steps of everything, and each task alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        threads = torch.get_num_threads()
        console = Console(record=True, width=300, quiet=False, file=(tmp_path_factory.mktemp("said") / "log").open("w"))
        recipe = recipe_of(train={"single_task_baselines": True})
        result = train(recipe, tmp_path_factory.mktemp("runs") / "mixed", console)
        yield Trained(recipe, result, console.export_text())
        torch.set_num_threads(threads)


# ------------------------------------------------------------ one run


def test_every_loss_is_reported_by_itself(mixed: Trained) -> None:
    reported = {key for line in mixed.losses() for key in line}
    assert {"mlm", "nsp", *(f"{source}.loss" for source in TERMS)} <= reported
    for source in TERMS:
        for metrics in (mixed.result.metrics, mixed.result.test):
            assert math.isfinite(metrics[f"{source}.loss"])
    assert {"mlm+nsp.mlm", "mlm+nsp.nsp", "mlm+nsp.nsp.accuracy", "caption.caption.top1"} <= mixed.result.metrics.keys()


def test_a_causal_text_and_a_target_begin_each_as_in_training(loaded: LoadedModel) -> None:
    """A story follows the separator of documents; what is written from a source or a picture, the start token."""
    model, tokenizer = loaded.model, loaded.tokenizer
    assert model.decoder_start_ids == (tokenizer.start,) and model.causal_start_ids is None
    assert input_template(model, tokenizer, "causal").prompt_start_ids == (tokenizer.end,)
    assert input_template(model, tokenizer, "source").decoder_start_ids == (tokenizer.start,)


def test_one_tokenizer_is_trained_on_all_texts(mixed: Trained, tmp_path: Path) -> None:
    """Its words come from the stories, from both sides of the pairs and from the captions of the pictures."""
    tokenizer = load_run(mixed.folder).tokenizer
    for text in ("triangle", "Kenji", "的"):
        ids = tokenizer.encode(text).ids.tolist()
        assert tokenizer.unknown not in ids
    captions_alone = recipe_of(2, mix=MIX[:1])
    train(captions_alone, tmp_path / "alone")
    other = load_run(tmp_path / "alone").tokenizer
    caption = "A yellow cross is to the left of a blue circle."
    assert len(tokenizer.encode(caption).ids) < len(other.encode(caption).ids)


def test_a_mix_of_everything_resumes_bit_for_bit(mixed: Trained, run_factory: RunFactory) -> None:
    train(recipe_of(7), run_factory.root / "parted")
    train(recipe_of(12), run_factory.root / "parted")
    first, second = (load_checkpoint(folder / "checkpoints") for folder in (mixed.folder, run_factory.root / "parted"))
    assert first is not None and second is not None
    assert first.snapshot.step == second.snapshot.step == 12
    for kind in ("model", "optimizer"):
        expected_tensors, other = getattr(first.snapshot, kind), getattr(second.snapshot, kind)
        assert expected_tensors.keys() == other.keys()
        assert [name for name in expected_tensors if not (expected_tensors[name] == other[name]).all()] == []


def test_tasks_get_better_together(run_factory: RunFactory) -> None:
    train(recipe_of(90, train={"learning_rate": 1e-2}), run_factory.root / "run")
    for term in ("mlm", "clm.loss", "denoising.loss", "seq2seq.loss", "caption.loss"):
        losses = [line[term] for line in run_factory.lines("train", "run") if term in line]
        assert sum(losses[-4:]) / 4 < 0.95 * losses[0], term


# ------------------------------------------------------------ single-task baselines


def test_each_task_is_trained_alone_for_the_steps_it_had(mixed: Trained) -> None:
    steps = {"mlm+nsp": 4, "clm": 2, "denoising": 2, "seq2seq": 2, "caption": 2}
    assert single_task_baselines.steps_by_source(mixed.recipe, 12) == steps
    first = mixed.losses()[0]  # only the first step of a mix has learned from no other task
    for name in TERMS:
        single_task_losses = mixed.losses(f"single-task/{name}")
        assert len(single_task_losses) == steps[name]
        assert (mixed.folder / "single-task" / name / "finished.json").exists()
        if f"{name}.loss" in first:
            assert single_task_losses[0]["loss"] == pytest.approx(first["loss"], rel=1e-6)
    assert any(f"{name}.loss" in first for name in TERMS)


def test_a_task_alone_starts_with_the_weights_of_the_mix(mixed: Trained) -> None:
    """Learning nothing, a run alone has exactly the fresh weights of the mixed one, heads too."""
    tokenizer = load_run(mixed.folder).tokenizer
    fresh = build_learner(mixed.recipe, tokenizer).model.state_dict()
    source = mixed.recipe.mix[-1]
    single_task_recipe_of_source = single_task_baselines.single_task_recipe(mixed.recipe, source, 2)
    still = single_task_recipe_of_source.train.model_copy(update={"learning_rate": 1e-30, "weight_decay": 0.0})
    out = mixed.folder.parent / "still"
    mixed_run = single_task_baselines.RunFolder(mixed.folder)
    single_task_baselines.run_recipe(
        replace(single_task_recipe_of_source, train=still),
        out,
        fresh=False,
        console=Console(quiet=True),
        initial=mixed.recipe,
        load_data=lambda *arguments: single_task_baselines._load_mixed_data(*arguments, mixed_run=mixed_run),
    )
    state_dict = load_run(out).learner.model.state_dict()
    assert state_dict.keys() < fresh.keys()  # it has the head of its own task alone
    assert [name for name in state_dict if not torch.allclose(state_dict[name], fresh[name], atol=1e-12)] == []


def test_the_report_has_each_task_in_the_mix_and_alone(mixed: Trained) -> None:
    report = json.loads((mixed.folder / "report.json").read_text(encoding="utf-8"))
    assert [(task["source"], task["term"]) for task in report["tasks"]] == [
        (s, t) for s, ts in TERMS.items() for t in ts
    ]
    assert report["split"] == "test"
    for task in report["tasks"]:
        name, term = task["source"], task["term"]
        single_task_result = json.loads((mixed.folder / "single-task" / name / "finished.json").read_text())["test"]
        single = len(TERMS[name]) == 1
        assert task["loss_alone"] == single_task_result["loss" if single else term]
        assert task["loss_mixed"] == mixed.result.test[f"{name}.{'loss' if single else term}"]
        assert task["loss_difference"] == pytest.approx(task["loss_mixed"] - task["loss_alone"])
        assert task["accuracy"] in (f"{term}.top1", f"{term}.accuracy")
        assert task["accuracy_mixed"] == mixed.result.test[f"{name}.{task['accuracy']}"]
        assert task["samples"] == task["steps"] * 4
    page, card = ((mixed.folder / name).read_text(encoding="utf-8") for name in ("report.html", "README.md"))
    for text in (page, card, mixed.output):
        assert "each difference is one sample" in text and "loss alone" in text and "caption" in text
    assert "Single-task baseline 5 of 5: caption, 2 steps" in mixed.output
    assert card.count("## Each task in the mix and trained alone") == 1


def test_the_same_command_again_trains_nothing_and_keeps_one_section(mixed: Trained) -> None:
    before = mixed.losses("single-task/clm")
    train(mixed.recipe, mixed.folder)
    assert mixed.losses("single-task/clm") == before
    assert (mixed.folder / "README.md").read_text(encoding="utf-8").count("## Each task in the mix") == 1


def test_a_section_of_a_card_is_put_in_and_replaced() -> None:
    inserted_once = insert_section(
        "# Name\n\n## Text\n\n- a\n\n## Numbers\n\n1\n", "New", ["one", ""], before="Numbers"
    )
    assert inserted_once == "# Name\n\n## Text\n\n- a\n\n## New\n\none\n\n## Numbers\n\n1\n"
    assert insert_section(inserted_once, "New", ["two", ""], before="Numbers") == inserted_once.replace("one", "two")


def test_baselines_without_a_mix_are_refused() -> None:
    recipe = recipe_of(mix=MIX[:1], train={"single_task_baselines": True})
    with pytest.raises(RecipeError, match="single_task_baselines: it compares the tasks of a mix"):
        train(recipe, Path("nowhere"))


# ------------------------------------------------------------ starting from an encoder


@pytest.fixture(scope="module", params=["bert", "roberta"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """A pretrained encoder."""
    name, objective = request.param, ["mlm", "nsp"] if request.param == "bert" else ["mlm"]
    plain = recipe_of(3).to_dict()
    plain = {key: plain[key] for key in ("corpus", "tokenizer", "dataset", "train")}
    plain["corpus"]["source"] = TEXT
    recipe = resolve_recipe(name, {**plain, "model": {"family": name, **ENCODER}, "objective": objective})
    return load_run(train(recipe, tmp_path_factory.mktemp("encoder") / name).run)


def _from(encoder: LoadedRun, **from_settings: Any) -> dict[str, Any]:
    shape = {"segments": encoder.recipe.model.segments, "norm_epsilon": encoder.recipe.model.norm_epsilon}
    return {"from": {"path": str(encoder.run.path), **from_settings}, "model": {**MODEL, **shape}}


STILL = {"learning_rate": 1e-30, "weight_decay": 0.0}


def test_a_pretrained_encoder_is_loaded(encoder: LoadedRun, run_factory: RunFactory) -> None:
    """Before it has learned anything else, the new model's masked-word loss is the encoder's own, exactly."""
    console = Console(file=run_factory.output, width=300)
    objective = [part.name for part in encoder.recipe.objective]
    mix = [{"objective": objective, "corpus": TEXT}, *MIX[1:]]
    result = train(recipe_of(2, train=STILL, mix=mix, **_from(encoder)), run_factory.root / "run", console)
    before = json.loads((encoder.run.path / "finished.json").read_text())["test"]
    for name in ("mlm", "nsp") if len(objective) > 1 else ("loss",):
        assert result.test[f"{'+'.join(objective)}.{name}"] == pytest.approx(before[name], abs=1e-5)
    output = run_factory.output.getvalue()
    assert f"the layers of this {encoder.recipe.model.family} are the encoder" in output
    assert "the decoder is untrained" in output
    loaded_run, theirs = load_run(run_factory.root / "run"), encoder.learner.model.backbone
    assert loaded_run.tokenizer.digest == encoder.tokenizer.digest
    assert torch.equal(loaded_run.learner.model.backbone.embedding().weight, theirs.embedding().weight)
    assert torch.equal(loaded_run.learner.model.heads["clm"].weight, theirs.embedding().weight)


def test_only_the_encoder_is_loaded_with_take_encoder(encoder: LoadedRun, run_factory: RunFactory) -> None:
    train(recipe_of(2, train=STILL, **_from(encoder, load="encoder")), run_factory.root / "run")
    state_dict, theirs = (
        load_run(run_factory.root / "run").learner.model.state_dict(),
        encoder.learner.model.state_dict(),
    )
    layer, head = "layers.0.attention.project.weight", "heads.mlm.transform.dense.weight"
    assert torch.allclose(state_dict[f"backbone.encoder.{layer}"], theirs[f"backbone.stack.{layer}"], atol=1e-12)
    assert not torch.allclose(state_dict[head], theirs[head])


def test_another_shape_is_refused_with_what_to_set(encoder: LoadedRun, run_factory: RunFactory) -> None:
    parts = _from(encoder)
    parts["model"] |= {"hidden_size": 32, "layers": 2, "norm_position": "pre", "embedding_norm": False}
    message = (
        "set model.hidden_size=16 model.layers=1 model.norm_position=post model.ffn_size=64 model.embedding_norm=true"
    )
    with pytest.raises(MeristemError, match=message):
        train(recipe_of(2, **parts), run_factory.root / "run")


def test_what_has_no_encoder_is_refused(run_factory: RunFactory) -> None:
    other = resolve_recipe("gpt2", {**recipe_of(2).to_dict(), "model": {"family": "gpt2", **ENCODER}, "mix": MIX[1:2]})
    train(other, run_factory.root / "gpt2")
    parts = {"from": {"path": str(run_factory.root / "gpt2"), "load": "encoder"}}
    with pytest.raises(MeristemError, match="gpt2 has no encoder that fits multitask"):
        train(recipe_of(2, **parts), run_factory.root / "run")
    with pytest.raises(MeristemError, match="families that can start from an encoder: multitask"):
        train(resolve_recipe("gpt2", {**other.to_dict(), **parts}), run_factory.root / "again")


# ------------------------------------------------------------ what it is used for


@pytest.fixture(scope="module")
def loaded(mixed: Trained) -> LoadedModel:
    return meristem.load(mixed.folder)


def _encoded(loaded: LoadedModel, text: str) -> tuple[list[int], torch.Tensor]:
    """A text's tokens between start and end, and the encoder's states of them."""
    tokenizer = loaded.tokenizer
    tokens = [tokenizer.start, *tokenizer.encode(text, special=True).ids.tolist(), tokenizer.end]
    with torch.no_grad():
        return tokens, loaded.model.backbone(tokens=torch.tensor([tokens])).last_hidden_state[0]


def test_each_verb_uses_the_part_that_learned_it(loaded: LoadedModel) -> None:
    """Masks are filled by the encoder, texts written and scored by the decoder alone, pictures told by both."""
    model, tokenizer, text = loaded.model, loaded.tokenizer, "Kenji was here."
    ids = tokenizer.encode(text).ids.tolist()
    tokens, states = _encoded(loaded, "Kenji was [MASK].")
    chances = model.heads["mlm"](states[tokens.index(tokenizer.mask)]).softmax(-1).detach()
    number = {tokenizer.token_text(token): token for token in range(tokenizer.vocab_size)}
    for candidate in loaded.fill("Kenji was [MASK].")[0].candidates:
        assert candidate.probability == pytest.approx(float(chances[number[candidate.token]]), rel=1e-4)
    separator = torch.tensor([[tokenizer.end, *ids]])
    with torch.no_grad():
        causal = model.heads["clm"](
            model.backbone(tokens=separator[:, :-1], causal=True).last_hidden_state[0]
        ).log_softmax(-1)
    expected = float(causal[torch.arange(len(ids)), ids].sum())
    assert loaded.score([text])[0].logprob == pytest.approx(expected, abs=1e-4)
    ((completion,),) = loaded.generate([text], greedy=True, max_tokens=1)
    with torch.no_grad():
        last = model.heads["clm"](model.backbone(tokens=separator, causal=True).last_hidden_state[0, -1])
    banned = [*tokenizer.special_mask.nonzero()[0].tolist()]
    last[[token for token in banned if token != tokenizer.end]] = -torch.inf
    assert completion.tokens == (int(last.argmax()),)
    picture = draw(generate_scene(0, 3), 32)
    ((caption,),) = loaded.generate([picture], greedy=True, max_tokens=3)
    start_ids = torch.tensor([list(model.decoder_start_ids or ())])
    with torch.no_grad():
        image_hidden = model.backbone(tokens=start_ids, image=torch.from_numpy(picture)[None]).last_hidden_state[0, -1]
        first = model.heads["seq2seq"](image_hidden)
    first[[token for token in banned if token not in (tokenizer.end, *tokenizer.sentinels)]] = -torch.inf
    assert caption.tokens[0] == int(first.argmax())


def test_vectors_and_attention_maps_are_the_encoders(loaded: LoadedModel) -> None:
    text = "Kenji was here."
    _, states = _encoded(loaded, text)
    torch.testing.assert_close(torch.as_tensor(loaded.embed([text])[0]).float(), states.mean(0), atol=1e-5, rtol=1e-4)
    maps = attention_maps(loaded.model, loaded.tokenizer, text)
    assert maps.kinds.keys() == {"self"}
    assert (maps.kinds["self"].weights > 0).all()  # both sides are seen, by every token
    attention = attention_maps(loaded.model, loaded.tokenizer, image=draw(generate_scene(0, 3), 32), target="A circle.")
    assert attention.kinds.keys() == {"image", "self", "decoder"}
    cross_attention = attention_maps(loaded.model, loaded.tokenizer, text, target="A circle.")
    assert cross_attention.kinds.keys() == {"cross", "self", "decoder"}


def test_it_is_served_with_all_it_can_do(mixed: Trained) -> None:
    can = ServedRun("mixed", load_run(mixed.folder)).routes
    assert {"caption", "generate", "fill", "score", "embed", "attention"} <= set(can)


def test_it_says_what_to_try(mixed: Trained) -> None:
    verbs = [
        line.split()[1:2] + [word for word in line.split() if word.startswith("--")]
        for line in mixed.result.example_commands
    ]
    assert verbs == [["fill"], ["generate", "--prompt"], ["generate", "--image"], ["evaluate"]]


@pytest.mark.parametrize(("task", "data", "backbone_mode"), [
    ("sentiment", "builtin:microworld-sentiment", "bidirectional"),
    ("entities", "builtin:microworld-entities", "bidirectional"),
    ("translation", "builtin:microworld-pairs", "encoder_decoder"),
    ("caption", "builtin:microworld-pictures", "encoder_decoder"),
])  # fmt: skip
def test_tasks_read_with_the_encoder_and_write_with_both(
    task: str, data: str, backbone_mode: str, mixed: Trained, run_factory: RunFactory
) -> None:
    small = {"train.epochs": None, "train.steps": 2, "train.batch_samples": 4, "from": str(mixed.folder),
             "train.threads": 1, "data.train": f"{data}?size=12", "data.validation": f"{data}?size=6&seed=1",
             "data.test": f"{data}?size=6&seed=2"}  # fmt: skip
    recipe = resolve_task_recipe(task, {key: value for key, value in small.items() if value is not None})
    result = finetune(recipe, run_factory.root / task, fresh=False, console=Console(quiet=True))
    run = load_run(result.run)
    assert getattr(run.recipe.task, "backbone_mode", None) in (backbone_mode, None)
    weight_name = "backbone.encoder.layers.0.attention.project.weight"
    assert run.learner.model.state_dict()[weight_name].shape == (48, 16)
    assert result.test


# ------------------------------------------------------------ the recipe


def test_multitask_mini_is_what_it_says() -> None:
    recipe = resolve_recipe(*read_recipe("multitask-mini"))
    assert recipe.model.family == "multitask" and recipe.train.single_task_baselines
    objectives = {part.name for source in recipe.mix for part in source.objective}
    assert {"mlm", "nsp", "clm", "caption"} <= objectives
    assert {source.corpus.source.partition("?")[0] for source in recipe.mix} == {
        "builtin:microworld-en", "builtin:microworld-pictures"}  # fmt: skip
