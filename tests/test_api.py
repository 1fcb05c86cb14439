"""Meristem from Python: the calls that others script against."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich import console, jupyter
from rich.console import Console
from rich.table import Table

import meristem
from meristem.config.errors import MeristemError, RecipeError
from meristem.generation.settings import SamplingSettings
from meristem.training import budget
from meristem.training.run_logger import RunLogger

TINY = {
    "model.layers": 2,
    "model.hidden_size": 32,
    "model.heads": 2,
    "model.max_length": 32,
    "tokenizer.vocab_size": 300,
    "train.batch_tokens": 128,
    "train.steps": 12,
    "train.threads": 1,
    "train.save_every": 4,
    "train.keep_checkpoints": 9,
    "train.evaluate_every": 4,
    "corpus.processes": 1,
    "corpus.validation": 0.1,
    "corpus.test": 0.1,
}
SOURCE = "builtin:microworld-en?size=40"


@pytest.fixture(autouse=True, scope="module")
def _small_peak() -> Iterator[None]:
    """The machine's peak is measured on a small product: it is nobody's question here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        yield


SMALL_TASK = ["model.layers=1", "model.hidden_size=32", "model.heads=2", "tokenizer.vocab_size=500"]


def trained(recipe: str, folder: Path) -> Path:
    return meristem.pretrain(recipe, TINY, source=SOURCE, out=folder / recipe, console=Console(quiet=True)).run


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("bert-mini", tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("gpt2-mini", tmp_path_factory.mktemp("runs"))


def test_importing_meristem_does_not_import_torch() -> None:
    script = "import sys, meristem; assert 'torch' not in sys.modules; meristem.load; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="pretrian"):
        _ = meristem.pretrian  # type: ignore[attr-defined]


def test_settings_may_be_a_mapping_or_words(tmp_path: Path) -> None:
    words = [f"{key}={value}" for key, value in TINY.items()]
    result = meristem.pretrain("bert-mini", TINY, source=SOURCE, out=tmp_path / "one", console=Console(quiet=True))
    run_result = meristem.pretrain("bert-mini", words, source=SOURCE, out=tmp_path / "two", console=Console(quiet=True))
    assert (result.step, result.metrics, result.test) == (run_result.step, run_result.metrics, run_result.test)
    assert result.used["tokens"] == 12 * 128


def test_a_recipe_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(
        "model: {family: gpt2, layers: 1, hidden_size: 32, heads: 2, max_length: 32}\nobjective: clm\n"
        f"corpus: {{source: '{SOURCE}', processes: 1}}\ntokenizer: {{kind: bpe, vocab_size: 300}}\n"
        "train: {steps: 2, batch_tokens: 64, learning_rate: 3e-4}\n",
        encoding="utf-8",
    )
    result = meristem.pretrain("mine.yaml", console=Console(quiet=True))
    assert result.run == Path("runs/mine")
    assert meristem.load(result.run).recipe.train.learning_rate == 3e-4


def test_an_unknown_setting_is_refused_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"train\.steeps: unknown setting, did you mean steps\?"):
        meristem.pretrain("bert-mini", {"train.steeps": 5}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_describe_a_task() -> None:
    small = [*SMALL_TASK, "data.train=builtin:microworld-sentiment?size=64&seed=1", "train.epochs=3"]
    description = meristem.describe("classification", small)
    assert (description.objective, description.steps) == ("classification", round(3 * 64 / 32))
    assert description.tokens_per_step < 32 * 128  # samples are shorter than rows may be


def test_describe() -> None:
    description = meristem.describe("gpt2-mini", TINY)
    assert (description.family, description.objective, description.steps, description.tokens_per_step) == (
        "gpt2",
        "clm",
        12,
        128,
    )
    assert description.parameters == description.backbone, "GPT-2's head is its embedding"


def test_fill_ranks_words(bert: Path) -> None:
    (filled,) = meristem.load(bert).fill("The [MASK] was here.", top=4)
    assert len(filled.candidates) == 4
    assert all("[MASK]" not in candidate.text for candidate in filled.candidates)


def test_generate_follows_its_seed(gpt2: Path) -> None:
    model = meristem.load(gpt2)
    (first_texts,) = model.generate("The", max_tokens=8, seed=1)
    (same_seed_texts,) = model.generate("The", max_tokens=8, seed=1)
    (other,) = model.generate("The", max_tokens=8, seed=2)
    assert first_texts[0].text == same_seed_texts[0].text != other[0].text
    (first,), (second,) = (model.generate("The", max_tokens=8)[0] for _ in range(2))
    assert first.seed != second.seed and first.text != second.text
    assert model.generate("The", max_tokens=8, seed=first.seed) == [[first]]
    (unrepeated,) = model.generate("The", max_tokens=40, greedy=True, min_tokens=40, no_repeat_ngram_size=1)[0]
    assert len(set(unrepeated.tokens)) == 40
    (best,) = model.best("The", of=2, rewards="repetition", max_tokens=4)
    assert best[0].output.seed is not None
    assert len(model.generate(["A", ""], count=2, max_tokens=3)) == 2
    with pytest.raises(TypeError, match="temprature"):
        model.generate("The", temprature=2)


def test_a_masked_model_writes_too(bert: Path) -> None:
    ((completion,),) = meristem.load(bert).generate("The", max_tokens=5)
    assert len(completion.tokens) == 5


def test_score_takes_one_text_or_many(gpt2: Path) -> None:
    model = meristem.load(gpt2)
    (single_score,) = model.score("The garden.")
    scores = model.score(["A boat.", "The garden."])
    assert scores[1].logprob == pytest.approx(single_score.logprob, abs=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_embed_gives_a_vector_a_text(bert: Path, pooling: str) -> None:
    vectors = meristem.load(bert).embed(["The garden.", "A boat in the harbour.", "The garden."], pooling=pooling)  # type: ignore[arg-type]
    assert vectors.shape == (3, 32)
    assert torch.equal(vectors[0], vectors[2]) and not torch.equal(vectors[0], vectors[1])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_attention_says_where_each_token_looks(family: str, request: pytest.FixtureRequest) -> None:
    tokens, layers = meristem.load(request.getfixturevalue(family)).attention("The garden was here.")
    assert len(layers) == 2 and layers[0].shape == (2, len(tokens), len(tokens))
    torch.testing.assert_close(layers[1].sum(-1), torch.ones(2, len(tokens)))
    later = torch.triu(torch.ones(len(tokens), len(tokens), dtype=torch.bool), 1)
    assert (float(layers[0][:, later].max()) == 0.0) is (family == "gpt2")


def test_evaluate_gives_what_the_run_found(gpt2: Path) -> None:
    evaluation = meristem.load(gpt2).evaluate()
    assert {"loss", "perplexity", "bits_per_byte"} <= evaluation["metrics"].keys()


def test_a_step_and_the_best_can_be_named(bert: Path) -> None:
    assert meristem.load(bert).loaded_run.step == 12
    assert meristem.load(bert, step=4).loaded_run.step == 4
    lines = map(json.loads, (bert / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    measured = {line["step"]: line["loss"] for line in lines if line["kind"] == "evaluation"}
    assert meristem.load(bert, which="best").loaded_run.step == min(measured, key=lambda step: measured[step])
    with pytest.raises(MeristemError, match="has no checkpoint of step 5; there are: 12, 8, 4"):
        meristem.load(bert, step=5)


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match="no such run"):
        meristem.load(tmp_path / "nothing")
    with pytest.raises(MeristemError, match="is not a run"):
        meristem.load(tmp_path)


def test_completion_and_help_show_the_interface() -> None:
    public_names = dir(meristem)
    assert {"pretrain", "finetune", "reinforce", "load", "describe", "export", "reward", "LoadedModel"} <= set(
        public_names
    )
    assert not [name for name in public_names if name in ("TYPE_CHECKING", "Any", "import_module")]
    code = "import io, contextlib, pydoc, meristem; print(pydoc.render_doc(meristem, renderer=pydoc.plaintext))"
    stdout = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("pretrain(", "finetune(", "load(", "class Loaded", "docs/python.md"):
        assert name in stdout, name


def test_generate_documents_every_setting_with_its_default() -> None:
    parameters = inspect.signature(meristem.LoadedModel.generate).parameters
    for name, field in SamplingSettings.model_fields.items():
        assert parameters[name].default == field.default, name
        assert name in (meristem.LoadedModel.generate.__doc__ or ""), name


def test_tables_are_shown_once_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[str] = []
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(jupyter, "display", lambda segments, text: displayed.append(text))
    table = Table("name")
    table.add_row("only once")
    with RunLogger(tmp_path, console.Console(stderr=True)) as journal:
        journal.log_tables([table])
    assert [text.count("only once") for text in displayed] == [1]
    assert "only once" in (tmp_path / "log.txt").read_text(encoding="utf-8")


def test_a_subpackage_does_not_hide_the_function_of_its_name() -> None:
    code = (
        "import meristem, meristem.reinforce.objectives.policy, sys\n"
        "assert callable(meristem.reinforce) and meristem.reinforce.__module__ == 'meristem.api.training'\n"
        "from meristem.reinforce.objectives.policy import PolicyObjective\n"
        "from meristem.reinforce.objectives import policy\n"
        "assert policy.PolicyObjective is PolicyObjective and sys.modules['meristem.reinforce'].__path__\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
