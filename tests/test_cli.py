"""The command line as a person meets it: what it prints, what it refuses and how, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runner import COMMAND, Meristem

from meristem import api
from meristem.cli import main, options
from meristem.config.errors import RecipeError
from meristem.config.recipe import builtin_budget_recipes, builtin_recipes, builtin_reward_recipes, builtin_task_recipes

pytestmark = pytest.mark.usefixtures("small_peak")
TINY = (
    "model.layers=1",
    "model.hidden_size=32",
    "model.heads=2",
    "model.max_length=32",
    "tokenizer.vocab_size=300",
    "train.batch_tokens=128",
    "train.steps=20",
    "train.threads=1",
    "train.log_every=1",
    "corpus.processes=1",
    "corpus.validation=0.1",
    "corpus.test=0.1",
)
SOURCE = "builtin:microworld-en?size=40"
QUIET_LOAD = 3.0  # above this average the machine has other things to do than to be quick


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained BERT."""
    return api.pretrain("bert-mini", TINY, source=SOURCE, out=tmp_path_factory.mktemp("runs") / "bert").run


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained GPT-2."""
    return api.pretrain("gpt2-mini", TINY, source=SOURCE, out=tmp_path_factory.mktemp("runs") / "gpt2").run


def process(*words: object, folder: Path) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    surroundings = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=folder,
        env=surroundings,
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


# ------------------------------------------------------------ help


def test_help_is_quick_and_does_not_import_torch(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['meristem', '--help']\n"
        "from meristem.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    durations = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        completed = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        durations.append(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )  # others may be at work too
        assert completed.stderr == "False\n"
        assert "pretrain" in completed.stdout and "Raw text in" in completed.stdout
    if os.getloadavg()[0] < QUIET_LOAD:
        assert min(durations) < 0.4


@pytest.mark.parametrize("verb", ["pretrain", "corpus", "evaluate", "generate", "fill", "score", "recipes", "describe"])
def test_every_command_explains_itself(meristem: Meristem, verb: str) -> None:
    result = meristem(verb, "--help")
    assert result.code == 0
    assert f"meristem {verb}" in result.out


def test_nothing_at_all_is_answered_with_help(meristem: Meristem) -> None:
    result = meristem()
    assert "Usage: meristem" in result.out + result.err
    assert result.code == 2


def test_the_version_and_what_it_runs_on(meristem: Meristem) -> None:
    result = meristem("--version")
    assert result.code == 0
    assert re.fullmatch(r"meristem \d+\.\d+\.\d+, Python 3\.\d+\.\d+, torch \d+\.\d+\S*, \S+\n", result.out)


def test_recipes_are_listed_one_a_line(meristem: Meristem) -> None:
    result = meristem("recipes")
    parts = [part.splitlines() for part in re.split(r"\n(?:for|by) \w+, with meristem [^:]+:\n", result.out)]
    names = [[line.split()[0] for line in lines] for lines in parts]
    by_budget = list(builtin_budget_recipes())
    others = [name for name in builtin_recipes() if name not in by_budget]
    assert names == [others, by_budget, list(builtin_task_recipes()), list(builtin_reward_recipes())]
    assert all(len(line.split()) > 3 for lines in parts for line in lines)


def test_the_schema_is_written_for_editors(meristem: Meristem) -> None:
    result = meristem("recipes", "--schema", "recipe.json")
    schema = json.loads(Path("recipe.json").read_text(encoding="utf-8"))
    assert result.code == 0
    assert {"corpus", "model", "train", "objective", "from"} <= schema["properties"].keys()
    assert (
        schema["$defs"]["training.TrainSettings"]["properties"]["learning_rate"]["description"] == "Peak learning rate."
    )


# ------------------------------------------------------------ wrong words


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pretrian"], 2, "Did you mean 'pretrain'"),
        (["pretrain", "bert-mnii"], 2, "'bert-mnii' is neither a recipe nor a file, did you mean bert-mini?"),
        (["pretrain", "bert-mnii", "novel.txt"], 2, "no recipe 'bert-mnii', did you mean bert-mini?"),
        (
            ["pretrain", "bert-mini", "train.learning_ratee=1"],
            2,
            "train.learning_ratee: unknown setting, did you mean learning_rate?",
        ),
        (["pretrain", "bert-mini", "objective.mask_rat=0.2"], 2, "unknown setting, did you mean mask_rate?"),
        (["pretrain", "bert-mini", "rate=1"], 2, "rate: unknown setting; write train.learning_rate=1"),
        (["pretrain", "bert-mini", "train.learning_rate=fast"], 2, "train.learning_rate: "),
        (["pretrain", "bert-mini", "train.steps=0"], 2, "train.steps: "),
        (["pretrain", "bert-mini", "train.save_every=often"], 2, "expected steps (500), time (30s, 10m, 2h) or epochs"),
        (["pretrain", "bert-mini", "train.optimizer=mion"], 2, "train.optimizer: "),
        (["pretrain", "bert-mini", "model.family=brt"], 2, "model.family: no 'brt', did you mean bert?"),
        (["pretrain", "bert-mini", "model.heads=3"], 2, "heads"),
        (["pretrain", "bert-mini", "objective=clm"], 2, "gpt2"),
        (["pretrain", "gpt2-mini", "objective=mlm"], 2, "bert"),
        (["pretrain", "bert-mini", "train.batch_tokens=10"], 2, "train.batch_tokens: 10 is less than one row"),
        (["pretrain", "bert-mini", "one", "two"], 2, "expected at most a recipe and a source"),
        (["pretrain", "bert-mini", "novl.txt"], 1, "did you mean novel.txt?"),
        (["pretrain", "novl.txt"], 1, "did you mean novel.txt?"),
        (["pretrain", "bert-mini", "builtin:pydcs"], 1, "did you mean pydocs?"),
        (["pretrain", "mine.yaml"], 2, "no recipe file mine.yaml"),
        (["pretrain", "broken.yaml"], 2, "broken.yaml: not valid YAML"),
        (["pretrain", "bert-mini", "novel.txt", "from=nowhere"], 1, "nowhere: no such run"),
        (["pretrain", "bert-mini", "novel.txt", "tokenizer.path=absent.json"], 1, "absent.json"),
        (["pretrain", "bert-mini", "novel.txt", "--out", "novel.txt"], 1, "novel.txt is a file: choose another folder"),
        (["describe", "bert-mnii"], 2, "did you mean bert-mini?"),
        (["describe", "bert-mini", "--hours", "soon"], 2, "'--hours'"),
        (["corpus", "novl.txt"], 1, "did you mean novel.txt?"),
        (["corpus", "novel.txt", "train.learning_rate=1"], 2, "corpus accepts only corpus.… settings, not train"),
        (["fill", "nowhere", "The [MASK]."], 1, "nowhere: no such run"),
        (["fill", "nowhere"], 2, "TEXT"),
        (["generate", "nowhere", "--temperature", "-1"], 2, "generate.temperature: Input should be greater than 0"),
        (["score", "nowhere"], 2, "score: give a text, or --file with one text per line"),
        (["score", "nowhere", "--file", "absent.txt"], 1, "absent.txt"),
        (["evaluate", "nowhere", "--which", "worst"], 2, "'latest', 'best'"),
        (["recipes", "--shema", "x"], 2, "--shema"),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(meristem: Meristem, words: list[str], code: int, message: str) -> None:
    Path("novel.txt").write_text("It was a dark and stormy night.\n" * 5, encoding="utf-8")
    Path("broken.yaml").write_text("model: {family: bert\n", encoding="utf-8")
    result = meristem(*words)
    assert message.lower() in result.err.lower()
    assert result.code == code
    assert not Path("runs").exists(), "something was begun though it could not work"


def test_the_traceback_is_there_for_whoever_asks(tmp_path: Path) -> None:
    plain, debug = (
        process("pretrain", "bert-mnii", *debug_arguments, folder=tmp_path) for debug_arguments in ([], ["--debug"])
    )
    assert "Traceback" not in plain.communicate()[1]
    assert plain.returncode == 2
    stderr = debug.communicate()[1]
    assert "Traceback (most recent call last)" in stderr and "RecipeError" in stderr
    assert debug.returncode == 1


def test_a_fault_of_ours_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nothing")

    monkeypatch.setattr(options, "parse_pretrain_arguments", broken)
    monkeypatch.setattr(sys, "argv", ["meristem", "pretrain"])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "an unexpected ZeroDivisionError: nothing\nThis is a bug in meristem" in capsys.readouterr().err


@pytest.mark.parametrize(("world_size", "waited"), [("1", True), ("2", False)])
def test_a_failed_process_of_several_does_not_wait_at_its_exit(tmp_path: Path, world_size: str, waited: bool) -> None:
    """What torch holds waits, at a normal exit, for processes that may be gone: here a function stands for it."""
    script = "import atexit; atexit.register(print, 'waited'); from meristem.cli import main; main()"
    completed = subprocess.run(
        [sys.executable, "-c", script, "pretrain", "bert-mnii"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "WORLD_SIZE": world_size, "RANK": "0"},
    )
    assert completed.returncode == 2 and "bert-mnii" in completed.stderr
    assert ("waited" in completed.stdout) == waited


def test_a_failed_process_of_a_launch_does_not_wait_at_its_exit(tmp_path: Path) -> None:
    script = "import atexit; atexit.register(print, 'waited'); from meristem.cli import main; main()"
    launch = {"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RUN_ID": "1", "MERISTEM_VERDICT": str(tmp_path / "verdict")}
    completed = subprocess.run(
        [sys.executable, "-c", script, "pretrain", "bert-mnii"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **launch},
    )
    assert completed.returncode == 0 and (tmp_path / "verdict").read_text() == "2", completed.stderr
    assert "waited" not in completed.stdout


# ------------------------------------------------------------ which word is what


@pytest.mark.parametrize(
    ("words", "sorted_"),
    [
        ([], ("bert-mini", None, [])),
        (["gpt2-mini"], ("gpt2-mini", None, [])),
        (["gpt2-mini", "texts/"], ("gpt2-mini", "texts/", [])),
        (["novel.txt", "train.steps=5"], ("bert-mini", "novel.txt", ["train.steps=5"])),
        (["train.learning_rate=3", "gpt2-mini", "a/*.txt"], ("gpt2-mini", "a/*.txt", ["train.learning_rate=3"])),
        (["bert-mini", "builtin:microworld?size=50&seed=2"], ("bert-mini", "builtin:microworld?size=50&seed=2", [])),
        (["hub:owner/name?split=train"], ("bert-mini", "hub:owner/name?split=train", [])),
        (["mine.yaml", "hub:owner/name"], ("mine.yaml", "hub:owner/name", [])),
    ],
)
def test_words_find_their_places(words: list[str], sorted_: tuple[str, str | None, list[str]]) -> None:
    assert options.parse_pretrain_arguments(words) == sorted_


def test_a_file_with_an_equals_sign_is_still_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b.txt").touch()
    assert options.parse_pretrain_arguments(["a=b.txt"]) == ("bert-mini", "a=b.txt", [])
    with pytest.raises(RecipeError):
        options.parse_pretrain_arguments(["one", "two", "three"])


# ------------------------------------------------------------ training


def test_pretrain_from_a_file_of_ones_own_and_going_on(meristem: Meristem) -> None:
    lines = [f"On day {number} the sailor sold {number % 7} boats to the painter." for number in range(300)]
    Path("novel.txt").write_text("\n".join(lines), encoding="utf-8")
    words = ("pretrain", "gpt2-mini", "novel.txt", *TINY, "corpus.document=line", "--out", "runs/novel")
    first = meristem(*words)
    assert first.code == 0
    assert "300 documents read; 300 kept" in first.err
    assert "Try it:\n  meristem generate runs/novel" in first.err
    file_names = "recipe.yaml metrics.jsonl log.txt checkpoints tokenizer.json README.md finished.json"
    assert set(file_names.split()) <= {path.name for path in Path("runs/novel").iterdir()}
    result = meristem(*words)
    assert result.code == 0 and "has used its budget (20 steps): nothing to do" in result.err
    completed = meristem(*words, "train.steps=25")
    assert completed.code == 0 and "Resuming from step 20" in completed.err
    refusal = meristem(*words, "train.steps=30", "train.learning_rate=5e-4")
    assert refusal.code == 2
    assert "train.learning_rate: 0.002 in the run, 0.0005 now" in refusal.err
    assert "add --out runs/novel-2" in refusal.err and "add --fresh" in refusal.err
    fresh = meristem(*words, "train.steps=3", "train.learning_rate=5e-4", "--fresh")
    assert fresh.code == 0 and "The old run is kept as runs/novel.old-1" in fresh.err
    assert Path("runs/novel.old-1/finished.json").is_file()


def test_without_a_recipe_it_says_what_where_and_how_long(meristem: Meristem) -> None:
    """Only the settings that keep it short are given; the place is the one a newcomer gets."""
    result = meristem("pretrain", SOURCE, *TINY)
    assert result.code == 0
    assert Path("runs/bert-mini/finished.json").is_file()
    assert "Try it:\n  meristem fill runs/bert-mini" in result.err


LONG = (
    "gpt2-mini",
    SOURCE,
    *TINY,
    "train.steps=120",
    "train.save_every=1h",
    "train.evaluate_every=1000",
    "model.dropout=0.1",
)


@pytest.fixture(scope="module")
def uninterrupted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the interrupted ones must end as; made first, so that their text is ready when they start."""
    return api.pretrain("gpt2-mini", LONG[2:], source=SOURCE, out=tmp_path_factory.mktemp("runs") / "unbroken").run


def _interrupted(folder: Path, *signals: signal.Signals) -> tuple[int, str]:
    """Start the command, let it take a few steps, and send it signals."""
    child = process("pretrain", *LONG, "--out", "run", folder=folder)
    metrics, end = folder / "run/metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 5):
        assert child.poll() is None and time.monotonic() < end, child.communicate()[1]
        time.sleep(0.005)
    for number in signals:
        child.send_signal(number)
    stderr = child.communicate(timeout=60)[1]
    assert "Traceback" not in stderr
    return child.returncode, stderr


def _losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]


def _weights(run: Path) -> bytes:
    return (run / "checkpoints/step-00000120/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_lets_it_save_and_the_same_command_goes_on(
    number: signal.Signals,
    code: int,
    uninterrupted_run: Path,
    tmp_path: Path,
    meristem: Meristem,
) -> None:
    returned, stderr = _interrupted(tmp_path, number)
    assert returned == code
    stopped = re.search(r"stopped at step (\d+) of 120, saved in run; run the same command again to resume", stderr)
    assert stopped is not None, stderr
    assert [path.name for path in (tmp_path / "run/checkpoints").glob("step-*")] == [f"step-{int(stopped[1]):08d}"]
    result = meristem("pretrain", *LONG, "--out", "run")
    assert result.code == 0
    assert f"Resuming from step {stopped[1]} of gpt2-mini" in result.err
    assert _losses(tmp_path / "run") == _losses(uninterrupted_run)
    assert _weights(tmp_path / "run") == _weights(uninterrupted_run)


def test_a_second_signal_leaves_at_once_and_does_no_harm(
    uninterrupted_run: Path, tmp_path: Path, meristem: Meristem
) -> None:
    returned, _ = _interrupted(tmp_path, signal.SIGINT, signal.SIGTERM)
    assert returned == 143
    assert meristem("pretrain", *LONG, "--out", "run").code == 0
    assert _losses(tmp_path / "run") == _losses(uninterrupted_run)
    assert _weights(tmp_path / "run") == _weights(uninterrupted_run)


def test_interrupted_before_the_first_step(tmp_path: Path) -> None:
    child = process("pretrain", "bert-mini", "builtin:microworld-en?size=9999&seed=7", *TINY, folder=tmp_path)
    assert child.stderr is not None
    assert "Training a wordpiece tokenizer" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    stderr = child.communicate(timeout=60)[1]
    assert "Traceback" not in stderr
    assert child.returncode == 130
    assert not (tmp_path / "runs").exists()


# ------------------------------------------------------------ describing and reading


def test_describe_counts_and_measures(meristem: Meristem) -> None:
    result = meristem("describe", "bert-mini", *TINY, "--json")
    payload = json.loads(result.out)
    assert payload["family"] == "bert" and payload["objective"] == "mlm+nsp"
    assert payload["steps"] == 20 and payload["tokens_per_step"] == 128 and payload["vocabulary"] == 300
    assert payload["seconds_per_step"] > 0 and payload["flops_per_token"] > 2 * payload["backbone"]
    assert "parameters" in meristem("describe", "bert-mini", *TINY).out


@pytest.mark.slow
def test_describe_says_what_fits_some_hours(meristem: Meristem) -> None:
    # over 10 s: every shipped recipe is built and counted, the papers' sizes too
    payload = json.loads(meristem("describe", "gpt2-mini", *TINY, "--hours", 2, "--json").out)
    assert sorted(fit["name"] for fit in payload["fits"]) == sorted(builtin_recipes())
    parameters = {fit["name"]: fit["parameters"] for fit in payload["fits"]}
    assert parameters["bert-mini"] < 10e6 < 100e6 < parameters["bert-base"]


def test_describe_a_run(meristem: Meristem, bert: Path) -> None:
    assert f"{bert}: finished at step 20" in meristem("describe", bert).out


def test_corpus_accounts_for_every_document(meristem: Meristem) -> None:
    Path("a.txt").write_text("one\ntwo\ntwo\n\nthree\n", encoding="utf-8")
    payload = json.loads(meristem("corpus", "a.txt", "corpus.document=line", "--json").out)
    assert payload["read"] == payload["kept"] + sum(payload["dropped"].values())
    assert payload["kept"] == 3
    table = meristem("corpus", "a.txt", "corpus.document=line", "--out", "clean")
    assert "documents kept" in table.out
    texts = [
        json.loads(line)["text"]
        for path in sorted(Path("clean").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert sorted(texts) == ["one", "three", "two"]


# ------------------------------------------------------------ using a run


def test_fill(meristem: Meristem, bert: Path) -> None:
    (filled,) = json.loads(meristem("fill", bert, "The [MASK] was here.", "--top", 3, "--json").out)
    scores = [candidate["score"] for candidate in filled["candidates"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    output = meristem("fill", bert, "The [MASK] and the [MASK].").out
    assert "mask 1" in output and "mask 2" in output
    assert "[MASK]" in meristem("fill", bert, "no gap").err
    assert meristem("fill", bert, "no gap").code == 1


def test_generate(meristem: Meristem, gpt2: Path, bert: Path) -> None:
    words = ("generate", gpt2, "--prompt", "The", "--max-tokens", 12, "--seed", 3)
    streamed = meristem(*words)
    assert streamed.code == 0 and streamed.out.startswith("The")
    assert meristem(*words).out == streamed.out
    (generated,) = json.loads(meristem(*words, "--json").out)
    assert generated["prompt"] + generated["text"] + "\n" == streamed.out
    payload = json.loads(meristem(*words, "--count", 3, "--json").out)
    assert len(payload) == 3 and {completion["seed"] for completion in payload} == {3}
    samples = [json.loads(meristem(*words[:-2], "--json").out)[0] for _ in range(2)]
    assert samples[0]["seed"] != samples[1]["seed"] and samples[0]["text"] != samples[1]["text"]
    decoded = json.loads(meristem(*words[:-2], "--seed", samples[0]["seed"], "--json").out)
    assert decoded == samples[:1]
    assert meristem("generate", gpt2, "--beams", 2, "--max-tokens", 4).code == 0
    assert meristem("generate", bert, "--prompt", "The", "--max-tokens", 5).out.startswith("The")


def test_a_causal_model_cannot_fill_and_says_what_it_can(meristem: Meristem, gpt2: Path) -> None:
    result = meristem("fill", gpt2, "The [MASK].")
    assert result.code == 1 and "generate" in result.err


def test_score_a_text_and_a_file(meristem: Meristem, gpt2: Path) -> None:
    Path("texts.txt").write_text("The garden.\n\nA boat.\n", encoding="utf-8")
    payload = json.loads(meristem("score", gpt2, "--file", "texts.txt", "--json").out)
    assert [text_score["text"] for text_score in payload] == ["The garden.", "A boat."]
    assert all(
        text_score["logprob"] < 0 and len(text_score["per_token"]) == text_score["tokens"] for text_score in payload
    )
    assert "per token" in meristem("score", gpt2, "The garden.").out


def test_evaluate(meristem: Meristem, bert: Path, gpt2: Path) -> None:
    masked = json.loads(meristem("evaluate", bert, "--json").out)["metrics"]
    assert masked["loss"] == pytest.approx(json.loads((bert / "finished.json").read_bytes())["test"]["loss"])
    assert {"mlm.top1", "mlm.top5", "nsp.accuracy"} <= masked.keys()
    Path("other.txt").write_text("The sailor went to the harbour.\n" * 3 + "A garden grew.\n", encoding="utf-8")
    causal = json.loads(meristem("evaluate", gpt2, "--data", "other.txt", "--json").out)["metrics"]
    assert causal["bits_per_byte"] > 0 and causal["perplexity"] > 1
    assert "perplexity" in meristem("evaluate", gpt2).out


def test_evaluate_minimal_pairs(meristem: Meristem, gpt2: Path) -> None:
    pair = {"sentence_good": "The garden is here.", "sentence_bad": "The garden are here.", "UID": "agreement"}
    Path("pairs.jsonl").write_text(json.dumps(pair) + "\n", encoding="utf-8")
    payload = json.loads(meristem("evaluate", gpt2, "--pairs", "pairs.jsonl", "--json").out)
    assert payload["metrics"]["pairs.accuracy"] in (0.0, 1.0)


def test_a_damaged_checkpoint_is_named_and_an_older_one_used(meristem: Meristem) -> None:
    assert meristem("pretrain", "bert-mini", SOURCE, *TINY, "train.save_every=10", "--out", "run").code == 0
    Path("run/checkpoints/step-00000020/model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n.")
    result = meristem("fill", "run", "The [MASK].")
    assert result.code == 0
    assert "step-00000020 is damaged" in result.err and "pickle" in result.err
