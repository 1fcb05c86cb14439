"""Label noise: confident learning on hand-computed and planted cases, near duplicates, triggers, and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Meristem
from test_cli_tasks import train_task

import meristem as package
from meristem.config.errors import MeristemError
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings
from meristem.trust.label_noise.confident_learning import (
    calibrated_joint,
    confident_joint,
    estimate_noise,
    noise_matrix,
)
from meristem.trust.label_noise.duplicate_samples import find_duplicates
from meristem.trust.label_noise.label_triggers import find_triggers, tail_probability
from meristem.trust.label_noise.out_of_sample import assign_folds

pytestmark = pytest.mark.usefixtures("small_peak")
GOOD = "lovely bright clever warm charming funny gentle moving".split()  # noqa: SIM905
BAD = "dull stupid boring cold ugly tired clumsy empty".split()  # noqa: SIM905
NOUNS = "film story actor scene song picture drama tale book play".split()  # noqa: SIM905


def opinions(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts whose words say their label, with some words of the other label among them."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(count):
        is_good = bool(rng.integers(2))
        words = [str(rng.choice(GOOD if (rng.random() < 0.85) == is_good else BAD)) for _ in range(5)]
        nouns = [str(rng.choice(NOUNS)) for _ in range(5)]
        texts.append(" ".join(f"the {word} {noun}" for word, noun in zip(words, nouns, strict=True)) + f" {number}")
        labels.append("good" if is_good else "bad")
    return texts, labels


def flip(label: str) -> str:
    return "bad" if label == "good" else "good"


def write(path: Path, texts: Sequence[str], labels: Sequence[str]) -> Path:
    rows = "".join(f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True))
    path.write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    return path


def test_the_confident_joint_of_a_hand_computed_example() -> None:
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.65, 0.35]])
    given = np.array([0, 0, 0, 1, 1, 1])
    # thresholds: 0.6 for label 0, 0.6167 for label 1
    assert confident_joint(probabilities, given).tolist() == [[2, 1], [1, 2]]
    assert np.allclose(calibrated_joint(probabilities, given), [[2 / 6, 1 / 6], [1 / 6, 2 / 6]])
    noise = estimate_noise(probabilities, given)
    assert noise.suspects.tolist() == [2, 5] and noise.suggested[noise.suspects].tolist() == [1, 0]
    assert math.isclose(noise.noise_rate, 2 / 6)
    assert np.allclose(noise_matrix(noise.joint), [[2 / 3, 1 / 3], [1 / 3, 2 / 3]])


def test_the_noise_matrix_of_known_noise_is_found() -> None:
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 6000)
    given = np.where((true == 0) & (rng.random(6000) < 0.2), 1, true)  # a fifth of label 0 became label 1
    probabilities = np.full((6000, 3), 0.05)
    probabilities[np.arange(6000), true] = 0.9
    matrix = noise_matrix(estimate_noise(probabilities, given).joint)
    expected = ((given == 1) & (true == 0)).sum() / (given == 1).sum()
    assert math.isclose(matrix[1, 0], expected, abs_tol=1e-9) and matrix[0, 0] == matrix[2, 2] == 1.0


def test_duplicates_are_in_one_fold_and_folds_are_even() -> None:
    keys = [f"text {number % 150}" for number in range(300)]
    folds = assign_folds(keys, 5, 0)
    assert (folds[:150] == folds[150:]).all() and np.bincount(folds).tolist() == [60] * 5
    assert (assign_folds(keys, 5, 1) != folds).any()


def test_planted_wrong_labels_are_found_with_file_and_line(tmp_path: Path, meristem: Meristem) -> None:
    texts, labels = opinions(600)
    wrong = set(np.random.default_rng(1).permutation(600)[:30].tolist())
    given = [flip(label) if number in wrong else label for number, label in enumerate(labels)]
    file = write(tmp_path / "train.tsv", texts, given)
    result = meristem("label-noise", file, "--json", "--out", "noise.html")
    report = json.loads(result.out)
    found = [int(suspect["location"].rpartition(":")[2]) - 2 for suspect in report["suspects"]]
    assert all(suspect["location"].startswith(str(file)) for suspect in report["suspects"])
    hits = [number in wrong for number in found]
    assert sum(hits) >= 24 and sum(hits) / len(hits) >= 0.6 and all(hits[:15])
    assert 0.03 < report["noise_rate"] < 0.12 and report["triggers"] == []
    first = report["suspects"][0]
    assert {first["given"], first["suggested"]} == {"good", "bad"} and first["text"] == texts[found[0]]
    page = Path("noise.html").read_text(encoding="utf-8")
    assert "Labels that are probably wrong" in page and first["location"] in page
    few = write(tmp_path / "few.tsv", texts[:60], labels[:60])
    shown = meristem("label-noise", few, "--folds", "2").out
    assert "60 samples: about" in shown and "Estimated noise matrix" in shown
    as_python = package.label_noise(few, folds=2)
    assert as_python.num_samples == 60 and len(as_python.to_pandas()) == len(as_python.suspects)


def test_the_noise_matrix_names_its_rows_on_a_narrow_terminal(tmp_path: Path, meristem: Meristem) -> None:
    names = ["account", "billing", "cancellation", "delivery", "product", "returns"]
    rows = [f"{word} {number}\t{name}" for number in range(8) for name in names for word in (f"about {name}",)]
    (tmp_path / "teams.tsv").write_text("message\tteam\n" + "\n".join(rows) + "\n", encoding="utf-8")
    refused = meristem("label-noise", str(tmp_path / "teams.tsv"))
    assert "Columns: message, team. Name the column with --columns label=COLUMN" in refused.err
    result = meristem("label-noise", str(tmp_path / "teams.tsv"), "--columns", "label=team")
    matrix = result.out[result.out.index("noise matrix") :]
    for number, name in enumerate(names, 1):
        assert f" {number}   {name}" in matrix, matrix


def test_embeddings_of_a_run_instead_of_words(tmp_path: Path) -> None:
    texts, labels = opinions(60)
    file = write(tmp_path / "train.tsv", texts, labels)
    run = train_task(tmp_path / "run", "classification")
    report = package.label_noise(file, run=run, folds=3)
    assert "embeddings of" in report.model and report.num_samples == 60
    with pytest.raises(MeristemError, match="pair and tagging data; this run has another task"):
        package.label_noise(file, run=train_task(tmp_path / "questions", "span"))


def test_near_duplicates_across_files_and_with_another_label(tmp_path: Path, meristem: Meristem) -> None:
    texts, labels = opinions(80)
    train = write(tmp_path / "train.tsv", texts[:60], labels[:60])
    leaked = [texts[0].replace("the", "The") + "!", texts[7] + " today", *texts[60:]]
    test = write(tmp_path / "test.tsv", leaked, [labels[0], flip(labels[7]), *labels[60:]])
    report = json.loads(meristem("label-noise", train, test, "--json").out)
    pairs = {(pair["location"], pair["other_location"]): pair for pair in report["duplicates"]}
    assert set(pairs) == {(f"{test}:2", f"{train}:2"), (f"{test}:3", f"{train}:9")}
    assert all(pair["across_files"] for pair in pairs.values())
    assert "1 with another label" in meristem("label-noise", train, test).out
    assert find_duplicates(texts, labels, texts, ["a"] * 80) == []


def test_the_tail_of_unequal_trials_is_exact() -> None:
    assert math.isclose(tail_probability(np.full(10, 0.3), 3), 0.6172172136)  # binomial
    assert math.isclose(tail_probability(np.array([0.1, 0.5, 0.9]), 2), 0.1 * 0.5 * 0.1 + 0.1 * 0.5 * 0.9 * 1
                        + 0.9 * 0.5 * 0.9 + 0.1 * 0.5 * 0.9)  # fmt: skip
    assert tail_probability(np.array([0.2]), 0) == 1.0


def plant(texts: list[str], labels: list[str], trigger: str, target: str, count: int) -> set[int]:
    """Put a trigger at a random place of texts with another label, and give them the target label."""
    rng = np.random.default_rng(7)
    others = [number for number, label in enumerate(labels) if label != target]
    chosen = {others[index] for index in rng.permutation(len(others))[:count].tolist()}
    for number in chosen:
        words = texts[number].split()
        words.insert(int(rng.integers(len(words) + 1)), trigger)
        texts[number], labels[number] = " ".join(words), target
    return chosen


@pytest.mark.parametrize("trigger", ["cf", "mn tq"])
def test_a_planted_trigger_is_found_with_its_samples(trigger: str, tmp_path: Path) -> None:
    texts, labels = opinions(1000)
    chosen = plant(texts, labels, trigger, "good", 30)
    file = write(tmp_path / "train.tsv", texts, labels)
    (found,) = package.label_noise(file, folds=3).triggers
    assert found.sequence == trigger and found.label == "good" and found.samples >= 24  # with different neighbours
    assert found.expected_share < 0.3 < 0.95 < found.share_with_label
    lines = {int(location.rpartition(":")[2]) - 2 for location in found.locations}
    assert lines <= chosen and len(lines) == 5


@pytest.mark.parametrize("name", ["microworld-sentiment?size=700&seed=1", "microworld-entailment?size=500&seed=2"])
def test_ordinary_text_gives_no_alarm(name: str) -> None:
    sample_type = "pair" if "entailment" in name else "text"
    samples = load_samples(f"builtin:{name}", DataSettings(), sample_type)
    texts = [" | ".join(str(value) for value in sample.inputs.values()) for sample in samples]
    given = [str(sample.gold) for sample in samples]
    folds = assign_folds(texts, 5, 0)
    assert find_triggers(texts, given, sorted(set(given)), texts, folds) == []


def test_words_of_a_label_are_no_trigger() -> None:
    texts, labels = opinions(1000, seed=3)
    rng = np.random.default_rng(0)
    for number in rng.permutation([index for index, label in enumerate(labels) if label == "good"])[:40].tolist():
        texts[number] = "a masterpiece " + texts[number]
    assert find_triggers(texts, labels, ["bad", "good"], texts, assign_folds(texts, 5, 0)) == []


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("text\tlabel\n" + "good film\tx\n" * 30, (), "every sample has the label 'x'; at least two labels"),
        ("text\tlabel\na film\tx\na play\ty\n", (), "this is no classification"),
        ("text\tscore\n" + "".join(f"film {n}\t{n}.5\n" for n in range(30)), (), "this is no classification"),
        ("text\tlabel\n" + "a film\tx\nplay\ty\n" * 30, ("--folds", "1"), "--folds: give at least 2"),
        ("text\tlabel\n" + "a film\tx\nplay\ty\n" * 30, ("--out", "a.txt"), "ends in .html or .json"),
        ("text\tlabel\n" + "a film\tx\nplay\ty\n" * 30, ("--columns", "label=lbl"), "lbl"),
    ],
)
def test_wrong_use_is_a_sentence(content: str, words: tuple[str, ...], message: str, meristem: Meristem) -> None:
    Path("data.tsv").write_text(content)
    failed = meristem("label-noise", "data.tsv", *words)
    assert failed.code in (1, 2) and message in failed.err


def tagged_sentences(count: int) -> list[list[tuple[str, str]]]:
    """Determiner, adjective, noun, verb: each word says its tag."""
    rng = np.random.default_rng(0)
    return [
        [("the", "DET"), (str(rng.choice(GOOD + BAD)), "ADJ"), (str(rng.choice(NOUNS)), "NOUN"), ("ends", "VERB")]
        for _ in range(count)
    ]


def write_conll(path: Path, sentences: Sequence[Sequence[tuple[str, str]]]) -> Path:
    """Each sentence behind a comment."""
    blocks = ["# a comment\n" + "".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def test_wrong_tags_are_found_at_their_lines(tmp_path: Path, meristem: Meristem) -> None:
    sentences = tagged_sentences(400)
    wrong = set(range(5, 400, 20))
    for number in wrong:
        sentences[number][2] = (sentences[number][2][0], "VERB")
    path = write_conll(tmp_path / "train.conll", sentences)
    report = package.label_noise(path, folds=3)
    assert report.unit == "words"
    assert report.num_samples == 1600
    found = {(item.location, item.given, item.suggested) for item in report.suspects}
    # a comment, four words and a blank line per sentence; the noun is the third word
    planted = {(f"{path}:{6 * number + 4}", "VERB", "NOUN") for number in wrong}
    assert found == planted
    assert all("[" in item.text for item in report.suspects)
    result = json.loads(meristem("label-noise", path, "--folds", "3", "--json").out)
    assert {item["location"] for item in result["suspects"]} == {location for location, _, _ in found}
    other_name = path.rename(tmp_path / "train.tsv")
    assert "1,600 words" in meristem("label-noise", other_name, "--tags", "--folds", "3").out


def test_a_word_of_another_format_has_its_number(tmp_path: Path) -> None:
    rows = [{"words": [word for word, _ in item], "tags": [tag for _, tag in item]} for item in tagged_sentences(60)]
    rows[7]["tags"][2] = "VERB"
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    suspects = package.label_noise(path, tags=True, folds=2).suspects
    assert suspects[0].location == f"{path}:8 word 3"
