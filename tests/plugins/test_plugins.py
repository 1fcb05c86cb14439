"""Plugins: docs/plugins.md's example package is installed with pip, and all of its components are used."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from cli_runner import Meristem

import meristem as package
from meristem.api import finetune, load
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.config.registry import ComponentKind, _plugins
from meristem.config.schema import recipe_schema
from meristem.data.sources import formats_by_suffix
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES
from meristem.interfaces.task import TASKS
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_base import REWARDS
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.tokenizers.tokenizer_kind import TOKENIZER_KINDS

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "plugins.md"
CARDS = "\n\n".join(f"{adjective} Film number {n}\n{label}" for n in range(40) for adjective, label in
                    [("A GOOD", "good"), ("a bad", "bad")])  # fmt: skip


def write_distribution(folder: Path, name: str, entry_points: str) -> None:
    """The metadata of an installed distribution."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


def write_lines(path: str, rows: Sequence[Mapping[str, object]]) -> None:
    """JSON lines."""
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def forget_plugins() -> None:
    for cached in (_plugins, formats_by_suffix):
        cached.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example package is installed."""
    target = tmp_path_factory.mktemp("site")
    source = target / "source"
    subprocess.run(["cp", "-r", str(HERE / "example_plugin"), str(source)], check=True)  # pip builds inside the folder
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target / "packages"), str(source)], check=True, timeout=120)
    return target / "packages"


@pytest.fixture
def plugins(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example package on the import path."""
    monkeypatch.syspath_prepend(str(installed))
    forget_plugins()
    yield installed
    forget_plugins()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on the import path, for distributions that a test writes."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    forget_plugins()


def test_pretraining_with_a_plugins_family_objective_tokenizer_format_and_tracker(
    plugins: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.cards").write_text(CARDS)
    (tmp_path / "own.yaml").write_text(
        "model: {family: context-mean, max_length: 24}\n"
        "tokenizer: {kind: bytes, vocab_size: 300}\n"
        "objective: replaced\n"
        "train: {steps: 40, batch_tokens: 192, learning_rate: 0.01, evaluate_every: none, trackers: [csv]}\n"
        f"corpus: {{source: {tmp_path / 'text.cards'}, validation: 0, test: 0, deduplicate: false}}\n"
    )
    result = package.pretrain(tmp_path / "own.yaml", out=tmp_path / "run")
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in metrics if line["kind"] == "train"]
    assert result.step == 40 and losses[-1] < 0.8 * losses[0]
    numbers = (tmp_path / "run" / "numbers.csv").read_text().splitlines()
    assert f"40,train/loss,{losses[-1]}" in numbers
    model = load(tmp_path / "run")
    assert type(model.model.backbone).__name__ == "ContextMean"
    assert model.tokenizer.decode(model.tokenizer.encode_ids(["Überall, née"])[0]) == "Überall, née"
    assert len(model.tokenizer.encode_ids(["é"])[0]) == 2  # one token per byte


def test_a_plugins_perturbation_in_robustness_and_in_training(plugins: Path, meristem: Meristem) -> None:
    write_lines("films.jsonl", [{"text": f"film {n}", "label": label} for n in range(20) for label in ("good", "bad")])
    settings = {
        "from": "scratch",
        "model": {"family": "bert", "layers": 1, "hidden_size": 16, "heads": 2, "max_length": 16},
        "tokenizer.vocab_size": 120,
        "data.train": "films.jsonl",
        "data.augment": {"perturbations": ["shouting"], "share": 1.0},
        "train.steps": 2,
    }
    finetune("classification", settings, out="run")
    report = package.robustness("run", "films.jsonl", only=["shouting"], severities=[1.0])
    assert report.results[0].changed == 1.0 and report.results[0].summary == "three exclamation marks behind a word"


def test_a_plugins_task_with_a_field_of_its_own_from_training_to_the_command_line(
    plugins: Path, meristem: Meristem
) -> None:
    rows = [{"text": f"A FILM number {number}", "tone": tone, "label": label}
            for number in range(40) for tone, label in [("Warm", "good"), ("cold", "bad")]]  # fmt: skip
    write_lines("films.jsonl", rows)
    settings = {
        "task": "lowercase",
        "from": "scratch",
        "model": {"family": "context-mean", "max_length": 40},
        "tokenizer": {"kind": "bytes", "vocab_size": 300},
        "data.train": "films.jsonl",
        "train.steps": 60,
        "train.learning_rate": 0.02,
    }
    finetune("classification", settings, out="run")
    film = {"text": "a film", "tone_of_voice": "WARM"}
    expected = load("run").predict(film)
    assert expected["label"] == "good"
    assert load("run").predict({**film, "tone_of_voice": "cold"})["label"] == "bad"

    command = ("predict", "run", "--json")
    assert meristem(*command, "a film", "--tone-of-voice", "warm").answers == [expected]
    assert meristem(*command, "--tone-of-voice=warm", "A film").answers == [expected]
    lines = f"a film\twarm\n{json.dumps(film)}\n"
    assert meristem(*command, pipe=lines.encode()).answers == [expected] * 2
    write_lines("new.jsonl", [{"text": "a film", "tone": "warm"}, {"text": "a film"}])
    answered = meristem(*command, "--file", "new.jsonl")
    assert answered.code == 1 and answered.answers[0] == expected
    assert "new.jsonl:2: no value in column 'tone'; this row has text" in answered.err
    usage = 'task lowercase needs tone_of_voice: meristem predict RUN "…" --tone-of-voice "…", or'
    assert usage in meristem(*command, "a film").err
    assert "takes no question" in meristem(*command, "a film", "--tone-of-voice", "cold", "--question", "?").err
    shown = meristem("predict", "run", "--help").out
    assert re.search(r"--tone-of-voice +TEXT +How the text is said, in a word\.", shown) and not re.search(
        "--question +TEXT", shown
    )


def test_a_plugins_reward_and_the_command_that_lists_rewards(plugins: Path) -> None:
    (settings,) = parse_reward_specs("vowels,vowels=ae")
    assert isinstance(settings, ComponentKind.REWARD.settings_class("vowels"))
    command = [sys.executable, "-m", "meristem", "reward"]
    environment = {"PYTHONPATH": f"{plugins}:{Path(package.__file__).parents[1]}", "PATH": "/usr/bin:/bin"}
    scored = subprocess.run(
        [*command, "vowels", "--text", "a tree", "--json"], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(scored.stdout)["value"] == pytest.approx(3 / 5)
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert re.search(r"^vowels +\S+.* of meristem-example-plugin$", listed.stdout, re.MULTILINE)


def test_plugins_are_in_messages_and_in_the_schema(plugins: Path) -> None:
    with pytest.raises(RecipeError, match=r"objective.name: no 'replacd', did you mean replaced\?"):
        resolve_recipe("test", {"model": {"family": "bert"}, "objective": "replacd"})
    with pytest.raises(RecipeError, match=r"objective.replace_rat: unknown setting, did you mean replace_rate\?"):
        resolve_recipe("test", {"model": {"family": "bert"}, "objective": {"name": "replaced", "replace_rat": 0.2}})
    with pytest.raises(RecipeError, match=r"tokenizer.kind: no tokenizer kind 'byte', did you mean bytes\?"):
        resolve_recipe("test", {"model": {"family": "bert"}, "objective": "mlm", "tokenizer": {"kind": "byte"}})
    with pytest.raises(RecipeError, match=r"train.trackers.0: no tracker 'cvs', did you mean csv\?"):
        resolve_recipe("test", {"model": {"family": "bert"}, "objective": "mlm", "train": {"trackers": ["cvs"]}})
    assert "example_plugin.ContextMeanSettings" in recipe_schema()["$defs"]


def test_a_broken_plugin_is_one_error_and_hides_nothing(packages: Path) -> None:
    (packages / "breaks.py").write_text("raise OSError('no such library')\n")
    write_distribution(packages, "breaking-plugin", "[meristem.models]\nbreaks = breaks:Breaks\n")
    forget_plugins()
    message = r"meristem\.models breaks of breaking-plugin cannot be loaded \(OSError: no such library\)"
    with pytest.raises(MeristemError, match=message):
        resolve_recipe("test", {"model": {"family": "breaks"}, "objective": "mlm"})
    with pytest.warns(UserWarning, match=f"left out: {message}"):
        names = [name for name, _ in MODEL_FAMILIES.items()]
    assert "bert" in names and "breaks" not in names
    assert resolve_recipe("test", {"model": {"family": "bert"}, "objective": "mlm"}).model.family == "bert"


def test_what_is_built_in_cannot_be_replaced(packages: Path) -> None:
    write_distribution(packages, "thief", "[meristem.objectives]\nmlm = json:JSONEncoder\nother = json:JSONEncoder\n")
    write_distribution(packages, "second", "[meristem.objectives]\nother = json:JSONDecoder\n")
    forget_plugins()
    with pytest.warns(UserWarning) as warned:
        assert "other" in OBJECTIVES
    messages = sorted(str(item.message) for item in warned)
    assert messages[0].startswith("ignored: meristem.objectives mlm of thief: mlm is built in")
    assert "has the same name" in messages[1]
    assert OBJECTIVES["mlm"].__module__ == "meristem.objectives.mlm"
    with pytest.raises(MeristemError, match=r"meristem.objectives other of \w+: JSON\w+ is no subclass of Objective"):
        OBJECTIVES["other"]


def test_a_plugin_without_the_settings_of_its_kind_is_refused(packages: Path) -> None:
    (packages / "bare.py").write_text(
        "from meristem.config.settings import Settings\n"
        "from meristem.models.gpt2 import GPT2\n"
        "class Bare(GPT2):\n"
        "    class Settings(Settings):\n"
        "        '''Nothing.'''\n"
        "        family: str = 'bare'\n"
    )
    write_distribution(packages, "bare-plugin", "[meristem.models]\nbare = bare:Bare\n")
    forget_plugins()
    with pytest.raises(MeristemError, match="bare of bare-plugin: its Settings must be a subclass of ModelSettings"):
        resolve_recipe("test", {"model": {"family": "bare"}, "objective": "clm"})


def test_what_a_plugin_lacks_is_named_when_it_is_loaded(packages: Path) -> None:
    (packages / "unfinished.py").write_text(
        "from meristem.interfaces.backbone import Backbone\n"
        "from meristem.reinforce.reward_base import Reward\n"
        "from meristem.tasks.classification import ClassificationTask\n"
        "class Quiet(Reward):\n"
        "    def score(self, completions): return []\n"
        "class Bare(Backbone):\n"
        "    def forward(self, **inputs): ...\n"
        "class Whole(ClassificationTask): ...\n"
    )
    groups = ("[meristem.rewards]\nquiet = unfinished:Quiet\n[meristem.models]\nbare = unfinished:Bare\n"
              "[meristem.tasks]\nwhole = unfinished:Whole\n")  # fmt: skip
    write_distribution(packages, "unfinished-plugin", groups)
    forget_plugins()
    with pytest.raises(MeristemError, match="quiet of unfinished-plugin: Quiet defines no Settings, __init__, name; a"):
        REWARDS["quiet"]
    missing = "Bare defines no Settings, build_head, capabilities, embedding; a subclass of Backbone needs"
    with pytest.raises(MeristemError, match=f"bare of unfinished-plugin: {missing}"):
        MODEL_FAMILIES["bare"]
    assert TASKS["whole"].__name__ == "Whole"


def test_the_page_shows_the_files_of_the_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:toml|python)\n(.*?)```", page, re.DOTALL)
    files = ["pyproject.toml", "example_plugin/tokenizer_kind.py", "example_plugin/reward.py"]
    assert blocks == [(HERE / "example_plugin" / file).read_text(encoding="utf-8") for file in files]


def test_every_group_is_on_the_page(plugins: Path) -> None:
    groups = {kind.group for kind in ComponentKind if kind.group is not None}
    assert set(re.findall(r"^\| `(meristem\.\w+)` ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == groups
    assert all(kind.plugins() for kind in ComponentKind if kind.group is not None)
    assert "bytes" in TOKENIZER_KINDS and CombinedReward is not None
