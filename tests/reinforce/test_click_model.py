"""The click model recovers the preferences behind a table, with calibrated uncertainty."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from meristem import api
from meristem.config.errors import MeristemError
from meristem.reinforce.clicks.click_model import ClickEstimate, ClickModel, ClickModelSettings
from meristem.reinforce.clicks.click_model_cache import load_or_fit
from meristem.reinforce.clicks.click_table import ClickColumns, ClickTable, read_click_table
from meristem.samples.sets.clicks import EXAMINATION_RATES, true_rate

USUAL = ClickColumns.model_validate({})
QUICK = ClickModelSettings.model_validate({"prior_precisions": [3.0], "folds": 2})


def table(size: int, seed: int = 1, language: str = "en") -> ClickTable:
    return read_click_table(f"builtin:microworld-clicks?size={size}&seed={seed}&language={language}", USUAL)


@pytest.fixture(scope="module")
def model() -> ClickModel:
    return ClickModel.fit(table(1200), ClickModelSettings.model_validate({"prior_precisions": [3.0, 10.0]}))


@pytest.fixture(scope="module")
def unseen(model: ClickModel) -> tuple[list[ClickEstimate], np.ndarray]:
    test = table(600, seed=3)
    assert not set(test.queries) & set(model.table.queries)
    return model.predict(test.pairs), np.array([true_rate(query, text) for query, text in test.pairs])


def ranks(values: np.ndarray) -> np.ndarray:
    """Places in order, the mean place where values are alike."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def test_it_ranks_texts_of_unseen_queries_as_people_do(unseen: tuple[list[ClickEstimate], np.ndarray]) -> None:
    expected, true = unseen
    assert spearman(np.array([prediction.rate for prediction in expected]), true) > 0.9  # measured 0.93


def test_expected_rates_come_true(unseen: tuple[list[ClickEstimate], np.ndarray]) -> None:
    expected, true = unseen
    rates = np.array([prediction.rate for prediction in expected])
    for tenth in np.array_split(np.argsort(rates), 10):
        assert rates[tenth].mean() == pytest.approx(true[tenth].mean(), abs=0.035)
    assert rates.mean() == pytest.approx(true.mean(), abs=0.015)


def test_intervals_cover_and_are_of_use(unseen: tuple[list[ClickEstimate], np.ndarray]) -> None:
    expected, true = unseen
    low, high = (np.array([getattr(prediction, name) for prediction in expected]) for name in ("low", "high"))
    covered = float(np.mean((low <= true) & (true <= high)))
    assert covered > 0.87  # nine of ten are wanted
    assert np.mean(high - low) < 0.35


def test_examination_rates_are_recovered(model: ClickModel) -> None:
    assert list(model.examination_rates) == [1, 2, 3, 4, 5, 6]
    assert list(model.examination_rates.values()) == pytest.approx(EXAMINATION_RATES, rel=0.1)


def test_observed_clicks_update_the_prediction(model: ClickModel) -> None:
    shown_texts = [
        (query, text, observation) for query in model.table.queries for text, observation in model.table_texts(query)
    ]
    true = np.array([true_rate(query, text) for query, text, _ in shown_texts])
    observed_rates = np.array([observation.rate for *_, observation in shown_texts])
    expected = np.array(
        [prediction.rate for prediction in model.predict([(query, text) for query, text, _ in shown_texts])]
    )
    assert np.abs(observed_rates - true).mean() < np.abs(expected - true).mean()
    assert spearman(observed_rates, true) > 0.97
    spread = np.array([observation.std for *_, observation in shown_texts])
    covered = np.abs(np.log(observed_rates / (1 - observed_rates)) - np.log(true / (1 - true))) < 1.645 * spread
    assert covered.mean() > 0.8


def test_texts_unlike_the_table_are_more_uncertain(model: ClickModel) -> None:
    query = model.table.queries[0]
    plain, unlike = model.predict([(query, model.table.texts[0]), (query, "zxq wvk jjj qqy")])
    assert unlike.std > plain.std + 0.2
    assert model.predict([]) == []


@pytest.mark.slow
def test_chinese() -> None:
    click_model = ClickModel.fit(
        table(900, language="zh"), ClickModelSettings.model_validate({"prior_precisions": [10.0], "folds": 3})
    )
    test = table(360, seed=3, language="zh")
    rates = np.array([prediction.rate for prediction in click_model.predict(test.pairs)])
    true = np.array([true_rate(query, text, "zh") for query, text in test.pairs])
    assert spearman(rates, true) > 0.88  # measured 0.91


def test_the_same_model_whatever_the_order_of_rows_bit_for_bit(tmp_path: Path) -> None:
    clicks = table(90)
    rows = [f"{query}\t{text}\t{position}\t{impressions}\t{clicked}"
            for (query, text), position, impressions, clicked in zip(
        clicks.pairs, clicks.position, clicks.impressions, clicks.clicks, strict=True)]  # fmt: skip
    random.Random(1).shuffle(rows)
    path = tmp_path / "mixed.tsv"
    path.write_text("\n".join(["query\ttext\tposition\tshown\tclicked", *rows]), encoding="utf-8")
    first, second = (ClickModel.fit(click_table, QUICK) for click_table in (clicks, read_click_table(str(path), USUAL)))
    assert first.calibration == second.calibration
    for weight, other in zip(first.weights, second.weights, strict=True):
        assert (weight.text == other.text).all()
        assert (weight.looks == other.looks).all()
    query_texts = [("repair a lamp in Oakham", "We mend a lovely lamp."), clicks.pairs[3]]
    assert first.predict(query_texts) == second.predict(query_texts)


def test_it_is_cached_and_read_again_unless_damaged(tmp_path: Path) -> None:
    clicks, messages = table(90), list[str]()
    query_texts = [("repair a lamp in Oakham", "We mend a lovely lamp."), clicks.pairs[3]]
    first = load_or_fit(clicks, QUICK, tmp_path, messages.append)
    or_fit = load_or_fit(clicks, QUICK, tmp_path, messages.append)
    assert len(messages) == 1
    assert first.predict(query_texts) == or_fit.predict(query_texts)
    assert first.table_texts(clicks.queries[0]) == or_fit.table_texts(clicks.queries[0])
    (file,) = (tmp_path / "clicks").iterdir()
    file.write_bytes(file.read_bytes()[:-50])
    assert load_or_fit(clicks, QUICK, tmp_path, messages.append).predict(query_texts) == first.predict(query_texts)
    assert len(messages) == 2
    load_or_fit(clicks, QUICK.model_copy(update={"seed": 1}), tmp_path, messages.append)
    assert len(list((tmp_path / "clicks").iterdir())) == 2


WORDS = ("garden", "winter", "river", "letter", "market", "silver", "window", "summer", "mirror", "forest")


def headlines(folder: Path, seed: int, tests: int) -> ClickTable:
    """Tests with levels of their own, far apart, in which one word adds clicks and one takes them away."""
    rng, rows = np.random.default_rng(seed), ["test,headline,shown,clicked"]
    for number in range(tests):
        level = rng.normal(-3.5, 1.2)
        for _ in range(4):
            words = [*rng.choice(WORDS, 4, replace=False), rng.choice(["wonderful", "boring", "plain"])]
            rng.shuffle(words)
            effect = 0.8 * ("wonderful" in words) - 0.8 * ("boring" in words)
            clicked = rng.binomial(2000, 1 / (1 + np.exp(-(level + effect + rng.normal(0, 0.1)))))
            rows.append(f"{seed}-{number:05x}7e,{' '.join(words)},2000,{clicked}")
    (folder / f"{seed}.csv").write_text("\n".join(rows))
    names = {"query": "test", "text": "headline"}
    return read_click_table(str(folder / f"{seed}.csv"), ClickColumns.model_validate(names))


def test_differences_within_a_test_are_learned_whatever_its_level(tmp_path: Path) -> None:
    click_model = ClickModel.fit(headlines(tmp_path, 1, 80), QUICK)
    assert not click_model.features.natural_queries  # names of tests are no words
    good, plain, bad = click_model.predict([("new", f"river {word} garden market letter") for word in
                                     ("wonderful", "plain", "boring")])  # fmt: skip
    assert 0.5 < good.log_odds - plain.log_odds < 1.1  # drawn as 0.8
    assert 0.5 < plain.log_odds - bad.log_odds < 1.1
    assert click_model.calibration.strange > 0.7  # the level of a new test is anybody's guess, as it was drawn
    known_query = click_model.table.queries[0]
    assert click_model.predict([(known_query, "the river")])[0].std < click_model.predict([("new", "the river")])[0].std


def test_word_vectors_say_what_unknown_words_are_like(tmp_path: Path) -> None:
    lines = ["wonderful 1 0", "splendid 0.95 0.05", "boring -1 0", "tedious -0.95 0.05", "plain 0 0"]
    (tmp_path / "vectors.txt").write_text("\n".join([*lines, *(f"{word} 0 1" for word in WORDS)]))
    clicks = headlines(tmp_path, 2, 80)
    query_texts = [("new", "splendid river garden"), ("new", "tedious river garden")]
    blind = ClickModel.fit(clicks, QUICK).predict(query_texts)
    with_vectors = ClickModel.fit(
        clicks, QUICK.model_copy(update={"word_vectors": str(tmp_path / "vectors.txt")})
    ).predict(query_texts)
    assert with_vectors[0].log_odds - with_vectors[1].log_odds > 0.3 + blind[0].log_odds - blind[1].log_odds


@pytest.mark.slow
def test_hidden_states_of_a_run_can_be_features(tmp_path: Path) -> None:
    small = {"model.layers": 1, "model.hidden_size": 32, "model.heads": 2, "model.max_length": 32,
             "tokenizer.vocab_size": 400,
             "train.steps": 2, "train.batch_tokens": 128}  # fmt: skip
    run = api.pretrain("gpt2-mini", {**small, "corpus.source": "builtin:microworld-en?size=60"}, out=tmp_path / "run",
                       console=Console(quiet=True)).run  # fmt: skip
    settings = QUICK.model_copy(update={"embedding_run": str(run)})
    or_fit = load_or_fit(table(60), settings, tmp_path, lambda _: None)
    assert len(or_fit.features.mean) == 32 + len(ClickModel.fit(table(60), QUICK).features.mean)
    query_texts = [("repair a lamp in Oakham", text) for text in ("We mend a lovely lamp.", "", "lamp " * 200)]
    assert load_or_fit(table(60), settings, tmp_path, lambda _: None).predict(query_texts) == or_fit.predict(
        query_texts
    )


def test_vectors_that_know_no_word_are_refused(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("lampe 1 0\nblume 0 1\n")
    with pytest.raises(MeristemError, match="contains none of the table's words"):
        ClickModel.fit(table(18), QUICK.model_copy(update={"word_vectors": str(tmp_path / "vectors.txt")}))


@pytest.mark.parametrize("rows", [
    ["a,x,1,1", "b,x,1,1"],
    ["a,x,5,0", "b,x,5,5"],
    ["a,x y,1000000,999999", "a,z,1000000,1", "b,x,1,0", "c,\u706f,3,1"],
    [f"{query},{text},100,100" for query in "abc" for text in "xyz"],
    [f"{query},{query},100,3" for query in "abcdefg"],
])  # fmt: skip
def test_small_and_extreme_tables_give_finite_rates(tmp_path: Path, rows: list[str]) -> None:
    (tmp_path / "clicks.csv").write_text("\n".join(["query,text,shown,clicked", *rows]), encoding="utf-8")
    click_model = ClickModel.fit(
        read_click_table(str(tmp_path / "clicks.csv"), USUAL), ClickModelSettings.model_validate({})
    )
    for prediction in click_model.predict([("a", "x"), ("new", "x"), ("a", "something else"), ("", "")]):
        assert 0 <= prediction.low <= prediction.rate <= prediction.high <= 1
        assert np.isfinite(prediction.std)
    assert all(
        np.isfinite(observation.log_odds)
        for query in click_model.table.queries
        for _, observation in click_model.table_texts(query)
    )
