"""Exposure of every kind of language model: measured where texts can be scored, refused by name elsewhere."""

import pytest
from rich.console import Console
from tiny_runs import tiny_run

from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.corpus.canaries.planting import canary_record
from meristem.corpus.canaries.settings import CanarySettings
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.exposure_page import render_exposure
from meristem.trust.exposure.run_exposure import measure_exposure

QUIET = Console(quiet=True)
OPTIONS = ExposureOptions(
    candidates=20,
    controls=4,
    checkpoint_candidates=8,
    max_checkpoints=1,
    prefixes=4,
    samples=1,
    prefix_tokens=8,
    continuation_tokens=4,
    members=20,
    passage_tokens=8,
    resamples=20,
)
KINDS = {
    "bert-mini": "masked",
    "xlnet-mini": "permutation",
    "bart-mini": "source",
    "elmo-mini": "bilm",
    "rnn-mini": "source",
}
SLOW_KINDS = {
    "electra-mini": "generator",
    "gpt2-mini": "causal",
    "mamba-mini": "causal",
    "modernbert-mini": "masked",
    "multitask-mini": "causal",
    "t5-mini": "source",
    "transformer-mini": "source",
    "transformer-xl-mini": "causal",
}


@pytest.fixture
def canary_path(tmp_path):
    path = tmp_path / "canaries.json"
    settings = CanarySettings(formats=("the code of anna is {letters:4}",), repeats=(1, 3), per_repeat=2)
    path.write_text(canary_record({"main": settings}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [*KINDS.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in SLOW_KINDS.items())],
)
def test_each_kind_is_measured(recipe, kind, canary_path):
    report = measure_exposure(load_run(tiny_run(recipe)), OPTIONS, QUIET, canary_path=canary_path)
    assert report.kind == kind
    assert [level.canaries for level in report.levels] == [2, 2]
    assert all(0 <= canary.bits <= canary.max_bits for canary in report.canaries)
    assert all(level.tried == 2 for level in report.levels)
    on_pairs = recipe in ("rnn-mini", "transformer-mini")
    assert bool(report.extraction) != on_pairs
    assert any("pairs" in note for note in report.notes) == on_pairs
    assert "<h2>Exposure of planted texts</h2>" in render_exposure(report)


def test_a_captioner_is_refused_by_name(canary_path):
    with pytest.raises(MeristemError, match="captioner predicts texts from images only"):
        measure_exposure(load_run(tiny_run("captioner-mini")), OPTIONS, QUIET, canary_path=canary_path)


def test_without_canaries_the_rest_is_measured_and_said(tmp_path):
    report = measure_exposure(load_run(tiny_run("bert-mini")), OPTIONS, QUIET)
    assert report.levels == () and report.control is None
    assert "corpus.canaries=true" in report.notes[0]
    assert "no canaries" in repr(report)
    assert "Verbatim extraction" in render_exposure(report)
