"""A small model trained with canaries: exposure follows the repeats, extracted texts are real, files are written."""

import json
from pathlib import Path

import pytest
from rich.console import Console

import meristem
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError, RecipeError
from meristem.corpus.canaries.planting import canary_record
from meristem.corpus.canaries.settings import CanarySettings
from meristem.evaluation.evaluate import run_datasets
from meristem.trust.exposure.exposure_advice import exposed_level, make_advice
from meristem.trust.exposure.exposure_files import write_exposure
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.run_exposure import measure_exposure

QUIET = Console(quiet=True)
OPTIONS = ExposureOptions(
    candidates=300,
    controls=60,
    checkpoint_candidates=50,
    max_checkpoints=1,
    prefixes=60,
    samples=1,
    members=60,
    passage_tokens=24,
    prefix_tokens=12,
    continuation_tokens=4,
    resamples=100,
)
CANARIES = {"repeats": [1, 200], "per_repeat": 4}
SETTINGS = {
    "model.layers": 1,
    "model.hidden_size": 64,
    "model.heads": 2,
    "model.max_length": 64,
    "tokenizer.vocab_size": 500,
    "train.minutes": None,
    "train.steps": 150,
    "train.save_every": 100,
    "train.keep_checkpoints": 3,
    "train.batch_tokens": 2048,
    "train.evaluate_tokens": 256,
    "train.threads": 1,
    "train.learning_rate": 5e-3,
    "corpus.processes": 1,
    "corpus.canaries": CANARIES,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exposure") / "run"
    text = "builtin:microworld-en?size=400"
    return meristem.pretrain("gpt2-mini", SETTINGS, source=text, out=folder, console=QUIET).run


@pytest.fixture(scope="module")
def loaded(run):
    return load_run(run)


@pytest.fixture(scope="module")
def report(loaded):
    return measure_exposure(loaded, OPTIONS, QUIET)


def test_exposure_follows_the_repeats_and_controls_are_at_chance(report):
    once, often = report.levels
    assert (once.repeats, often.repeats, report.control.repeats) == (1, 200, 0)
    assert often.mean_bits > 10 and often.interval[0] > report.control.interval[1]
    assert abs(report.control.mean_bits - 1.44) < 0.75  # standard error of 60 texts: 0.19
    assert once.mean_bits < 5
    assert exposed_level(report) == often
    settings = " ".join(item.setting for item in report.advice)
    assert "corpus.deduplicate" in settings
    assert [row["repeats"] for row in report.records()] == [0, 1, 200]


def test_earlier_checkpoints_are_measured_too(report):
    first, last = report.checkpoints
    assert first.step < last.step == report.step
    assert last.levels == report.levels
    assert first.levels[1].mean_bits < last.levels[1].mean_bits + 5


def test_every_extracted_text_stands_in_the_training_text(loaded, report):
    (extraction,) = report.extraction
    stream = run_datasets(loaded, QUIET)["main"].split("train")
    documents = [
        loaded.tokenizer.decode(stream.tokens(span.start, span.text_stop).tolist())
        for span in map(stream.document, range(stream.documents))
    ]
    assert extraction.extracted  # a continuation of four tokens of so small a world is easily one that stands there
    for text in extraction.extracted:
        assert text.continuation.strip() in documents[text.document]
        assert sum(document.count(text.continuation.strip()) for document in documents) >= text.occurrences > 0
    matches = {rate.mode: rate for rate in extraction.rates if rate.split == "train"}
    assert 0 < matches["greedy"].in_training_text <= matches["greedy"].prefixes
    assert sum(row.prefixes for row in extraction.by_occurrences) == matches["greedy"].prefixes


def test_membership_is_measured_on_text_without_canaries(report):
    (membership,) = report.membership
    assert membership.members == 60 and membership.held_out >= 20
    assert 0.3 < membership.by_loss.auc < 0.9
    assert membership.by_reference is None
    assert membership.by_loss.curve[0] == (0.0, 0.0) and membership.by_loss.curve[-1] == (1.0, 1.0)


def test_the_same_seed_gives_the_same_report(loaded, report):
    few = ExposureOptions(
        **{**vars(OPTIONS), "candidates": 40, "controls": 4, "max_checkpoints": 0, "prefixes": 6, "members": 20}
    )
    first, second = (measure_exposure(loaded, few, QUIET).to_dict() for _ in range(2))
    assert first == second
    other = measure_exposure(loaded, ExposureOptions(**{**vars(few), "seed": 1}), QUIET).to_dict()
    assert other["canaries"] != first["canaries"]


def test_files_and_the_section_of_the_card(run, loaded, report, tmp_path):
    write_exposure(report, loaded.run)
    write_exposure(report, loaded.run)  # replaces its own section
    card = (run / "README.md").read_text(encoding="utf-8")
    assert card.count("## Exposure\n") == 1
    assert card.index("## Numbers") < card.index("## Exposure") < card.index("## Use")
    assert "| never | 60 |" in card and "| 200 times | 4 |" in card
    saved = json.loads((run / "exposure.json").read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(report.to_dict()))
    page = (run / "exposure.html").read_text(encoding="utf-8")
    assert page.count("<polyline") >= 5 and "planted 200 times" in page
    assert report.canaries[-1].text in page
    before = card
    write_exposure(report, loaded.run, tmp_path / "elsewhere")
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["exposure.html", "exposure.json"]
    assert (run / "README.md").read_text(encoding="utf-8") == before


def test_canaries_of_another_run_were_never_seen(loaded, tmp_path):
    path = tmp_path / "canaries.json"
    path.write_text(canary_record({"main": CanarySettings(**{**CANARIES, "per_repeat": 30, "seed": 9})}))
    report = measure_exposure(
        loaded, ExposureOptions(**{**vars(OPTIONS), "max_checkpoints": 0}), QUIET, canary_path=path
    )
    assert all(abs(level.mean_bits - 1.44) < 1.1 for level in report.levels)  # standard error of 30 texts: 0.26
    assert not sum(level.extracted for level in report.levels)
    assert exposed_level(report) is None
    assert not [item for item in make_advice(report) if "exposure" in item.finding]


def test_a_reference_model_must_have_read_other_text(loaded, run):
    with pytest.raises(RecipeError, match="trained on the same text"):
        measure_exposure(loaded, OPTIONS, QUIET, reference=load_run(run))


def test_a_damaged_record_and_a_file_as_folder_are_refused(run, tmp_path):
    path = tmp_path / "canaries.json"
    path.write_text("[]")
    with pytest.raises(MeristemError, match="expected a JSON object"):
        meristem.exposure(run, canaries=path, quick=True, console=QUIET)
    with pytest.raises(RecipeError, match="is a file; name a folder"):
        meristem.exposure(run, out=path, console=QUIET)


def test_the_command_prints_what_the_files_hold(meristem, run):
    result = meristem("exposure", str(run), "--quick", "--json", "--out", "measured")
    assert result.code == 0, result.err
    (answer,) = result.answers
    assert answer == json.loads(Path("measured", "exposure.json").read_text(encoding="utf-8"))
    assert [level["repeats"] for level in answer["levels"]] == [1, 200]
    assert "Scoring canaries and candidates" in result.err and "exposure.html" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such run"),
        (["{run}", "--canaries", "nowhere.json"], "nowhere.json: cannot be read"),
        (["{run}", "--reference", "nowhere"], "no such run"),
        (["{run}", "--reference", "{run}"], "trained on the same text"),
    ],
)
def test_the_command_says_what_is_wrong(meristem, run, arguments, message):
    result = meristem("exposure", *(argument.format(run=run) for argument in arguments))
    assert result.code in (1, 2) and message in result.err
